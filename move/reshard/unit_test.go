package reshard

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// placed is a side whose blocks, of two components, lie at places of one arena.
func placed(t testing.TB) Side {
	g := kv.Geometry{DType: kv.Int8, Layers: []kv.Layer{{KVHeads: 1, HeadDim: 8}, {KVHeads: 2, HeadDim: 8}}}
	return Side{
		Geometry: g, Parallelism: kv.Split(2, 1, 1), Layout: layout(t, "BLHNC"), BlockTokens: 4, Blocks: 10,
		BlockStride: 64, Offsets: []int64{0, 64}, // of 64 and 128 bytes
	}
}

func TestImpossiblePlaces(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Side)
		says   string
	}{
		"a stride below zero":   {func(s *Side) { s.BlockStride = -1 }, "-1 bytes from block to block"},
		"offsets and no stride": {func(s *Side) { s.BlockStride = 0 }, "0 bytes from block to block with 2 offsets"},
		"a huge stride":         {func(s *Side) { s.BlockStride = maxStride + 1 }, "must be 1…"},
		"too few offsets":       {func(s *Side) { s.Offsets = s.Offsets[:1] }, "1 offsets within a block of 2 components"},
		"too many offsets":      {func(s *Side) { s.Offsets = append(s.Offsets, 1<<20) }, "3 offsets within a block of 2 components"},
		"an offset below zero":  {func(s *Side) { s.Offsets[0] = -1 }, "component 0 at byte -1"},
		"an offset far away":    {func(s *Side) { s.Offsets[1] = maxOffset + 1 }, "component 1 at byte"},
		"an offset beyond":      {func(s *Side) { s.Offsets[1] = 640 - 127 }, "component 1 has 128 bytes of a block at 513, a rank's memory has 640"},
		"components that meet":  {func(s *Side) { s.Offsets[1] = 63 }, "components 0 and 1 of a block overlap: 64 bytes at 0, the other at 63"},
		"…in the other order":   {func(s *Side) { s.Offsets[0] = 191 }, "components 1 and 0 of a block overlap: 128 bytes at 64, the other at 191"},
		"blocks not outermost":  {func(s *Side) { s.Layout = layout(t, "LBHNC") }, "blocks must be the outermost axis"},
		"more than can be":      {func(s *Side) { s.Blocks, s.BlockStride = maxBlocks, maxStride }, "take more than 2^63 bytes a rank"},
		"a block beyond counting": {func(s *Side) {
			s.Geometry = kv.Uniform(2, kv.Layer{KVHeads: 1 << 14, HeadDim: 1 << 20}, kv.Float32)
			s.BlockTokens, s.Offsets = maxBlockTokens, []int64{0}
		}, "a rank's memory has 640"},
	} {
		s := placed(t)
		c.change(&s)
		_, all := s.RankBytes()
		_, one := s.MemoryBytes(0)
		for _, err := range []error{all, one} {
			if !errors.Is(err, kv.ErrShape) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want one that says %q", name, err, c.says)
			}
		}
		good := placed(t)
		if _, err := Prepare(good, s); err == nil {
			t.Errorf("%s: such a side has a plan", name)
		}
	}
	if size, err := placed(t).MemoryBytes(0); size != 640 || err != nil {
		t.Errorf("a memory of %d bytes, %v", size, err)
	}
}

// A block of three numbers takes up three of the ten.
func TestPlacesThatDoNotFit(t *testing.T) {
	side := placed(t)
	shape, err := Prepare(side, side)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		blocks []uint32
		says   string // nothing: it fits
	}{
		"side by side":         {[]uint32{0, 3, 6}, ""},
		"backwards":            {[]uint32{7, 4, 0}, ""},
		"to the last byte":     {[]uint32{0, 7, 3}, ""},
		"beyond the last byte": {[]uint32{0, 8, 3}, "names block 8, which takes up 3 numbers of the 10"},
		"far beyond":           {[]uint32{0, 1<<32 - 1, 3}, "names block 4294967295"},
		"the same":             {[]uint32{0, 3, 3}, "blocks 3 and 3, which overlap"},
		"one on the other":     {[]uint32{5, 0, 7}, "blocks 5 and 7, which overlap: each takes up 3 numbers"},
	} {
		for at, as := range []string{"source", "destination"} {
			r := Request{Tokens: kv.TokenRange{End: 12}, Src: Holding{Tables: [][]uint32{{0, 3, 6}}}, Dst: Holding{Tables: [][]uint32{{0, 3, 6}}}}
			[]*Holding{&r.Src, &r.Dst}[at].Tables = [][]uint32{c.blocks}
			_, err := shape.Plan(r)
			if fits := c.says == ""; fits != (err == nil) || !fits && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), as) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s as %s: got %v, want one that says %q", name, as, err, c.says)
			}
		}
	}
	r := Request{Tokens: kv.TokenRange{End: 4}, Src: Holding{Tables: [][]uint32{{0}, {3}}}, Dst: Holding{Tables: [][]uint32{{0}}}}
	if _, err := shape.Plan(r); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "2 block tables where a block holds all groups") {
		t.Errorf("a table for each group: got %v", err)
	}
	r.Src.Tables = [][]uint32{{9, 0}} // what holds no token to move may be anything
	r.Dst.Tables, r.Tokens = [][]uint32{{9, 0}}, kv.TokenRange{Start: 4, End: 8}
	if _, err := shape.Plan(r); err != nil {
		t.Error(err)
	}
}

