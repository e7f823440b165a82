package reshard

import (
	"errors"
	"fmt"

	"meridian/kv"
)

// ErrRequest is wrapped by every error about a request that the two sides cannot
// serve: a range, a block table or a group that does not fit.
var ErrRequest = errors.New("reshard: the request does not fit")

// Request is what a plan depends on besides the two sides.
type Request struct {
	// Tokens is which tokens to move. It begins after a prefix that the
	// destination holds already.
	Tokens kv.TokenRange
	// ContextTokens is how many tokens the request has in all, so that layers
	// with a sliding window move only what can still be seen; 0 means that
	// Tokens ends there.
	ContextTokens int
	Src, Dst      Holding
	// Turn tells requests apart when copies of a head take turns. Both sides
	// derive it from the request's id.
	Turn uint64
}

// Holding is where one side keeps a request.
type Holding struct {
	// DP is the attention-DP group that serves the request.
	DP int
	// Tables is a block table for each group of layers; one alone serves all of
	// them, and is all that a side with a block stride has. Entry i is the number of the block that holds the i-th block of
	// tokens of each context rank. Entries that no token to move lies in are
	// not looked at.
	Tables [][]uint32
}

func (h Holding) table(group int) []uint32 {
	if len(h.Tables) == 1 {
		return h.Tables[0]
	}
	return h.Tables[group]
}

func (h Holding) validate(groups int, s Side) error {
	switch {
	case h.DP < 0 || h.DP >= s.Parallelism.DP:
		return fmt.Errorf("%w: attention-DP group %d of %d", ErrRequest, h.DP, s.Parallelism.DP)
	case s.BlockStride > 0 && len(h.Tables) != 1:
		// Of two tables one group's block may lie on the bytes of another's.
		return fmt.Errorf("%w: %d block tables where a block holds all groups of layers, want one", ErrRequest, len(h.Tables))
	case len(h.Tables) != 1 && len(h.Tables) != groups:
		return fmt.Errorf("%w: %d block tables for %d groups of layers, want one for each or one for all", ErrRequest, len(h.Tables), groups)
	}
	return nil
}

func (r Request) validate(s *Shape) error {
	if r.Tokens.Start < 0 || r.Tokens.End < r.Tokens.Start || r.ContextTokens < r.Tokens.End || r.ContextTokens > maxTokens {
		return fmt.Errorf("%w: tokens %v of a context of %d", ErrRequest, r.Tokens, r.ContextTokens)
	}
	if err := r.Src.validate(s.Groups(), s.src); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if err := r.Dst.validate(s.Groups(), s.dst); err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	return nil
}
