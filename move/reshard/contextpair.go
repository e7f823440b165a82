package reshard

import "slices"

// pattern is how a piece of a request's tokens lies within one block of the
// source and one of the destination.
type pattern struct{ srcToken, dstToken, tokens uint32 }

// blockPair is the two blocks of a piece.
type blockPair struct{ src, dst uint32 }

// pieces is all pieces of one pattern that go from one context rank to another.
type pieces struct {
	pattern
	blocks []blockPair
}

// blockRun is pieces at equal distances on both sides.
type blockRun struct {
	first            blockPair
	count            int64
	srcStep, dstStep int64 // blocks from one piece to the next
}

// maxStep is the largest distance that is taken for a regular one. Any two
// blocks are at some distance, but a run of two that lie far apart by chance
// saves nothing.
const maxStep = 256

// run returns the longest one that begins at a piece. Distances are
// positive, as those of runs are.
func (p *pieces) run(at int) blockRun {
	s := blockRun{first: p.blocks[at], count: 1}
	if at+1 == len(p.blocks) {
		return s
	}
	// A step backwards wraps around to a large one.
	srcStep, dstStep := p.blocks[at+1].src-s.first.src, p.blocks[at+1].dst-s.first.dst
	if srcStep-1 >= maxStep || dstStep-1 >= maxStep {
		return s
	}
	s.srcStep, s.dstStep = int64(srcStep), int64(dstStep)
	last := s.first
	for _, next := range p.blocks[at+1:] {
		if next.src-last.src != srcStep || next.dst-last.dst != dstStep {
			break
		}
		last = next
		s.count++
	}
	return s
}

// contextPair is the tokens that go from one context rank to another.
type contextPair struct {
	pieces    []pieces
	tokens    int64
	byPattern map[pattern]int // of pieces, once there are several
}

// of returns the pieces of a pattern.
func (l *contextPair) of(p pattern) *pieces {
	if last := len(l.pieces) - 1; last >= 0 && l.pieces[last].pattern == p {
		return &l.pieces[last]
	}
	number, known := l.byPattern[p]
	if !known {
		if l.byPattern == nil {
			l.byPattern = make(map[pattern]int)
		}
		number = len(l.pieces)
		l.byPattern[p] = number
		l.pieces = append(l.pieces, pieces{pattern: p})
	}
	return &l.pieces[number]
}

// add takes one more piece.
func (l *contextPair) add(p pattern, blocks blockPair) {
	l.tokens += int64(p.tokens)
	of := l.of(p)
	of.blocks = append(of.blocks, blocks)
}

// addWhole takes many blocks at once, all of them full on both sides: what most
// of a request is where both sides' blocks are equal.
func (l *contextPair) addWhole(blockTokens int, srcBlocks, dstBlocks []uint32) {
	l.tokens += int64(len(srcBlocks)) * int64(blockTokens)
	of := l.of(pattern{tokens: uint32(blockTokens)})
	of.blocks = slices.Grow(of.blocks, len(srcBlocks))
	for i, src := range srcBlocks {
		of.blocks = append(of.blocks, blockPair{src, dstBlocks[i]})
	}
}
