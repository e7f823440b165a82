package reshard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"meridian/kv"
)

// ParseSide reads how an engine cuts and keeps a model, as commands take it:
//
//	tp=4,pp=4+3,cp=1,dp=1,block=16,layout=LBHNC,packing=plain,interleave=16,dtype=bf16
//
// What is left out is 1, blocks of 16 tokens, LBHNC, plain, a block, and the
// geometry's type. The number of blocks is left to the caller.
func ParseSide(text string, g kv.Geometry) (Side, error) {
	layout, err := kv.ParseLayout("LBHNC")
	if err != nil {
		return Side{}, err
	}
	s := Side{Geometry: g, Layout: layout, BlockTokens: 16}
	var cuts, seen []string
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || slices.Contains(seen, name) {
			return Side{}, fmt.Errorf("%w: %q in %q: want NAME=VALUE, each name at most once", kv.ErrShape, part, text)
		}
		seen = append(seen, name)
		if slices.Contains([]string{"tp", "pp", "cp", "dp"}, name) {
			cuts = append(cuts, part)
		} else if err := s.set(name, value); err != nil {
			return Side{}, fmt.Errorf("%q in %q: %w", part, text, err)
		}
	}
	if len(cuts) == 0 {
		cuts = []string{"tp=1"}
	}
	s.Parallelism, err = kv.ParseParallelism(strings.Join(cuts, ","), len(g.Layers))
	return s, err
}

func (s *Side) set(name, value string) (err error) {
	switch name {
	case "block":
		s.BlockTokens, err = number(value)
	case "interleave":
		s.InterleaveTokens, err = number(value)
	case "layout":
		s.Layout, err = kv.ParseLayout(value)
	case "packing":
		s.Packing, err = kv.ParsePacking(value)
	case "dtype":
		s.Geometry.DType, err = kv.ParseDType(value)
	default:
		err = fmt.Errorf("%w: unknown name %q: there are tp, pp, cp, dp, block, layout, packing, interleave and dtype", kv.ErrShape, name)
	}
	return err
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxBlockTokens {
		return 0, fmt.Errorf("%w: %q is not a number from 1 to %d", kv.ErrShape, text, maxBlockTokens)
	}
	return n, nil
}

// BlocksFor is how many blocks a block table of so many tokens has. Context
// ranks share a table, so it is as long as the first one's.
func (s Side) BlocksFor(tokens int) int {
	t := blockCursor{turnTokens: s.turnTokens(), ranks: s.Parallelism.CP}
	return (t.before(tokens, 0) + s.BlockTokens - 1) / s.BlockTokens
}
