package admission

import "meridian/kv"

// Budget is how much may be spent in a second, of requests or of bytes. What was not
// spent is good for as much again, once.
type Budget struct {
	perSecond float64
	left      float64
	last      kv.Instant
}

// NewBudget makes one; 0 a second has no bound.
func NewBudget(perSecond uint64) Budget {
	return Budget{perSecond: float64(perSecond), left: float64(perSecond)}
}

// Spend takes so much of it, or reports that there is too little. What is more than a
// whole second's is let through when a second's is there, and paid for afterwards.
func (b *Budget) Spend(now kv.Instant, amount uint64) bool {
	has := b.Has(now, amount)
	if has && b.perSecond > 0 {
		b.left -= float64(amount)
	}
	return has
}

// Has reports whether Spend would take so much.
func (b *Budget) Has(now kv.Instant, amount uint64) bool {
	if b.perSecond == 0 {
		return true
	}
	if now > b.last {
		b.left = min(b.perSecond, b.left+b.perSecond*float64(now-b.last)/float64(kv.Second))
		b.last = now
	}
	return b.left >= min(float64(amount), b.perSecond)
}
