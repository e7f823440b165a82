package kv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What commands know by name is what was published.
func TestModelsByName(t *testing.T) {
	names := map[string]string{
		"Llama-3.1-70B": "llama-3.1-70b", "Qwen3-30B-A3B": "qwen3-30b-a3b", "Llama-3.1-8B": "llama-3.1-8b", "Llama-3.1-405B": "llama-3.1-405b",
		"DeepSeek-R1 (MLA, 512 latent + 64 rotary)":         "DeepSeek-R1",
		"gpt-oss-120b (every second layer sees 128 tokens)": "gpt-oss-120b",
		"Gemma-3-27B (five of six layers see 1024 tokens)":  "gemma-3-27b",
	}
	compared := 0
	for _, m := range published {
		name, known := names[m.name]
		if !known {
			continue
		}
		compared++
		got, err := ModelGeometry(name)
		if diff := cmp.Diff(m.geometry, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	if compared != len(names) {
		t.Errorf("%d of %d shapes were compared", compared, len(names))
	}
}

func TestEveryModelIsPossible(t *testing.T) {
	for _, name := range ModelNames() {
		g, err := ModelGeometry(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ModelGeometry("gpt-2"); err == nil || !strings.Contains(err.Error(), "qwen3-30b-a3b") {
		t.Errorf("got %v", err)
	}
}

// An indexer's bytes are of a type of its own, and count once a token and layer.
func TestIndexersCount(t *testing.T) {
	plain, err := ModelGeometry("deepseek-r1")
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := ModelGeometry("deepseek-v3.2")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sparse.BytesPerToken()-plain.BytesPerToken(), int64(61*132); got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
	got, err := sparse.BytesForContext(10)
	if want := 10 * sparse.BytesPerToken(); err != nil || got != want {
		t.Errorf("ten tokens: got %d, %v, want %d", got, err, want)
	}
}

func TestWindowedLeavesTheOriginalAlone(t *testing.T) {
	g := Uniform(4, Layer{KVHeads: 1, HeadDim: 1}, Int8)
	windowed := g.Windowed(7, 2)
	for i, want := range []int{7, 0, 7, 0} {
		if windowed.Layers[i].WindowTokens != want || g.Layers[i].WindowTokens != 0 {
			t.Errorf("layer %d: windows %d and %d", i, windowed.Layers[i].WindowTokens, g.Layers[i].WindowTokens)
		}
	}
	if all := g.Windowed(7, 0); all.Layers[3].WindowTokens != 7 {
		t.Error("without a full layer every layer has a window")
	}
}

func TestShapesAsText(t *testing.T) {
	for text, want := range map[string]Geometry{
		"layers=7,kv_heads=4,head_dim=8,dtype=fp16":                       Uniform(7, Layer{KVHeads: 4, HeadDim: 8}, Float16),
		" layers=2, latent=576,index_bytes=132":                           Uniform(2, Layer{Attention: Latent, KVHeads: 1, HeadDim: 576, IndexBytes: 132}, BFloat16),
		"layers=4,kv_heads=1,head_dim=2,window=9,full_every=2,dtype=int8": Uniform(4, Layer{KVHeads: 1, HeadDim: 2}, Int8).Windowed(9, 2),
		"tiny": Uniform(4, Layer{KVHeads: 2, HeadDim: 32}, Float32),
	} {
		got, err := ParseGeometry(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{
		"", "gpt-2", "layers=", "layers=0,kv_heads=1,head_dim=1", "layers=x", "layers=-1", "layers=2", "layers=2,kv_heads=2", "kv_heads=2,head_dim=4",
		"layers=2,layers=2,kv_heads=1,head_dim=1", "layers=2,latent=4,kv_heads=1", "layers=2,latent=4,depth=3", "layers=2,latent=4,dtype=bf17",
		"layers=2,latent=4,dtype=bf16,dtype=bf16", "layers=99999999999,latent=4", "layers=2,latent=4,",
	} {
		if g, err := ParseGeometry(text); err == nil {
			t.Errorf("%q was read as %+v", text, g)
		}
	}
}
