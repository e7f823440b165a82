package kv

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The shapes are those of each model's published config.json; the sizes of the
// first two are also printed in NIXL's and Qwen's own material.
var published = []struct {
	name          string
	geometry      Geometry
	bytesPerToken int64
	bytesPer16    int64
}{
	{"Llama-3.1-70B", Uniform(80, Layer{KVHeads: 8, HeadDim: 128}, BFloat16), 320 << 10, 5 << 20},
	{"Qwen3-30B-A3B", Uniform(48, Layer{KVHeads: 4, HeadDim: 128}, BFloat16), 96 << 10, 1536 << 10},
	{"Llama-3.1-8B", Uniform(32, Layer{KVHeads: 8, HeadDim: 128}, BFloat16), 128 << 10, 2 << 20},
	{"Llama-3.1-405B", Uniform(126, Layer{KVHeads: 8, HeadDim: 128}, BFloat16), 504 << 10, 8064 << 10},
	{"Llama-3.1-70B in fp8", Uniform(80, Layer{KVHeads: 8, HeadDim: 128}, Float8E4M3), 160 << 10, 2560 << 10},
	{"DeepSeek-R1 (MLA, 512 latent + 64 rotary)", Uniform(61, mla, BFloat16), 70272, 1124352},
	{"gpt-oss-120b (every second layer sees 128 tokens)", alternating(36, Layer{KVHeads: 8, HeadDim: 64}, 128, 2), 72 << 10, 1152 << 10},
	{"Gemma-3-27B (five of six layers see 1024 tokens)", alternating(62, Layer{KVHeads: 16, HeadDim: 128}, 1024, 6), 496 << 10, 7936 << 10},
}

var mla = Layer{Attention: Latent, KVHeads: 1, HeadDim: 512 + 64}

// alternating makes every period-th layer full and windows the others.
func alternating(layers int, layer Layer, windowTokens, period int) Geometry {
	g := Uniform(layers, layer, BFloat16)
	for i := range g.Layers {
		if (i+1)%period != 0 {
			g.Layers[i].WindowTokens = windowTokens
		}
	}
	return g
}

func TestPublishedModels(t *testing.T) {
	for _, m := range published {
		t.Run(m.name, func(t *testing.T) {
			if err := m.geometry.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := m.geometry.BytesPerToken(); got != m.bytesPerToken {
				t.Errorf("bytes per token: got %d, want %d", got, m.bytesPerToken)
			}
			got, err := m.geometry.BytesPerBlock(16)
			if err != nil || got != m.bytesPer16 {
				t.Errorf("bytes per 16-token block: got %d, %v, want %d", got, err, m.bytesPer16)
			}
		})
	}
}

func TestWindowedLayersKeepOnlyWhatTheySee(t *testing.T) {
	g := alternating(36, Layer{KVHeads: 8, HeadDim: 64}, 128, 2)
	perLayer := int64(2 * 8 * 64 * 2)
	for _, c := range []struct{ context, liveTokens int }{{0, 0}, {100, 36 * 100}, {128, 36 * 128}, {1000, 18*1000 + 18*128}} {
		got, err := g.BytesForContext(c.context)
		if want := int64(c.liveTokens) * perLayer; err != nil || got != want {
			t.Errorf("context of %d: got %d, %v, want %d", c.context, got, err, want)
		}
	}
}

func TestGroups(t *testing.T) {
	g := alternating(6, Layer{KVHeads: 2, HeadDim: 8}, 4, 3)
	windowed := Layer{KVHeads: 2, HeadDim: 8, WindowTokens: 4}
	want := []Group{
		{Layer: windowed, Indices: []int{0, 1, 3, 4}},
		{Layer: Layer{KVHeads: 2, HeadDim: 8}, Indices: []int{2, 5}},
	}
	if diff := cmp.Diff(want, g.Groups()); diff != "" {
		t.Error(diff)
	}
}