func TestUnits(t *testing.T) {
	geometry := kv.Geometry{DType: kv.BFloat16, Layers: []kv.Layer{
		{KVHeads: 1, HeadDim: 3}, {KVHeads: 2, HeadDim: 5, IndexBytes: 7}, {KVHeads: 1, HeadDim: 3},
	}}
	publisher := Side{Geometry: geometry, Parallelism: kv.Split(3, 2, 1), Layout: layout(t, "LBHNC"), BlockTokens: 5, Blocks: 100}
	unit, err := UnitOf(publisher, 64)
	if err != nil || unit.Tokens != 5 {
		t.Fatalf("an indexer forbids cuts: units of %d tokens, %v", unit.Tokens, err)
	}
	// 2 layers × 2 × 3 × 2 × 5 = 120, 2 × 2 × 5 × 2 × 5 = 200 from 128 on, 7 × 5 from 384 on.
	if want := []int64{0, 128, 384}; !slices.Equal(unit.side.Offsets, want) || unit.Bytes != 384+35 {
		t.Errorf("components at %v of %d bytes, want %v of 419", unit.side.Offsets, unit.Bytes, want)
	}
	publisher.Geometry = kv.Uniform(3, kv.Layer{KVHeads: 2, HeadDim: 8}, kv.BFloat16)
	unit, err = UnitOf(publisher, 64)
	if err != nil || unit.Tokens != 64 || unit.Bytes != publisher.Geometry.BytesPerToken()*64 {
		t.Fatalf("%d tokens of %d bytes, %v", unit.Tokens, unit.Bytes, err)
	}
	other := publisher
	other.Parallelism, other.Layout, other.BlockTokens, other.Blocks = kv.Split(3, 1, 3), layout(t, "SGLANG"), 16, 7
	if same, err := UnitOf(other, 64); err != nil || same.Digest() != unit.Digest() {
		t.Errorf("another engine of the model has another unit: %v", err)
	}
	side, err := unit.Side(1<<20 + 4095)
	if err != nil || side.Blocks != 256 || side.BlockStride != PlaceBytes {
		t.Errorf("%d places of %d bytes, %v", side.Blocks, side.BlockStride, err)
	}
	if _, err := unit.Side(unit.Bytes - 1); !errors.Is(err, kv.ErrShape) {
		t.Errorf("memory that holds no unit: %v", err)
	}
}

func TestDigestsOfUnitsDiffer(t *testing.T) {
	fresh := func() Side {
		return Side{
			Geometry:    kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 8}, kv.BFloat16),
			Parallelism: kv.Split(2, 1, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16, Blocks: 8,
		}
	}
	seen := make(map[kv.Hash]string)
	for name, c := range map[string]struct {
		tokens int
		change func(*Side)
	}{
		"nothing":     {64, func(*Side) {}},
		"tokens":      {32, func(*Side) {}},
		"dtype":       {64, func(s *Side) { s.Geometry.DType = kv.Float16 }},
		"heads":       {64, func(s *Side) { s.Geometry.Layers[1].KVHeads = 1 }},
		"other layer": {64, func(s *Side) { s.Geometry.Layers[0].KVHeads = 1 }},
		"layers": {64, func(s *Side) {
			s.Geometry, s.Parallelism = kv.Uniform(3, s.Geometry.Layers[0], kv.BFloat16), kv.Split(3, 1, 1)
		}},
		"packing":        {16, func(s *Side) { s.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "x"} }},
		"plain as large": {16, func(*Side) {}},
		"other packing":  {16, func(s *Side) { s.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "y"} }},
	} {
		s := fresh()
		c.change(&s)
		unit, err := UnitOf(s, c.tokens)
		if err != nil {
			t.Fatal(name, err)
		}
		if other, taken := seen[unit.Digest()]; taken {
			t.Errorf("%q and %q have one unit", name, other)
		}
		seen[unit.Digest()] = name
	}
}

func TestWhatIsNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Side)
		tokens int
		is     error
		says   string
	}{
		"a sliding window": {func(s *Side) { s.Geometry = s.Geometry.Windowed(40, 2) }, 64, kv.ErrShape, "has a sliding window of 40 tokens; caches of such models are not kept"},
		"no tokens":        {func(*Side) {}, 0, kv.ErrShape, "0 tokens in a block"},
		"heads that stay together": {
			func(s *Side) {
				s.Packing = kv.Packing{Unit: kv.WholeBlock, Name: "x"}
			}, 64, ErrIncompatible, "keeps the heads of a block together",
		},
		"a side that is none": {func(s *Side) { s.Blocks = 0 }, 64, kv.ErrShape, "0 blocks"},
		"units beyond counting": {
			func(s *Side) { s.Geometry = kv.Uniform(4, kv.Layer{KVHeads: 1 << 10, HeadDim: 1 << 20}, kv.Float32) }, maxBlockTokens, kv.ErrShape, "more than",
		},
	} {
		src, _, _ := pair(t)
		c.change(&src)
		if _, err := UnitOf(src, c.tokens); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.is, c.says)
		}
	}
}

