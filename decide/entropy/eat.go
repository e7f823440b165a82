package entropy

import "math"

// EAT is Entropy After </Think> (arXiv:2509.26522): the context is forked, the end
// marker appended, and the entropy of the one next token taken. Its moving mean m
// and variance v, from the values x of the forks:
//
//	m₀ = x₀, mₙ = α·xₙ + (1-α)·mₙ₋₁
//	v₀ = 0,  vₙ = α·(xₙ-mₙ)² + (1-α)·vₙ₋₁
//
// The answer has settled when v falls below a threshold. The first 4/α values
// only warm it up. The zero EAT has seen nothing.
type EAT struct {
	// Mean and Variance are the moving ones: nats and nats².
	Mean, Variance float64
	// Values is how many there were; without any, the rest means nothing.
	Values int
}

// Add takes the next value. alpha is the weight of the newest.
func (e *EAT) Add(nats, alpha float64) {
	if e.Values == 0 {
		e.Mean = nats
	} else {
		e.Mean = alpha*nats + (1-alpha)*e.Mean
		deviation := nats - e.Mean
		e.Variance = alpha*deviation*deviation + (1-alpha)*e.Variance
	}
	e.Values++
}

// Warm reports whether the variance may be believed: 4/alpha values came before
// the last one.
func (e *EAT) Warm(alpha float64) bool { return e.Values > WarmUp(alpha) }

// MinAlpha is the least weight: with less, an EAT would warm up for longer than
// any model thinks.
const MinAlpha = 0.001

// WarmUp is how many values only warm an EAT up.
func WarmUp(alpha float64) int { return int(math.Ceil(4 / max(alpha, MinAlpha))) }
