package reshard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

// Plan is who sends what to whom for one request.
type Plan struct {
	shape  *Shape
	flows  []Flow
	digest kv.Hash
}

// Limits on what one request can cost to plan.
const (
	maxTokens = 1 << 40
	maxPieces = 1 << 22
)

// Plan plans a request. Everything in it may come from a stranger: what does not
// fit fails with ErrRequest.
func (s *Shape) Plan(r Request) (*Plan, error) {
	r.ContextTokens = cmp.Or(r.ContextTokens, r.Tokens.End)
	if err := r.validate(s); err != nil {
		return nil, err
	}
	pairs := make([][]contextPair, len(s.components))
	left := maxPieces
	for i, c := range s.components {
		var err error
		if pairs[i], err = s.cut(c, r, &left); err != nil {
			return nil, fmt.Errorf("group %d: %w", c.group, err)
		}
	}
	p := &Plan{shape: s, flows: s.gather(&r, s.assign(r, pairs))}
	p.digest = p.hash(r)
	return p, nil
}

// cut returns the pairs of one component, and takes their pieces off what is
// left.
func (s *Shape) cut(c component, r Request, left *int) ([]contextPair, error) {
	tokens := r.Tokens.Intersect(c.live(r.ContextTokens, s.src.BlockTokens))
	src := blockCursor{
		table: r.Src.table(c.group), blocks: s.src.Blocks, span: s.srcSpan, blockTokens: s.src.BlockTokens,
		turnTokens: s.src.turnTokens(), ranks: s.src.Parallelism.CP,
	}
	dst := blockCursor{
		table: r.Dst.table(c.group), blocks: s.dst.Blocks, span: s.dstSpan, blockTokens: s.dst.BlockTokens,
		turnTokens: s.dst.turnTokens(), ranks: s.dst.Parallelism.CP,
	}
	// A block that must stay whole counts as one token; both sides' blocks are
	// equal. The last one moves whole even if it is not full.
	if c.unit != kv.Element && !tokens.Empty() {
		block := s.src.BlockTokens
		if tokens.Start%block != 0 {
			return nil, fmt.Errorf("%w: %s allows no cut within a block, but token %d is inside one of %d: begin at a block's first token",
				ErrRequest, s.src.indivisible(), tokens.Start, block)
		}
		tokens.Start, tokens.End = tokens.Blocks(block)
		for _, t := range []*blockCursor{&src, &dst} {
			t.turnTokens, t.blockTokens = max(1, t.turnTokens/block), 1
		}
	}
	if *left -= tokens.Len()/src.piece() + tokens.Len()/dst.piece(); *left < 0 {
		return nil, fmt.Errorf("%w: %d tokens make more than %d pieces", ErrRequest, r.Tokens.Len(), maxPieces)
	}
	return cut(tokens, &src, &dst)
}

// live is what the component still needs of a context, from the beginning of a
// block where blocks must stay whole.
func (c component) live(contextTokens, blockTokens int) kv.TokenRange {
	live := c.layer.LiveTokens(contextTokens)
	if c.unit != kv.Element {
		live.Start -= live.Start % blockTokens
	}
	return live
}

// assignment is a part of a flow with the ranks that it goes between.
type assignment struct {
	src, dst int
	part     part
}

// assign elects the source of each need. Of the destination ranks that want
// something from the owners of a head in one context rank, the first goes to the
// first owner, the second to the second, and so on around.
func (s *Shape) assign(r Request, pairs [][]contextPair) []assignment {
	var assignments []assignment
	from, to := s.src.Parallelism, s.dst.Parallelism
	for i := range s.needs {
		n := &s.needs[i]
		owners := uint64(n.owners)
		for srcCP := range from.CP {
			row := pairs[n.component][srcCP*to.CP : (srcCP+1)*to.CP]
			turn := r.Turn%owners + uint64(n.turn*used(row))
			for dstCP := range row {
				if row[dstCP].tokens == 0 {
					continue
				}
				elected := n.src.tensor + int(turn%owners)
				assignments = append(assignments, assignment{
					src:  from.Index(kv.Rank{PP: n.src.stage, DP: r.Src.DP, TP: elected, CP: srcCP}),
					dst:  to.Index(kv.Rank{PP: n.dst.stage, DP: r.Dst.DP, TP: n.dst.tensor, CP: dstCP}),
					part: part{n, &row[dstCP], srcCP*to.CP + dstCP, s.memories[n.src.stage][elected].grids[n.component].base},
				})
				turn++
			}
		}
	}
	return assignments
}

// used is how many pairs have tokens.
func used(pairs []contextPair) int {
	count := 0
	for i := range pairs {
		if pairs[i].tokens > 0 {
			count++
		}
	}
	return count
}

// gather makes one flow of all assignments between two ranks.
func (s *Shape) gather(r *Request, assignments []assignment) []Flow {
	slices.SortStableFunc(assignments, func(a, b assignment) int { return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst)) })
	var flows []Flow
	for _, l := range assignments {
		if last := len(flows) - 1; last < 0 || flows[last].Src != l.src || flows[last].Dst != l.dst {
			flows = append(flows, Flow{Src: l.src, Dst: l.dst, shape: s, request: r, layers: interval{0, len(s.src.Geometry.Layers)}})
		}
		last := &flows[len(flows)-1]
		last.parts = append(last.parts, l.part)
	}
	return flows
}

// hash covers both sides, everything in the request, and who sends how much to
// whom.
func (p *Plan) hash(r Request) kv.Hash {
	h := blake3.New()
	b := append(make([]byte, 0, hashedAtOnce+8), planDomain...)
	b = append(b, p.shape.digest[:]...)
	b = appendInts(b, r.Tokens.Start, r.Tokens.End, r.ContextTokens)
	b = binary.LittleEndian.AppendUint64(b, r.Turn)
	for _, holding := range []Holding{r.Src, r.Dst} {
		b = appendInts(b, holding.DP, len(holding.Tables))
		for _, table := range holding.Tables {
			b = appendInts(b, len(table))
			for _, id := range table {
				if b = binary.LittleEndian.AppendUint32(b, id); len(b) >= hashedAtOnce {
					h.Write(b)
					b = b[:0]
				}
			}
		}
	}
	h.Write(b)
	for _, f := range p.flows {
		h.Write(appendInts(b[:0], f.Src, f.Dst, int(f.Bytes())))
	}
	return kv.Hash(h.Sum(nil))
}

// hashedAtOnce is enough for the hash to use all of a processor's width.
const hashedAtOnce = 8 << 10

// Digest is of everything that the plan depends on. Two sides whose digests are
// equal move the same bytes to the same places.
func (p *Plan) Digest() kv.Hash { return p.digest }

// Flows returns everything that moves, by source rank, then destination rank.
// There is at most one flow between two ranks. The slice belongs to the plan.
func (p *Plan) Flows() []Flow { return p.flows }

// From returns what a source rank sends.
func (p *Plan) From(src int) []Flow {
	first, _ := slices.BinarySearchFunc(p.flows, src, func(f Flow, rank int) int { return cmp.Compare(f.Src, rank) })
	end, _ := slices.BinarySearchFunc(p.flows, src+1, func(f Flow, rank int) int { return cmp.Compare(f.Src, rank) })
	return p.flows[first:end]
}

// Bytes is how much moves in all.
func (p *Plan) Bytes() int64 {
	var total int64
	for _, f := range p.flows {
		total += f.Bytes()
	}
	return total
}
