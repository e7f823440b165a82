package entropy

import "math"

// Window is how many tokens RPDI calls the last ones, as published.
const Window = 512

// mostMissed is the most that a token whose entropy is not known can have: no vocabulary
// has 2²⁴ tokens.
const mostMissed = 24 * math.Ln2

// RPDI is the Reasoning Path Deviation Index (arXiv:2603.14251): the mean entropy
// of the last [Window] tokens over the mean of all. A chain that loses its way
// becomes more undecided than it was. The index needs the entropy of every token; that
// it exceeds a threshold is certain without some of them. The zero RPDI has seen nothing.
type RPDI struct {
	last   [Window]float64 // token i is at i mod Window; 0 where it is missing
	local  float64         // the sum of last
	global float64         // the sum of all that are known
	tokens int
	missed int // of them
}

// Add takes the entropy of the next token.
func (r *RPDI) Add(nats float64) {
	r.push(nats)
	r.global += nats
}

func (r *RPDI) push(nats float64) {
	at := r.tokens % Window
	r.local += nats - r.last[at]
	r.last[at] = nats
	r.tokens++
	if at == Window-1 {
		// What subtractions left behind goes away before it grows.
		r.local = 0
		for _, v := range r.last {
			r.local += v
		}
	}
}

// Miss says that the entropies of so many tokens are not known. Neither mean is that of
// the chain any more, so the index is absent from here on.
func (r *RPDI) Miss(tokens int) {
	for range min(tokens, Window) {
		r.push(0)
	}
	r.tokens += max(0, tokens-Window)
	r.missed += tokens
}

// Exceeds reports whether the index is more than a threshold, whatever the missing tokens
// had: among the last ones they count as certain, and among all as undecided as can be. A
// few of them, as where measurements came late, change little; of a chain whose beginning
// is not known it says no for long.
func (r *RPDI) Exceeds(threshold float64) bool {
	most := r.global + float64(r.missed)*mostMissed
	return r.tokens >= Window && most > 0 && r.local/Window/(most/float64(r.tokens)) > threshold
}
