package transfer

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Tokens is a number of tokens, kept as it was typed.
type Tokens struct {
	Count int
	Text  string
}

func (t Tokens) String() string { return t.Text }

const maxTokens = 1 << 24

// UnmarshalText reads a number; 8k means 8 × 1024.
func (t *Tokens) UnmarshalText(text []byte) error {
	digits, unit := string(text), 1
	if thousands, found := strings.CutSuffix(strings.ToLower(digits), "k"); found {
		digits, unit = thousands, 1024
	}
	count, err := strconv.Atoi(digits)
	if err != nil || count < 1 || count > maxTokens/unit {
		return fmt.Errorf("%q is not a number of tokens up to %d; write it like 1000 or 8k", text, maxTokens)
	}
	*t = Tokens{Count: count * unit, Text: string(text)}
	return nil
}

// Errand is what one row hands over: so many requests of so many tokens, of the
// first layers of a model, from one cut to another. Both processes come to the
// same block tables, prompts and contents from it.
type Errand struct {
	Model      string `json:"model"`
	Layers     int    `json:"layers"`
	Tokens     int    `json:"tokens"`
	Concurrent int    `json:"concurrent"`
	From       string `json:"from"`
	To         string `json:"to"`
}

func (e Errand) String() string {
	return fmt.Sprintf("%s, %d × %d tokens of %d layers", e.Model, e.Concurrent, e.Tokens, e.Layers)
}

// of is the engine of one side: the posting side decodes, the serving one holds
// the prompt's cache.
func (e Errand) of(which side) (reshard.Side, error) {
	g, err := kv.ParseGeometry(e.Model)
	if err != nil {
		return reshard.Side{}, err
	}
	g.Layers = g.Layers[:min(e.Layers, len(g.Layers))]
	text := e.From
	if which == posting {
		text = e.To
	}
	s, err := reshard.ParseSide(text, g)
	if err != nil {
		return s, err
	}
	s.Blocks = e.Concurrent * s.BlocksFor(e.Tokens)
	return s, s.Validate()
}

// memoryBytes is what all ranks of an engine need together.
func memoryBytes(s reshard.Side) (total uint64, err error) {
	for rank := range s.Parallelism.Ranks() {
		bytes, err := s.MemoryBytes(rank)
		if err != nil {
			return 0, err
		}
		total += uint64(bytes)
	}
	return total, nil
}

// fits reports whether neither side needs more than limit.
func (e Errand) fits(limit uint64) (bool, error) {
	for _, which := range []side{posting, serving} {
		s, err := e.of(which)
		if err != nil {
			return false, err
		}
		need, err := memoryBytes(s)
		if err != nil || need > limit {
			return false, err
		}
	}
	return true, nil
}

// sizedDown leaves out as few layers as it must for both sides to fit into
// memory, and where one layer for each pipeline stage is still too much, takes
// half of the tokens until it is not.
func (e Errand) sizedDown(limit uint64) (Errand, error) {
	least := 1
	for _, which := range []side{posting, serving} {
		s, err := e.of(which)
		if err != nil {
			return e, err
		}
		least = max(least, len(s.Parallelism.Stages))
	}
	for small := e; small.Tokens >= 1; small.Tokens /= 2 {
		for small.Layers = e.Layers; small.Layers >= least; small.Layers-- {
			fits, err := small.fits(limit)
			if err != nil {
				return e, fmt.Errorf("with %d of %d layers: %w", small.Layers, e.Layers, err)
			}
			if fits {
				return small, nil
			}
		}
	}
	return e, fmt.Errorf("not even one token each fits into %d bytes", limit)
}

// check refuses what the contents of cannot be placed and compared apart from
// the planner.
func (e Errand) check() error {
	for _, which := range []side{posting, serving} {
		s, err := e.of(which)
		if err != nil {
			return err
		}
		layer := s.Geometry.Layers[0]
		switch axes := s.Layout.Axes(); {
		case len(s.Geometry.Groups()) != 1 || layer.IndexBytes != 0 || layer.WindowTokens != 0:
			return fmt.Errorf("%s has layers of several kinds, a window or an indexer: measure a model whose layers are alike", e.Model)
		case s.Parallelism.CP != 1 || s.Parallelism.DP != 1:
			return fmt.Errorf("%v: only tp and pp are measured", s.Parallelism)
		case !s.Packing.Plain() || axes[len(axes)-1] != byte(kv.ElementAxis):
			return fmt.Errorf("layout %v, packing %v: only plain packings with whole vectors are measured", s.Layout, s.Packing)
		case layer.HeadDim*s.Geometry.DType.Bytes()%wordBytes != 0:
			return fmt.Errorf("vectors of %d × %v are not a multiple of %d bytes", layer.HeadDim, s.Geometry.DType, wordBytes)
		}
	}
	return nil
}

// tables are where the requests lie in an engine: all of its blocks, in an order
// of its own on either side.
func (e Errand) tables(s reshard.Side, which side) [][]uint32 {
	order := rand.New(rand.NewPCG(uint64(which), uint64(s.Blocks))).Perm(s.Blocks)
	each := s.BlocksFor(e.Tokens)
	tables := make([][]uint32, e.Concurrent)
	for i := range tables {
		for _, block := range order[i*each : (i+1)*each] {
			tables[i] = append(tables[i], uint32(block))
		}
	}
	return tables
}

func holding(table []uint32) reshard.Holding { return reshard.Holding{Tables: [][]uint32{table}} }

// prompt is what a request's cache is of.
func (e Errand) prompt(request int) handoff.Content {
	c := handoff.Content{Scope: kv.Scope{Model: e.Model}, Tokens: make([]uint32, e.Tokens)}
	for i := range c.Tokens {
		c.Tokens[i] = uint32(request + i)
	}
	return c
}

// load is how many bytes the errand moves, and of how many a block of the source
// consists in one layer of one rank.
func (e Errand) load() (bytes, block uint64, err error) {
	src, err := e.of(serving)
	if err != nil {
		return 0, 0, err
	}
	dst, err := e.of(posting)
	if err != nil {
		return 0, 0, err
	}
	shape, err := reshard.Prepare(src, dst)
	if err != nil {
		return 0, 0, err
	}
	plan, err := shape.Plan(reshard.Request{
		Tokens: kv.TokenRange{End: e.Tokens}, Src: holding(e.tables(src, serving)[0]), Dst: holding(e.tables(dst, posting)[0]),
	})
	if err != nil {
		return 0, 0, err
	}
	layer := src.Geometry.Layers[0]
	first, end := src.Parallelism.Heads(0, layer.KVHeads)
	block = uint64(layer.Factor() * (end - first) * src.BlockTokens * layer.HeadDim * src.Geometry.DType.Bytes())
	return uint64(e.Concurrent) * uint64(plan.Bytes()), block, nil
}
