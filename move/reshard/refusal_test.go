package reshard

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/kv"
)

// pair is two sides that fit, and a request between them.
func pair(t testing.TB) (src, dst Side, r Request) {
	geometry := kv.Uniform(4, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)
	src = Side{Geometry: geometry, Parallelism: kv.Split(4, 2, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16, Blocks: 8}
	dst = Side{Geometry: geometry, Parallelism: kv.Split(4, 4, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16, Blocks: 8}
	return src, dst, Request{Tokens: kv.TokenRange{End: 100}, Src: inLine(7), Dst: inLine(7)}
}

func TestCompareNamesEveryDifference(t *testing.T) {
	src, dst, _ := pair(t)
	if found := Compare(src, dst); len(found) != 0 {
		t.Fatalf("these fit: %v", found)
	}
	dst.Geometry = kv.Uniform(4, kv.Layer{KVHeads: 2, HeadDim: 8}, kv.Float8E4M3)
	dst.Geometry.Layers[3].HeadDim = 16
	dst.Geometry.Layers[3].WindowTokens = 128
	dst.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "vllm_cpu_fp32"}
	const stranger = "they are not caches of one model"
	want := []Difference{
		{"dtype", "bf16", "fp8_e4m3", "elements are not converted"},
		{"kv_heads of layers 0–3", "4", "2", stranger},
		{"head_dim of layer 3", "8", "16", stranger},
		{"window of layer 3", "0", "128", stranger},
		{"packing", "plain", "head:vllm_cpu_fp32", "elements are not repacked"},
	}
	if diff := cmp.Diff(want, Compare(src, dst)); diff != "" {
		t.Error(diff)
	}
	_, err := Prepare(src, dst)
	var incompatible *Incompatible
	if !errors.Is(err, ErrIncompatible) || !errors.As(err, &incompatible) || len(incompatible.Differences) != len(want) {
		t.Fatalf("got %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "dtype: source bf16, destination fp8_e4m3 (elements are not converted)") {
		t.Errorf("got %s", text)
	}
}

func TestOtherModelsDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kv.Geometry)
		field  string
	}{
		"layers":    {func(g *kv.Geometry) { g.Layers = append(g.Layers, g.Layers[0]) }, "layers"},
		"attention": {func(g *kv.Geometry) { g.Layers[1] = kv.Layer{Attention: kv.Latent, KVHeads: 1, HeadDim: 8} }, "attention of layer 1"},
		"indexer":   {func(g *kv.Geometry) { g.Layers[2].IndexBytes = 132 }, "index_bytes of layer 2"},
	} {
		src, dst, _ := pair(t)
		dst.Geometry = kv.Uniform(4, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)
		c.change(&dst.Geometry)
		dst.Parallelism = kv.Split(len(dst.Geometry.Layers), 1, 1)
		if found := Compare(src, dst); len(found) == 0 || found[0].Field != c.field {
			t.Errorf("%s: got %v, want the field %q first", name, found, c.field)
		}
	}
}

func TestPackingsForbidCuts(t *testing.T) {
	head := kv.Packing{Unit: kv.HeadOfBlock, Name: "vllm_cpu_fp32"}
	block := kv.Packing{Unit: kv.WholeBlock, Name: "x"}
	for name, c := range map[string]struct {
		change func(src, dst *Side, r *Request)
		is     error
		says   string
	}{
		"heads may be split": {func(src, dst *Side, _ *Request) { src.Packing, dst.Packing = head, head }, nil, ""},
		"other block size": {
			func(src, dst *Side, _ *Request) { src.Packing, dst.Packing, dst.BlockTokens = head, head, 32 },
			ErrIncompatible, "block_tokens: source 16, destination 32 (packing head:vllm_cpu_fp32 allows no cut within a block)",
		},
		"other packing": {
			func(src, dst *Side, _ *Request) {
				src.Packing, dst.Packing = head, kv.Packing{Unit: kv.HeadOfBlock, Name: "vllm_cpu_bf16_amx"}
			},
			ErrIncompatible, "packing: source head:vllm_cpu_fp32, destination head:vllm_cpu_bf16_amx (elements are not repacked)",
		},
		"heads of a block stay together": {
			func(src, dst *Side, _ *Request) { src.Packing, dst.Packing = block, block },
			ErrIncompatible, "no source rank holds exactly heads 0–0, as destination tensor rank 0 does",
		},
		"a block stays whole": {
			func(src, dst *Side, _ *Request) {
				src.Packing, dst.Packing, dst.Parallelism = block, block, kv.Split(4, 2, 3)
			}, nil, "",
		},
		"a prefix that ends in a block": {
			func(src, dst *Side, r *Request) { src.Packing, dst.Packing, r.Tokens.Start = head, head, 20 },
			ErrRequest, "packing head:vllm_cpu_fp32 allows no cut within a block, but token 20 is inside one of 16",
		},
		"turns within a block": {
			func(src, dst *Side, _ *Request) {
				src.Packing, dst.Packing, dst.Parallelism.CP, dst.InterleaveTokens = head, head, 2, 4
			}, kv.ErrShape, "context ranks take turns of 4 tokens in blocks of 16",
		},
		"an indexer and other block sizes": {
			func(src, dst *Side, _ *Request) {
				src.Geometry = kv.Uniform(4, kv.Layer{KVHeads: 4, HeadDim: 8, IndexBytes: 132}, kv.BFloat16)
				dst.Geometry, dst.BlockTokens = src.Geometry, 64
			}, ErrIncompatible, "block_tokens: source 16, destination 64 (the indexer's packing allows no cut within a block)",
		},
		"a layout that cannot hold the packing": {
			func(src, dst *Side, _ *Request) { src.Packing, src.Layout = head, layout(t, "LBNHC") },
			kv.ErrShape, "packing head:vllm_cpu_fp32 needs the axes DFN innermost, layout LBNHC has LBNHFD",
		},
	} {
		src, dst, r := pair(t)
		c.change(&src, &dst, &r)
		shape, err := Prepare(src, dst)
		if err == nil {
			_, err = shape.Plan(r)
		}
		if !errors.Is(err, c.is) || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.is, c.says)
		}
	}
}

