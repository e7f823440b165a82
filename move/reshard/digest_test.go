package reshard

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
	"pgregory.net/rapid"

	"meridian/kv"
)

// Whatever is changed, the digest changes.
func TestDigestSeesEveryInput(t *testing.T) {
	type inputs struct {
		src, dst Side
		r        Request
	}
	fresh := func() *inputs {
		src, dst, r := pair(t)
		src.Geometry = kv.Uniform(4, kv.Layer{KVHeads: 4, HeadDim: 8, WindowTokens: 90}, kv.BFloat16)
		dst.Geometry = src.Geometry
		src.Parallelism.DP, dst.Parallelism.DP, src.Parallelism.CP, dst.Parallelism.CP = 2, 2, 2, 2
		return &inputs{src, dst, r}
	}
	both := func(change func(*Side)) func(*inputs) {
		return func(i *inputs) { change(&i.src); change(&i.dst) }
	}
	layers := func(change func(*kv.Layer)) func(*inputs) {
		return both(func(s *Side) {
			s.Geometry.Layers = slices.Clone(s.Geometry.Layers)
			change(&s.Geometry.Layers[1])
		})
	}
	seen := make(map[kv.Hash]string)
	for name, change := range map[string]func(*inputs){
		"nothing":          func(*inputs) {},
		"dtype":            both(func(s *Side) { s.Geometry.DType = kv.Float16 }),
		"heads":            layers(func(l *kv.Layer) { l.KVHeads = 2 }),
		"head dim":         layers(func(l *kv.Layer) { l.HeadDim = 4 }),
		"window":           layers(func(l *kv.Layer) { l.WindowTokens = 89 }),
		"attention":        layers(func(l *kv.Layer) { *l = kv.Layer{Attention: kv.Latent, KVHeads: 1, HeadDim: 8, WindowTokens: 90} }),
		"indexer":          layers(func(l *kv.Layer) { l.IndexBytes = 1 }),
		"packing":          both(func(s *Side) { s.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "x"} }),
		"another packing":  both(func(s *Side) { s.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "y"} }),
		"source tp":        func(i *inputs) { i.src.Parallelism.TP = 3 },
		"source stages":    func(i *inputs) { i.src.Parallelism.Stages = []int{3, 1} },
		"other stages":     func(i *inputs) { i.src.Parallelism.Stages = []int{1, 3} },
		"source cp":        func(i *inputs) { i.src.Parallelism.CP = 1 },
		"source dp":        func(i *inputs) { i.src.Parallelism.DP = 3 },
		"source layout":    func(i *inputs) { i.src.Layout = layout(t, "LBNHC") },
		"source block":     func(i *inputs) { i.src.BlockTokens = 17 },
		"source blocks":    func(i *inputs) { i.src.Blocks = 9 },
		"source turns":     func(i *inputs) { i.src.InterleaveTokens = 8 },
		"target tp":        func(i *inputs) { i.dst.Parallelism.TP = 3 },
		"target stages":    func(i *inputs) { i.dst.Parallelism.Stages = []int{3, 1} },
		"target cp":        func(i *inputs) { i.dst.Parallelism.CP = 1 },
		"target dp":        func(i *inputs) { i.dst.Parallelism.DP = 3 },
		"target layout":    func(i *inputs) { i.dst.Layout = layout(t, "LBNHC") },
		"target block":     func(i *inputs) { i.dst.BlockTokens = 17 },
		"target blocks":    func(i *inputs) { i.dst.Blocks = 9 },
		"target turns":     func(i *inputs) { i.dst.InterleaveTokens = 8 },
		"first token":      func(i *inputs) { i.r.Tokens.Start = 32 },
		"last token":       func(i *inputs) { i.r.Tokens.End = 99 },
		"context":          func(i *inputs) { i.r.ContextTokens = 101 },
		"request":          func(i *inputs) { i.r.Turn = 1 },
		"source group":     func(i *inputs) { i.r.Src.DP = 1 },
		"target group":     func(i *inputs) { i.r.Dst.DP = 1 },
		"source table":     func(i *inputs) { i.r.Src.Tables[0][2] = 7 },
		"target table":     func(i *inputs) { i.r.Dst.Tables[0][2] = 7 },
		"an unused block":  func(i *inputs) { i.r.Src.Tables[0][0] = 7 },
		"one block more":   func(i *inputs) { i.r.Src = inLine(8) },
		"and in the other": func(i *inputs) { i.r.Dst = inLine(8) },
		"source places":    func(i *inputs) { i.src = inPlaces(t, i.src, 1<<20) },
		"wider places":     func(i *inputs) { i.src = inPlaces(t, i.src, 1<<20+1) },
		"source offset":    func(i *inputs) { i.src = inPlaces(t, i.src, 1<<20); i.src.Offsets[0] = 1 },
		"target places":    func(i *inputs) { i.dst = inPlaces(t, i.dst, 1<<20) },
		"places on both":   both(func(s *Side) { *s = inPlaces(t, *s, 1<<20) }),
	} {
		i := fresh()
		shape := mustPlan(t, i.src, i.dst, i.r).Shape()
		shapes := NewShapes(1)
		shapes.Add(shape)
		change(i)
		if found, same := shapes.Find(i.src, i.dst) != nil, shapeDigest(i.src, i.dst) == shape.Digest(); found != same {
			t.Errorf("%q: the shape is the same: %t, and is found: %t", name, same, found)
		}
		digest := mustPlan(t, i.src, i.dst, i.r).Digest()
		if other, taken := seen[digest]; taken {
			t.Errorf("%q and %q have one digest", name, other)
		}
		seen[digest] = name
	}
	i := fresh()
	i.r.ContextTokens = i.r.Tokens.End
	if digest := mustPlan(t, i.src, i.dst, i.r).Digest(); seen[digest] != "nothing" {
		t.Error("a context that is said and one that is implied differ")
	}
}

