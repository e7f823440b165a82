package governor

import (
	"math"
	"math/bits"

	"meridian/decide/policy"
)

// Work is what a step computed, as far as its time depends on it.
type Work struct {
	Tokens, Sequences int32
	// Context is how many tokens those who computed one attended to, Pairs how many
	// pairs of tokens attended to each other in parts of prompts.
	Context, Pairs int64
}

// Add counts a sequence in that had so many tokens and computed more.
func (w *Work) Add(length, tokens int32) {
	w.Sequences++
	w.Tokens += tokens
	l, t := int64(length), int64(tokens)
	if tokens == 1 {
		w.Context += l + 1
		return
	}
	w.Pairs += t*l + t*(t+1)/2
}

// curve is what a step takes beside attention, by how many tokens it computes:
// points that were measured, joined by straight lines. Points are an eighth of an
// octave apart. What attention takes is told from it by steps of as many tokens
// that attend to more.
type curve struct {
	points         [curvePoints]point
	context, pairs slope
}

const (
	maxCurveTokens = 1 << 20
	curvePoints    = 18 * 8
	// settled is how many steps make a point, slowly how many a slope.
	settled, slowly = 64, 1024
	// A step counts as at most a quarter longer or shorter than was expected: one
	// that something held up changes little.
	surprise = 0.25
	// From so many steps on a point counts, and is known.
	counts, known = 3, 8
	// longest is more than any step takes.
	longest = 60_000 * policy.Millisecond
)

// point is the mean of steps of about as many tokens.
type point struct{ steps, tokens, took, context, pairs float64 }

// slope is a regression through the points' means: y = value·x. Where x hardly
// differs, of all that it is a part of, nothing is learnt, and nothing forgotten.
type slope struct{ xx, xy, value float64 }

func (s *slope) learn(x, of, y, weight float64) {
	const keep, hardly = 1 - 1.0/slowly, 1.0 / 64
	if math.Abs(x) <= hardly*of {
		return
	}
	s.xx, s.xy = keep*s.xx+weight*x*x, keep*s.xy+weight*x*y
	s.value = max(0, s.xy/s.xx)
}

// pointOf is which point steps of so many tokens belong to.
func pointOf(tokens int32) int {
	if tokens < 8 {
		return int(tokens)
	}
	octave := bits.Len32(uint32(tokens)) - 4
	return octave*8 + int(tokens>>octave)
}

// possible says whether this can have been computed in that time.
func (w *Work) possible(took policy.Instant) bool {
	return took > 0 && took <= longest && w.Sequences > 0 && w.Tokens >= w.Sequences && w.Tokens < maxCurveTokens && w.Context >= 0 && w.Pairs >= 0
}

// learn takes what a step took.
func (c *curve) learn(took policy.Instant, w *Work) {
	p := &c.points[pointOf(w.Tokens)]
	ns, context, pairs := float64(took), float64(w.Context), float64(w.Pairs)
	// Who computes more tokens attends to more: what is learnt of attention is
	// learnt from what is more than that, else it would be held for its doing.
	longer := float64(w.Tokens) / max(p.tokens, 1)
	x, more := context-p.context*longer, pairs-p.pairs*longer*longer
	expected := max(0, p.took+c.context.value*x+c.pairs.value*more)
	limit := surprise * expected
	if p.steps == 0 || p.steps < known && ns < expected-limit { // there was none, or those before were held up
		*p = point{steps: 1, tokens: float64(w.Tokens), took: ns, context: context, pairs: pairs}
		return
	}
	off := min(max(ns-expected, -limit), limit)
	weight := 1 / (p.took * p.took)
	if w.Pairs == 0 {
		c.context.learn(x, context, off+c.context.value*x, weight)
	} else {
		c.pairs.learn(more, pairs, off+c.pairs.value*more, weight)
	}
	p.steps = min(p.steps+1, settled)
	share := 1 / p.steps
	p.took += share * (expected + off - p.took)
	p.tokens += share * (float64(w.Tokens) - p.tokens)
	p.context += share * (context - p.context)
	p.pairs += share * (pairs - p.pairs)
}

// level is what steps of a point take beside attention.
func (c *curve) level(p *point) float64 {
	return p.took - c.context.value*p.context - c.pairs.value*p.pairs
}

// spot is a point of the curve as it is read: more tokens take no less.
type spot struct{ tokens, ns float64 }

// read appends the curve. Where more tokens were computed in less time, that is
// what fewer take at most.
func (c *curve) read(spots []spot) []spot {
	for i := range c.points {
		p := &c.points[i]
		if level := c.level(p); p.steps >= counts && level > 0 {
			spots = append(spots, spot{p.tokens, level})
		}
	}
	for i := len(spots) - 2; i >= 0; i-- {
		spots[i].ns = min(spots[i].ns, spots[i+1].ns)
	}
	return spots
}

// price is what a token takes where tokens are what a step takes its time for, in
// the upper half of the curve; 0 if it is not known.
func price(spots []spot) float64 {
	if len(spots) < 2 {
		return 0
	}
	last := spots[len(spots)-1]
	i := len(spots) - 2
	for i > 0 && spots[i].tokens > last.tokens/2 {
		i--
	}
	return (last.ns - spots[i].ns) / (last.tokens - spots[i].tokens)
}

// free is how many tokens more than these a step may compute and take a tenth
// longer, beside attention. It is 0 while no step has been that long: who is not
// held back finds out. It is 0, too, if they cost more than a quarter of what
// tokens cost, as where halves of layers are summed up: then there is no free part.
func free(spots []spot, tokens float64) int32 {
	if len(spots) < 2 || tokens > spots[len(spots)-1].tokens {
		return 0
	}
	i := 0
	for spots[i].tokens < tokens && i < len(spots)-1 {
		i++
	}
	base := spots[i].ns
	if i > 0 {
		base = between(spots[i-1].tokens, spots[i-1].ns, spots[i].tokens, spots[i].ns, tokens)
	}
	bound := base * 1.1
	for ; i < len(spots) && spots[i].ns <= bound; i++ {
	}
	if i == len(spots) {
		return 0
	}
	a := spot{tokens, base}
	if i > 0 && spots[i-1].tokens > tokens {
		a = spots[i-1]
	}
	more := between(a.ns, a.tokens, spots[i].ns, spots[i].tokens, bound) - tokens
	if 4*(bound-base) > more*price(spots) {
		return 0
	}
	return int32(more)
}

// between is the y at x on the line through two points.
func between(x0, y0, x1, y1, x float64) float64 { return y0 + (y1-y0)*(x-x0)/(x1-x0) }
