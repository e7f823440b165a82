package kv

import "math"

// Instant is a moment, or a span, in microseconds by the clock of the shell that
// runs a machine. Only differences mean anything; the clock must not go back, and
// need not agree with any other.
type Instant int64

// Spans of time.
const (
	Millisecond Instant = 1000
	Second              = 1000 * Millisecond
	Minute              = 60 * Second
)

// Never comes after every other instant.
const Never Instant = math.MaxInt64
