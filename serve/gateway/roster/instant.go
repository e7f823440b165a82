package roster

import "time"

// began is before all that a roster is told of.
var began = time.Now().Add(-time.Hour)

// Instant is a time as placement has it, in ns. However the wall clock is set meanwhile, what
// lies between two of them is what has passed.
func Instant(t time.Time) int64 { return int64(t.Sub(began)) }
