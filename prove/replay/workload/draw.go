package workload

import (
	"math"
	"math/rand/v2"
	"time"
)

// What is drawn from a seed has a stream of its own, so that a change to one
// does not move the others.
const (
	streamArrivals = iota + 1
	streamLengths
	streamConvergence
	streamParts
)

// stream returns the numbers that seed gives for one purpose, of one client in
// one window where there are several: what an hour holds does not depend on
// which hours were drawn before it.
func stream(seed uint64, purpose, client, window int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(purpose)<<48|uint64(uint16(client))<<32|uint64(uint32(window))))
}

// gamma draws from the Gamma distribution with mean 1 times shape, by Marsaglia
// and Tsang.
func gamma(r *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(1-r.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		u := 1 - r.Float64()
		if math.Log(u) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return boost * d * v
		}
	}
}

// weibull draws from the Weibull distribution with scale 1.
func weibull(r *rand.Rand, shape float64) float64 { return math.Pow(r.ExpFloat64(), 1/shape) }

// seconds is a time since the beginning, in whole microseconds: what a clock
// would have recorded, and what a file can hold.
func seconds(s float64) time.Duration { return time.Duration(s*1e6) * time.Microsecond }
