package reshard

import (
	"fmt"
	"slices"

	"meridian/kv"
)

// blockCursor walks along a request's tokens over the blocks of one side.
type blockCursor struct {
	table       []uint32
	blocks      int // in a rank's memory
	span        int // block numbers that a block takes up
	blockTokens int
	turnTokens  int // that a context rank takes in a row
	ranks       int // context ranks

	at            int // token
	rank          int // its context rank
	block, offset int // its block among those of the rank, and its place there
	left          int // tokens from here on that stay in this block and turn
}

// before is how many of the first tokens a context rank holds.
func (t *blockCursor) before(token, rank int) int {
	round := t.turnTokens * t.ranks
	return token/round*t.turnTokens + min(max(0, token%round-rank*t.turnTokens), t.turnTokens)
}

// check demands that the table has a block for every token, each in memory and
// no two on the same bytes: in a destination the second would overwrite the first.
func (t *blockCursor) check(tokens kv.TokenRange) error {
	var used interval
	for rank := range t.ranks {
		held := kv.TokenRange{Start: t.before(tokens.Start, rank), End: t.before(tokens.End, rank)}
		if first, end := held.Blocks(t.blockTokens); first < end {
			if used.len() == 0 {
				used.first = first
			}
			used = interval{min(used.first, first), max(used.end, end)}
		}
	}
	if used.end > len(t.table) {
		return fmt.Errorf("%w: tokens %v need %d blocks, the block table has %d", ErrRequest, tokens, used.end, len(t.table))
	}
	ids := t.table[used.first:used.end]
	if t.span > 1 {
		return apart(ids, uint64(t.blocks), uint64(t.span))
	}
	return distinct(ids, uint64(t.blocks))
}

// apart demands that blocks of span numbers each end within memory, and that no
// two overlap.
func apart(ids []uint32, blocks, span uint64) error {
	ids = slices.Sorted(slices.Values(ids))
	for i, id := range ids {
		switch {
		case uint64(id)+span > blocks:
			return fmt.Errorf("%w: the block table names block %d, which takes up %d numbers of the %d that a rank's memory has", ErrRequest, id, span, blocks)
		case i > 0 && uint64(id-ids[i-1]) < span:
			return fmt.Errorf("%w: the block table names blocks %d and %d, which overlap: each takes up %d numbers", ErrRequest, ids[i-1], id, span)
		}
	}
	return nil
}

// distinct demands that all numbers are below a limit and none is there twice.
func distinct(ids []uint32, limit uint64) error {
	if words := limit/64 + 1; words <= 64*uint64(len(ids)) {
		seen := make([]uint64, words)
		for _, id := range ids {
			bit := uint64(1) << (id % 64)
			if uint64(id) >= limit {
				return absent(id, limit)
			}
			if seen[id/64]&bit != 0 {
				return twice(id)
			}
			seen[id/64] |= bit
		}
		return nil
	}
	// Few blocks of many: a bit for each would take too much.
	ids = slices.Sorted(slices.Values(ids))
	for i, id := range ids {
		if uint64(id) >= limit {
			return absent(id, limit)
		}
		if i > 0 && ids[i-1] == id {
			return twice(id)
		}
	}
	return nil
}

func absent(id uint32, blocks uint64) error {
	return fmt.Errorf("%w: the block table names block %d, a rank's memory has %d", ErrRequest, id, blocks)
}

func twice(id uint32) error {
	return fmt.Errorf("%w: the block table names block %d twice", ErrRequest, id)
}

// piece is the most tokens that lie together in a block and a turn.
func (t *blockCursor) piece() int {
	if t.ranks == 1 {
		return t.blockTokens
	}
	return min(t.blockTokens, t.turnTokens)
}

// seek finds token at, wherever it is.
func (t *blockCursor) seek(at int) {
	t.at, t.rank = at, at/t.turnTokens%t.ranks
	local := t.before(at, t.rank)
	t.block, t.offset = local/t.blockTokens, local%t.blockTokens
	t.left = t.blockTokens - t.offset
	if t.ranks > 1 {
		t.left = min(t.left, t.turnTokens-at%t.turnTokens)
	}
}

// advance goes on by so many tokens, at most left.
func (t *blockCursor) advance(tokens int) {
	switch {
	case tokens < t.left:
		t.at, t.offset, t.left = t.at+tokens, t.offset+tokens, t.left-tokens
	case t.ranks == 1:
		t.at, t.block, t.offset, t.left = t.at+tokens, t.block+1, 0, t.blockTokens
	default:
		t.seek(t.at + tokens)
	}
}

// cut walks both sides' blocks at once and returns the tokens that go from
// context rank i of the source to k of the destination as pair i·CP + k.
func cut(tokens kv.TokenRange, src, dst *blockCursor) ([]contextPair, error) {
	pairs := make([]contextPair, src.ranks*dst.ranks)
	if tokens.Empty() {
		return pairs, nil
	}
	if err := src.check(tokens); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := dst.check(tokens); err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	aligned := len(pairs) == 1 && src.blockTokens == dst.blockTokens
	src.seek(tokens.Start)
	dst.seek(tokens.Start)
	for src.at < tokens.End {
		if aligned && src.offset == 0 && tokens.End-src.at >= src.blockTokens {
			blocks := (tokens.End - src.at) / src.blockTokens
			pairs[0].addWhole(src.blockTokens, src.table[src.block:src.block+blocks], dst.table[dst.block:dst.block+blocks])
			src.seek(src.at + blocks*src.blockTokens)
			dst.seek(src.at)
			continue
		}
		n := min(src.left, dst.left, tokens.End-src.at)
		where := pattern{uint32(src.offset), uint32(dst.offset), uint32(n)}
		pairs[src.rank*dst.ranks+dst.rank].add(where, blockPair{src.table[src.block], dst.table[dst.block]})
		src.advance(n)
		dst.advance(n)
	}
	return pairs, nil
}
