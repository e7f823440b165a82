package admission

import "meridian/kv"

// Breaker leaves alone what keeps failing: after some failures in a row nothing is tried
// for a while, then one call tries. The zero value is ready.
type Breaker struct {
	failures int
	until    kv.Instant // nothing is tried before; 0: everything is
	trying   kv.Instant // when the one that tries began; 0: none does
}

const (
	failuresInARow = 4
	leftAlone      = 5 * kv.Second
	// tryPatience is how long the one that tries is waited for: it may have ended
	// without a word.
	tryPatience = 30 * kv.Second
)

// Allows reports whether a call may be made. Its end is told by Ended.
func (b *Breaker) Allows(now kv.Instant) bool {
	switch {
	case b.until == 0:
		return true
	case now < b.until || b.trying != 0 && now < b.trying+tryPatience:
		return false
	}
	b.trying = max(now, 1)
	return true
}

// Ended says how a call went that was allowed.
func (b *Breaker) Ended(now kv.Instant, ok bool) {
	if ok {
		*b = Breaker{}
		return
	}
	b.trying = 0
	if b.failures++; b.failures >= failuresInARow {
		b.until = now + leftAlone
	}
}

// Left says that a call that was allowed ended without an outcome: its caller left.
func (b *Breaker) Left() { b.trying = 0 }

// Down reports whether it failed, and has not been seen to work since.
func (b *Breaker) Down() bool { return b.until != 0 }

// Rests reports whether no call would be allowed: who would only ask whether to call
// must not be told so for ever, or no caller tries.
func (b *Breaker) Rests(now kv.Instant) bool { return now < b.until }
