package handoff

import "meridian/kv"

// Instant is a moment by the clock of the shell that runs the machines. None leaves
// the process: messages carry what remains, in milliseconds.
type Instant = kv.Instant

// Spans of time, and what comes after every instant.
const (
	Millisecond = kv.Millisecond
	Second      = kv.Second
	Minute      = kv.Minute
	Never       = kv.Never
)

// MaxSpan bounds every span of time that another process names. It is longer
// than anything lasts, and short enough that neither a sum of instants nor the
// same span in nanoseconds overflows.
const MaxSpan = 365 * 24 * 60 * Minute

// Span is so many milliseconds that another process named, at most MaxSpan.
func Span(ms uint64) Instant {
	return Instant(min(ms, uint64(MaxSpan/Millisecond))) * Millisecond
}

// after is now and so many milliseconds that a message says remain.
func after(now Instant, remainingMs uint64) Instant { return now + Span(remainingMs) }

// until is how many milliseconds remain from now, at most MaxSpan; what has
// passed has none.
func until(now, end Instant) uint64 {
	if end <= now {
		return 0
	}
	return max(1, uint64(min(end-now, MaxSpan)/Millisecond))
}

// Timing is how long things take and may take.
type Timing struct {
	// Lease is how long a source keeps blocks for a destination that it does not hear
	// from; a destination is heard several times as often.
	Lease Instant
	// FollowerLease is how long a follower on another agent goes on without hearing
	// from its home.
	FollowerLease Instant
	// FirstRetry and LastRetry bound how long is waited for an answer before
	// asking again.
	FirstRetry, LastRetry Instant
	// Attempts is how often a flow is tried when a link breaks.
	Attempts int
}

// WithDefaults fills in what is zero.
func (p Timing) WithDefaults() Timing {
	def := func(v *Instant, standard Instant) {
		if *v <= 0 {
			*v = standard
		}
	}
	def(&p.Lease, 30*Second)
	def(&p.FollowerLease, 10*Second)
	def(&p.FirstRetry, 50*Millisecond)
	def(&p.LastRetry, Second)
	if p.Attempts <= 0 {
		p.Attempts = 3
	}
	return p
}

func (p Timing) beat() Instant { return p.Lease / 6 }
