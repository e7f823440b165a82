package workload

import (
	"math/rand/v2"
	"time"
)

// What is drawn from a seed has a stream of its own, so that a change to one
// does not move the others.
const (
	streamArrivals = iota + 1
	streamLengths
	streamConvergence
)

// stream returns the numbers that seed gives for one purpose of one client.
func stream(seed uint64, purpose, client int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(purpose)<<32|uint64(uint32(client))))
}

// seconds is a time since the beginning, in whole microseconds: what a clock
// would have recorded, and what a file can hold.
func seconds(s float64) time.Duration { return time.Duration(s*1e6) * time.Microsecond }
