package owner

// Instant is a reading of the owner's clock, or a span of it, in microseconds.
// It need not agree with any other clock; it must not go back.
type Instant int64

// Spans of time.
const (
	Second Instant = 1e6
)
