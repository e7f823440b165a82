package workload

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrOptions is the error of a name or of options that make no workload.
var ErrOptions = errors.New("workload: bad options")

// Options choose a part of a workload and how dense it is.
type Options struct {
	// DataDir holds the public traces; without it, the small generated samples
	// that ship with this package stand in, and Info says so.
	DataDir string
	// Seed makes everything that is drawn.
	Seed uint64
	// Scale multiplies the rate of arrivals; 0 is 1. Recorded arrivals come
	// closer together, or further apart; drawn ones are drawn at that rate.
	Scale float64
	// Start and Duration choose a window of the workload's own time: of the
	// recorded day, say, before Scale. Duration 0 is all that follows.
	Start, Duration time.Duration
	// Synthetic has the knobs of the synthetic mix.
	Synthetic Mix
}

// Info says what a workload is.
type Info struct {
	// Name is what it was opened by; Label a line for people.
	Name, Label string
	// Licence is that of the data, empty where there is none.
	Licence string
	// Synthetic is true where lengths or arrivals were made up, or come from
	// more than one source; Sample where the generated stand-in was used.
	Synthetic, Sample bool
	// Duration is that of the chosen window, after scaling.
	Duration time.Duration
	// Rate is the mean number of requests a second in that window, after
	// scaling: exact where requests are recorded, expected where drawn.
	Rate float64
	// MeanPrompt, MeanThink and MeanOutput are tokens a request.
	MeanPrompt, MeanThink, MeanOutput float64
	// Tenants is how many there are: every Tenant is below it.
	Tenants int32
}

// Open opens a workload by its name.
func Open(name string, o Options) (Source, Info, error) {
	if o.Scale == 0 {
		o.Scale = 1
	}
	switch {
	case !(o.Scale > 0) || math.IsInf(o.Scale, 0):
		return nil, Info{}, fmt.Errorf("%w: scale %g is not a positive number", ErrOptions, o.Scale)
	case o.Start < 0 || o.Duration < 0:
		return nil, Info{}, fmt.Errorf("%w: the window starts at %v and lasts %v; neither may be negative", ErrOptions, o.Start, o.Duration)
	}
	switch name {
	case "synthetic":
		return openSynthetic(o)
	}
	return nil, Info{}, fmt.Errorf("%w: there is no workload %q; there is: synthetic", ErrOptions, name)
}