// inPlaces is a side of one group whose blocks lie at places of one arena.
func inPlaces(t testing.TB, s Side, stride int64) Side {
	s.Layout, s.BlockStride, s.Offsets = layout(t, "B"+strings.Replace(s.Layout.Axes(), "B", "", 1)), stride, []int64{0}
	return s
}

// Plans with equal digests are equal.
func TestEqualDigestsMeanEqualPlans(t *testing.T) {
	seen := make(map[kv.Hash]kv.Hash)
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		plan := mustPlan(t, c.src, c.dst, c.request)
		print := fingerprint(plan)
		if other, known := seen[plan.Digest()]; known && other != print {
			t.Fatalf("two plans have the digest %v", plan.Digest())
		}
		seen[plan.Digest()] = print
	})
}

// fingerprint is of every run of a plan, in order.
func fingerprint(p *Plan) kv.Hash {
	var b []byte
	for _, f := range p.Flows() {
		for r := range f.Runs() {
			for _, v := range []int64{int64(f.Src), int64(f.Dst), r.Src, r.Dst, r.Length, r.Count, r.SrcStride, r.DstStride} {
				b = binary.LittleEndian.AppendUint64(b, uint64(v))
			}
		}
	}
	return blake3.Sum256(b)
}

// The digest is of the inputs and of the rules' revision. Where the same inputs
// make other runs, two builds would agree on a digest and not on what to move:
// then the revision in shape.go must change, and these lines with it.
func TestRulesAndRevisionChangeTogether(t *testing.T) {
	windowed := kv.Uniform(6, kv.Layer{KVHeads: 3, HeadDim: 8}, kv.BFloat16).Windowed(40, 2)
	latent := kv.Uniform(5, kv.Layer{Attention: kv.Latent, KVHeads: 1, HeadDim: 12, IndexBytes: 5}, kv.Float8E4M3)
	packed := kv.Packing{Unit: kv.HeadOfBlock, Name: "x"}
	side := func(g kv.Geometry, cut, order string, blockTokens int, p kv.Packing) Side {
		return Side{Geometry: g, Parallelism: cutAs(t, cut, len(g.Layers)), Layout: layout(t, order), BlockTokens: blockTokens, Blocks: 40, Packing: p}
	}
	scattered := Holding{Tables: [][]uint32{{31, 2, 3, 4, 17, 19, 21, 9, 8, 0, 12, 33, 39, 38, 1, 5, 6, 7, 10, 11}}}
	for name, c := range map[string]struct {
		src, dst Side
		r        Request
		digest   string
		runs     string
	}{
		"windows, odd blocks": {
			side(windowed, "tp=5,pp=4+2", "LBHNC", 6, kv.Packing{}), side(windowed, "tp=2,cp=2", "SGLANG", 7, kv.Packing{}),
			Request{Tokens: kv.TokenRange{Start: 5, End: 100}, Turn: 7},
			"34938b8350dd94355ef70582f065049b9c32811cac30ac829363d45162b95e85",
			"cb22850c4c389ac38f0844d27cbb0efc0eb11836a399631e99e9de5fa26a6665",
		},
		"a latent with an indexer": {
			side(latent, "tp=4", "LBHNC", 8, kv.Packing{}), side(latent, "tp=3,pp=2", "BLNHC", 8, kv.Packing{}),
			Request{Tokens: kv.TokenRange{Start: 8, End: 99}, ContextTokens: 120, Turn: 2},
			"ca82c11d1a2fa26d1b9cbea29118617b2823e23084560df5fedf3c75490d3982",
			"be8c9fbccf913fa3a355dd1acc2a472dc0adc360b91dd8ab1f95c3f2ab207513",
		},
		"packed": {
			side(windowed, "tp=1", "LBHNC", 8, packed), side(windowed, "tp=3", "BLHNC", 8, packed),
			Request{Tokens: kv.TokenRange{End: 77}},
			"2522e1119ea5f191e8879956e2d361e59f1a6e840e6b464990b055893c329f89",
			"7bb3939b7911522795b38721165b2de3bb69186d3f75310094e75af96a0c6bf2",
		},
	} {
		c.r.Src, c.r.Dst = scattered, inLine(20)
		plan := mustPlan(t, c.src, c.dst, c.r)
		digest, runs := fmt.Sprint(plan.Digest()), fmt.Sprint(fingerprint(plan))
		if digest != c.digest || runs != c.runs {
			t.Errorf("%s: digest %s of runs %s,\nthese lines have %s and %s", name, digest, runs, c.digest, c.runs)
		}
	}
}

func TestShapesAreKept(t *testing.T) {
	src, dst, _ := pair(t)
	shapes := NewShapes(2)
	prepare := func(blocks int) *Shape {
		t.Helper()
		dst.Blocks = blocks
		shape, err := shapes.Prepare(src, dst)
		if err != nil {
			t.Fatal(err)
		}
		if shape.Dst().Blocks != blocks || shape.Src().Blocks != src.Blocks {
			t.Fatalf("got the shape of others: %d blocks", shape.Dst().Blocks)
		}
		return shape
	}
	first, second := prepare(8), prepare(9)
	if prepare(8) != first || prepare(9) != second {
		t.Error("a known shape was prepared again")
	}
	prepare(10)
	if prepare(9) != second {
		t.Error("the younger one was forgotten")
	}
	if prepare(8) == first {
		t.Error("three shapes are kept, two are the limit")
	}
	dst.Geometry.DType = kv.Float32
	if _, err := shapes.Prepare(src, dst); err == nil {
		t.Error("sides that do not fit have a shape")
	}
}