func TestImpossibleSides(t *testing.T) {
	for name, change := range map[string]func(*Side){
		"no geometry":        func(s *Side) { s.Geometry = kv.Geometry{} },
		"stages do not fit":  func(s *Side) { s.Parallelism.Stages = []int{3} },
		"too many ranks":     func(s *Side) { s.Parallelism.TP = maxRanks + 1 },
		"no layout":          func(s *Side) { s.Layout = kv.Layout{} },
		"no tokens":          func(s *Side) { s.BlockTokens = 0 },
		"huge blocks":        func(s *Side) { s.BlockTokens = maxBlockTokens + 1 },
		"no blocks":          func(s *Side) { s.Blocks = 0 },
		"too many blocks":    func(s *Side) { s.Blocks = maxBlocks + 1 },
		"negative turns":     func(s *Side) { s.InterleaveTokens = -1 },
		"a name for nothing": func(s *Side) { s.Packing.Name = "x" },
		"too many groups": func(s *Side) {
			s.Geometry.Layers = nil
			for i := range maxGroups + 1 {
				s.Geometry.Layers = append(s.Geometry.Layers, kv.Layer{KVHeads: 1, HeadDim: i + 1})
			}
			s.Parallelism = kv.Split(maxGroups+1, 1, 1)
		},
	} {
		src, dst, _ := pair(t)
		change(&dst)
		if _, err := Prepare(src, dst); !errors.Is(err, kv.ErrShape) {
			t.Errorf("%s: got %v, want kv.ErrShape", name, err)
		}
		src, _, _ = pair(t)
		change(&src)
		_, err := Prepare(src, dst)
		if _, alone := src.MemoryBytes(0); !errors.Is(err, kv.ErrShape) || !errors.Is(alone, kv.ErrShape) {
			t.Errorf("%s: as a source %v, alone %v, want kv.ErrShape", name, err, alone)
		}
	}
	src, _, _ := pair(t)
	for _, rank := range []int{-1, 2} {
		if _, err := src.MemoryBytes(rank); !errors.Is(err, kv.ErrShape) {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}

func TestMemoryBeyondCounting(t *testing.T) {
	for name, c := range map[string]struct{ headDim, blockTokens int }{
		"elements":             {1 << 20, maxBlockTokens},
		"bytes of one grid":    {1 << 10, 1 << 17},
		"bytes of all of them": {1 << 10, 1 << 15},
	} {
		src, dst, _ := pair(t)
		wide := kv.Layer{KVHeads: 4, HeadDim: c.headDim}
		windowed := wide
		windowed.WindowTokens = 1
		src.Geometry = kv.Geometry{DType: kv.Float32, Layers: []kv.Layer{wide, wide, windowed, windowed}}
		dst.Geometry = src.Geometry
		src.Parallelism.TP, dst.BlockTokens, dst.Blocks = 4, c.blockTokens, 1<<31
		dst.Parallelism.TP = 1
		_, err := Prepare(src, dst)
		if _, alone := dst.MemoryBytes(0); !errors.Is(err, kv.ErrShape) || !errors.Is(alone, kv.ErrShape) {
			t.Errorf("%s: got %v and %v, want kv.ErrShape", name, err, alone)
		}
		dst.Blocks = 1 << 11
		if _, err := Prepare(src, dst); err != nil && name != "elements" {
			t.Errorf("%s: fewer blocks: %v", name, err)
		}
	}
}

// Every pair of ranks costs something, so there is a limit to what two sides may
// ask for together.
func TestTooManyPairs(t *testing.T) {
	src, dst, _ := pair(t)
	src.Parallelism, dst.Parallelism = kv.Split(4, 1, 1), kv.Split(4, 1, 1)
	src.Parallelism.CP, dst.Parallelism.CP = 1024, 1024
	if _, err := Prepare(src, dst); !errors.Is(err, kv.ErrShape) {
		t.Errorf("got %v", err)
	}
}

func TestRequestsThatDoNotFit(t *testing.T) {
	src, dst, _ := pair(t)
	shape, err := Prepare(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Request)
		says   string
	}{
		"before the first token":  {func(r *Request) { r.Tokens.Start = -1 }, "tokens [-1,100) of a context of 100"},
		"backwards":               {func(r *Request) { r.Tokens = kv.TokenRange{Start: 50, End: 20} }, "tokens [50,20)"},
		"beyond the context":      {func(r *Request) { r.ContextTokens = 50 }, "of a context of 50"},
		"beyond counting":         {func(r *Request) { r.ContextTokens = math.MaxInt }, "of a context of 9223372036854775807"},
		"no table":                {func(r *Request) { r.Src.Tables = nil }, "source: reshard: the request does not fit: 0 block tables for 1 groups"},
		"a table too many":        {func(r *Request) { r.Dst.Tables = append(r.Dst.Tables, nil) }, "destination: reshard: the request does not fit: 2 block tables"},
		"a table too short":       {func(r *Request) { r.Src = inLine(6) }, "source: reshard: the request does not fit: tokens [0,100) need 7 blocks, the block table has 6"},
		"a block beyond memory":   {func(r *Request) { r.Dst.Tables[0][3] = 8 }, "destination: reshard: the request does not fit: the block table names block 8, a rank's memory has 8"},
		"a block twice":           {func(r *Request) { r.Dst.Tables[0][3] = 1 }, "destination: reshard: the request does not fit: the block table names block 1 twice"},
		"a source block twice":    {func(r *Request) { r.Src.Tables[0][3] = 1 }, "source: reshard: the request does not fit: the block table names block 1 twice"},
		"a group that is not":     {func(r *Request) { r.Dst.DP = 1 }, "destination: reshard: the request does not fit: attention-DP group 1 of 1"},
		"a group that can not be": {func(r *Request) { r.Src.DP = -1 }, "source: reshard: the request does not fit: attention-DP group -1 of 1"},
	} {
		_, _, r := pair(t)
		c.change(&r)
		if _, err := shape.Plan(r); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestFewBlocksOfMany(t *testing.T) {
	src, dst, r := pair(t)
	src.Blocks, dst.Blocks = maxBlocks-1, maxBlocks-1
	shape, err := Prepare(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	r.Src.Tables[0][6] = math.MaxUint32 - 1
	if _, err := shape.Plan(r); err != nil {
		t.Error(err)
	}
	r.Src.Tables[0][2] = math.MaxUint32 - 1
	if _, err := shape.Plan(r); !errors.Is(err, ErrRequest) {
		t.Errorf("a block twice: %v", err)
	}
	r.Src.Tables[0][2] = math.MaxUint32
	if _, err := shape.Plan(r); !errors.Is(err, ErrRequest) {
		t.Errorf("a block beyond memory: %v", err)
	}
}

func TestTooManyPieces(t *testing.T) {
	src, dst, r := pair(t)
	src.BlockTokens, dst.BlockTokens = maxBlockTokens, maxBlockTokens
	dst.Parallelism.CP, dst.InterleaveTokens = 2, 1
	shape, err := Prepare(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	r.Tokens.End = 5 * maxBlockTokens
	if _, err := shape.Plan(r); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "more than 4194304 pieces") {
		t.Errorf("got %v", err)
	}
}

func TestNothingToMove(t *testing.T) {
	src, dst, r := pair(t)
	r.Tokens.Start = r.Tokens.End
	plan := mustPlan(t, src, dst, r)
	if len(plan.Flows()) != 0 || plan.Bytes() != 0 || plan.Digest() == (kv.Hash{}) {
		t.Errorf("%d flows of %d bytes, digest %v", len(plan.Flows()), plan.Bytes(), plan.Digest())
	}
}