// What one engine keeps another reads, whatever each looks like: every byte comes
// through the places of an object cache.
func TestThroughAnObjectCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		for i := range c.src.Geometry.Layers {
			c.src.Geometry.Layers[i].WindowTokens = 0
		}
		c.dst.Geometry = c.src.Geometry
		if c.src.BlockStride > 0 || c.dst.BlockStride > 0 || c.src.Packing.Unit == kv.WholeBlock {
			t.Skip()
		}
		// Without windows kinds may have become one; then there is one table.
		c.request.Src.Tables, c.request.Dst.Tables = c.request.Src.Tables[:1], c.request.Dst.Tables[:1]
		for _, s := range []*Holding{&c.request.Src, &c.request.Dst} {
			if slices.Contains(s.Tables[0], 1<<32-1) {
				t.Skip("a window had left it behind")
			}
		}
		unit, err := UnitOf(c.src, rapid.IntRange(1, 9).Draw(t, "unit"))
		if err != nil {
			t.Fatal(err)
		}
		store := unit.side
		units := store.BlocksFor(c.request.ContextTokens)
		span := int((unit.Bytes + PlaceBytes - 1) / PlaceBytes)
		kept := Holding{Tables: [][]uint32{make([]uint32, units)}}
		for i := range units { // backwards, a place between
			kept.Tables[0][i] = uint32((units - 1 - i) * (span + 1))
		}
		if store, err = unit.Side(int64(units*(span+1)) * PlaceBytes); err != nil {
			t.Fatal(err)
		}
		whole := Request{Tokens: kv.TokenRange{End: c.request.ContextTokens}, ContextTokens: c.request.ContextTokens, Turn: c.request.Turn}
		prefill := newWorld(t, c.src, c.request.Src, 0x55)
		prefill.compute(whole.ContextTokens)
		cache, decode, direct := newWorld(t, store, kept, 0xAA), newWorld(t, c.dst, c.request.Dst, 0x33), newWorld(t, c.dst, c.request.Dst, 0x33)
		whole.Src, whole.Dst = c.request.Src, kept
		move(t, copies(mustPlan(t, c.src, store, whole)), prefill, cache)
		whole.Src, whole.Dst = kept, c.request.Dst
		move(t, copies(mustPlan(t, store, c.dst, whole)), cache, decode)
		whole.Src, whole.Dst = c.request.Src, c.request.Dst
		move(t, copies(mustPlan(t, c.src, c.dst, whole)), prefill, direct)
		for rank := range decode.memory {
			if !bytes.Equal(decode.memory[rank], direct.memory[rank]) {
				t.Fatalf("rank %d differs", rank)
			}
		}
	})
}

// The digest of sides with places is of revision 2; see
// TestRulesAndRevisionChangeTogether.
func TestRulesOfPlacesAndRevisionChangeTogether(t *testing.T) {
	g := kv.Geometry{DType: kv.BFloat16, Layers: []kv.Layer{{KVHeads: 4, HeadDim: 8}, {KVHeads: 2, HeadDim: 16}, {KVHeads: 4, HeadDim: 8}}}
	engine := Side{Geometry: g, Parallelism: cutAs(t, "tp=2,pp=2+1", 3), Layout: layout(t, "LBHNC"), BlockTokens: 6, Blocks: 40}
	unit, err := UnitOf(engine, 16)
	if err != nil {
		t.Fatal(err)
	}
	store, err := unit.Side(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Tokens: kv.TokenRange{Start: 5, End: 100}, Turn: 7}
	r.Src, r.Dst = inLine(20), Holding{Tables: [][]uint32{{200, 100, 104, 108, 112, 9, 13}}}
	for name, c := range map[string]struct{ got, want string }{
		"unit": {unit.Digest().String(), "57c1b9fb264ecd66276f9b9ce842ff07fac779a59280adee348f7dc93a748691"},
		"kept": {planText(mustPlan(t, engine, store, r)), "babc4f38370a2312838d33c17f334b6f961fdb24c18c4860aa22c3ca85f11437 of 4e751a5fd4c6d1e54b2e81a7984c7a397d8837891ea60c27f17e0c6fe6a5fed1"},
		"found": {planText(mustPlan(t, store, engine, Request{
			Tokens: r.Tokens, Turn: r.Turn, Src: r.Dst, Dst: r.Src,
		})), "440c83be85805fcdfb48c36ed5db605ff7ae30bcd2c09c435cb041345f2c5dd4 of f786f150f6b483ed4ccd1ff29a956d8d579df2d0eab94bb184dd4537559cf8c9"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s\nthese lines have %s", name, c.got, c.want)
		}
	}
}

func planText(p *Plan) string { return fmt.Sprint(p.Digest(), " of ", fingerprint(p)) }
