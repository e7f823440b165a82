package lifecycle

import "meridian/kv"

// promise is what may become of a cache that a decode leg was promised: it is used, or the prefill
// leg that is to offer it has failed, whichever comes first. That leg ends beside the decode leg,
// so the gateway holds a lock for the events that meet it: AskDecode, Arrived, DecodeEnded and
// PromiseLost.
type promise uint8

const (
	noPromise promise = iota
	undecided
	used
	forfeit
)

// use is false where it comes too late.
func (p *promise) use() bool {
	if *p == undecided {
		*p = used
	}
	return *p == used
}

// PromiseLost takes in that the promised prefill leg has ended and offers nothing. It is true
// where the decode leg that waits for it is to end; one whose answer has begun has all it needs.
func (l *Life) PromiseLost() (endDecode bool) {
	if l.promise != undecided {
		return false
	}
	l.promise = forfeit
	return true
}

// Beside is a prefill leg that runs beside a decode leg, as far as it is known by then.
type Beside struct {
	Runs, Over bool
	Ended      kv.Instant
	Took       kv.Instant
}

// until is how much later than the leg's end something was; never nothing, which would mean that
// it was not at all.
func (b Beside) until(then kv.Instant) kv.Instant {
	if !b.Over {
		return 1
	}
	return max(1, then-b.Ended)
}

// MayPromise tells whether the decode engine that was chosen may be asked before the prefill
// engine has answered, at which so many tokens wait. It keeps blocks meanwhile, so not where that
// takes long.
func (l *Life) MayPromise(prefill, decode Engine, waiting int64) bool {
	return prefill.redeems() && decode.redeems() && waiting+int64(l.Request.Tokens) <= int64(l.rules.PromiseTokens)
}