func TestImpossibleGeometries(t *testing.T) {
	good := Layer{KVHeads: 8, HeadDim: 128}
	for name, g := range map[string]Geometry{
		"no dtype":          Uniform(2, good, InvalidDType),
		"unknown dtype":     Uniform(2, good, DType(99)),
		"no layers":         Uniform(0, good, BFloat16),
		"negative layers":   Uniform(-1, good, BFloat16),
		"too many layers":   Uniform(maxLayers+1, good, BFloat16),
		"no heads":          Uniform(2, Layer{HeadDim: 128}, BFloat16),
		"too many heads":    Uniform(2, Layer{KVHeads: maxKVHeads + 1, HeadDim: 1}, BFloat16),
		"negative head dim": Uniform(2, Layer{KVHeads: 1, HeadDim: -1}, BFloat16),
		"huge head dim":     Uniform(2, Layer{KVHeads: 1, HeadDim: maxHeadDim + 1}, BFloat16),
		"MLA with heads":    Uniform(2, Layer{Attention: Latent, KVHeads: 2, HeadDim: 8}, BFloat16),
		"unknown attention": Uniform(2, Layer{Attention: 7, KVHeads: 1, HeadDim: 8}, BFloat16),
		"negative window":   Uniform(2, Layer{KVHeads: 1, HeadDim: 8, WindowTokens: -1}, BFloat16),
		"negative indexer":  Uniform(2, Layer{KVHeads: 1, HeadDim: 8, IndexBytes: -1}, BFloat16),
		"huge indexer":      Uniform(2, Layer{KVHeads: 1, HeadDim: 8, IndexBytes: maxIndexBytes + 1}, BFloat16),
	} {
		if err := g.Validate(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: got %v, want ErrShape", name, err)
		}
	}
}

func TestSizesDoNotWrap(t *testing.T) {
	largest := Uniform(maxLayers, Layer{KVHeads: maxKVHeads, HeadDim: maxHeadDim}, Float32)
	if err := largest.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, want := largest.BytesPerToken(), int64(1)<<51; got != want {
		t.Errorf("largest token: got %d, want %d", got, want)
	}
	if _, err := largest.BytesPerBlock(1 << 12); !errors.Is(err, ErrShape) {
		t.Errorf("2^63 bytes: got %v, want ErrShape", err)
	}
	if _, err := largest.BytesForContext(1 << 12); !errors.Is(err, ErrShape) {
		t.Errorf("2^63 bytes over layers: got %v, want ErrShape", err)
	}
	if got, err := largest.BytesPerBlock(1<<12 - 1); err != nil || got != math.MaxInt64-1<<51+1 {
		t.Errorf("just below 2^63 bytes: got %d, %v", got, err)
	}
	if _, err := largest.BytesPerBlock(-1); !errors.Is(err, ErrShape) {
		t.Errorf("negative tokens: got %v, want ErrShape", err)
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for d := Float32; d <= Int8; d++ {
		if got, err := ParseDType(d.String()); err != nil || got != d {
			t.Errorf("%v: got %v, %v", d, got, err)
		}
	}
	for _, tier := range Tiers() {
		if got, err := ParseTier(tier.String()); err != nil || got != tier {
			t.Errorf("%v: got %v, %v", tier, got, err)
		}
	}
	for _, name := range []string{"", "invalid", "bf17"} {
		if d, err := ParseDType(name); err == nil {
			t.Errorf("dtype %q was read as %v", name, d)
		}
		if tier, err := ParseTier(name); err == nil {
			t.Errorf("tier %q was read as %v", name, tier)
		}
	}
	if KeyValue.String() != "key_value" || Latent.String() != "latent" || Attention(7).String() != "attention(7)" {
		t.Error("names of attention changed")
	}
	if Tier(3).Valid() || Tier(3).String() != "tier(3)" || Phase(9).String() != "phase(9)" || DType(99).String() != "dtype(99)" {
		t.Error("an unknown value must print as its number")
	}
	if Think.String() != "think" || Complete.String() != "complete" {
		t.Error("phase names changed")
	}
}

func TestTokenRange(t *testing.T) {
	r := TokenRange{Start: 10, End: 50}
	for _, c := range []struct {
		other TokenRange
		want  TokenRange
	}{
		{TokenRange{0, 100}, r},
		{TokenRange{20, 30}, TokenRange{20, 30}},
		{TokenRange{0, 10}, TokenRange{}},
		{TokenRange{50, 60}, TokenRange{}},
		{TokenRange{45, 60}, TokenRange{45, 50}},
		{TokenRange{30, 20}, TokenRange{}},
	} {
		if got := r.Intersect(c.other); got != c.want {
			t.Errorf("%v ∩ %v = %v, want %v", r, c.other, got, c.want)
		}
	}
	if first, end := r.Blocks(16); first != 0 || end != 4 {
		t.Errorf("blocks of %v: got [%d,%d), want [0,4)", r, first, end)
	}
	if first, end := (TokenRange{16, 32}).Blocks(16); first != 1 || end != 2 {
		t.Errorf("aligned range: got [%d,%d), want [1,2)", first, end)
	}
	if first, end := (TokenRange{5, 5}).Blocks(16); first != end {
		t.Errorf("an empty range has blocks [%d,%d)", first, end)
	}
	if r.Len() != 40 || (TokenRange{3, 1}).Len() != 0 {
		t.Error("ranges are half-open and never negative")
	}
}
