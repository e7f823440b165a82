package reshard

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/kv"
)

func TestSidesAsText(t *testing.T) {
	geometry := kv.Uniform(7, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)
	fp8 := geometry
	fp8.DType = kv.Float8E4M3
	plain := Side{Geometry: geometry, Parallelism: kv.Split(7, 1, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16}
	for text, want := range map[string]Side{
		"tp=1":     plain,
		"block=16": plain,
		"tp=4, pp=4+3,cp=2,dp=3,block=64,layout=nhd,interleave=8,dtype=fp8_e4m3": {
			Geometry: fp8, Parallelism: kv.Parallelism{TP: 4, Stages: []int{4, 3}, CP: 2, DP: 3}, Layout: layout(t, "LBNHC"),
			BlockTokens: 64, InterleaveTokens: 8,
		},
		"packing=head:vllm_cpu_fp32": {
			Geometry: geometry, Parallelism: kv.Split(7, 1, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16,
			Packing: kv.Packing{Unit: kv.HeadOfBlock, Name: "vllm_cpu_fp32"},
		},
	} {
		got, err := ParseSide(text, geometry)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(kv.Layout{})); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{
		"", "tp", "tp=0", "pp=8", "block=0", "block=x", "layout=X", "packing=head", "interleave=0", "dtype=fp4", "depth=3", "tp=1,tp=1", "block=4,block=4",
	} {
		if s, err := ParseSide(text, geometry); err == nil {
			t.Errorf("%q was read as %+v", text, s)
		}
	}
	if _, err := ParseSide("depth=3", geometry); !errors.Is(err, kv.ErrShape) {
		t.Errorf("got %v", err)
	}
}

// Context ranks share a table, so it is as long as that of the rank with most.
func TestBlocksFor(t *testing.T) {
	for _, c := range []struct{ cp, block, interleave, tokens, want int }{
		{1, 16, 0, 0, 0},
		{1, 16, 0, 16, 1},
		{1, 16, 0, 17, 2},
		{2, 16, 0, 32, 1},
		{2, 16, 0, 33, 2},
		{3, 16, 0, 49, 2},
		{2, 4, 1, 8, 1},
		{2, 4, 1, 9, 2},
		{2, 4, 6, 12, 2},
	} {
		s := Side{Parallelism: kv.Parallelism{TP: 1, CP: c.cp, DP: 1}, BlockTokens: c.block, InterleaveTokens: c.interleave}
		if got := s.BlocksFor(c.tokens); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}
