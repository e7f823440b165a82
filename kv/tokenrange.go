package kv

import "fmt"

// TokenRange is the half-open range [Start, End) of token positions.
type TokenRange struct {
	Start, End int
}

// Len returns the number of tokens; a reversed range has none.
func (r TokenRange) Len() int { return max(0, r.End-r.Start) }

// Empty reports whether no token is in r.
func (r TokenRange) Empty() bool { return r.End <= r.Start }

// Intersect returns the tokens that are in both.
func (r TokenRange) Intersect(other TokenRange) TokenRange {
	both := TokenRange{Start: max(r.Start, other.Start), End: min(r.End, other.End)}
	if both.Empty() {
		return TokenRange{}
	}
	return both
}

// Blocks returns the indices [first, end) of the blocks of blockTokens tokens
// that hold any token of r. An empty range has no blocks.
func (r TokenRange) Blocks(blockTokens int) (first, end int) {
	if r.Empty() {
		return 0, 0
	}
	return r.Start / blockTokens, (r.End-1)/blockTokens + 1
}

func (r TokenRange) String() string { return fmt.Sprintf("[%d,%d)", r.Start, r.End) }
