package model

import (
	"fmt"
	"math"

	"meridian/engine/model/kernel"
)

// RoPE says how rotary embeddings turn a head by a token's position.
type RoPE struct {
	Theta   float64
	Scaling Scaling
	// Factor stretches the context the model was trained with.
	Factor float64
	// LowFrequency, HighFrequency and OriginalContext say which frequencies
	// Llama 3 stretches: waves that fit the original context fewer than
	// LowFrequency times, fully; more than HighFrequency times, not at all.
	LowFrequency, HighFrequency float64
	OriginalContext             int
}

// Scaling is the way a context is stretched.
type Scaling uint8

const (
	// NoScaling leaves the frequencies as they are.
	NoScaling Scaling = iota
	// LinearScaling divides every frequency by Factor.
	LinearScaling
	// Llama3Scaling divides the low ones, and blends in between.
	Llama3Scaling
)

func (r RoPE) validate() error {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch {
	case !positive(r.Theta):
		return fmt.Errorf("%w: rope theta %v", ErrConfig, r.Theta)
	case r.Scaling > Llama3Scaling:
		return fmt.Errorf("%w: rope scaling %d", ErrConfig, r.Scaling)
	case r.Scaling != NoScaling && !positive(r.Factor):
		return fmt.Errorf("%w: rope scaling by a factor of %v", ErrConfig, r.Factor)
	case r.Scaling == Llama3Scaling &&
		(!positive(r.LowFrequency) || !positive(r.HighFrequency) || r.LowFrequency >= r.HighFrequency || r.OriginalContext < 1):
		return fmt.Errorf("%w: rope scaling llama3 with low_freq_factor %v, high_freq_factor %v and original_max_position_embeddings %d",
			ErrConfig, r.LowFrequency, r.HighFrequency, r.OriginalContext)
	}
	return nil
}

// frequencies returns the angle by which one position turns each pair.
func (r RoPE) frequencies(headDim int) []float64 {
	all := make([]float64, headDim/2)
	for i := range all {
		all[i] = r.scaled(1 / kernel.Pow(r.Theta, float64(2*i)/float64(headDim)))
	}
	return all
}

func (r RoPE) scaled(frequency float64) float64 {
	if r.Scaling == NoScaling {
		return frequency
	}
	stretched := frequency / r.Factor
	if r.Scaling == LinearScaling {
		return stretched
	}
	waves := float64(r.OriginalContext) * frequency / (2 * math.Pi)
	switch {
	case waves < r.LowFrequency:
		return stretched
	case waves > r.HighFrequency:
		return frequency
	}
	smooth := (waves - r.LowFrequency) / (r.HighFrequency - r.LowFrequency)
	return float64((1-smooth)*stretched) + float64(smooth*frequency)
}

// turns is the sines and cosines of the positions seen so far: of each position,
// first the cosines of all pairs, then the sines.
type turns struct {
	frequencies []float64
	table       []float32
}

// upTo makes sure that positions below n are in the table.
func (t *turns) upTo(n int) {
	pairs := len(t.frequencies)
	if have := len(t.table) / (2 * pairs); n > have {
		n = max(n, min(2*have, have+1024))
		grown := make([]float32, 2*pairs*n)
		copy(grown, t.table)
		for position := have; position < n; position++ {
			row := grown[2*pairs*position:][:2*pairs]
			for i, f := range t.frequencies {
				sin, cos := kernel.SinCos(float64(position) * f)
				row[i], row[pairs+i] = float32(cos), float32(sin)
			}
		}
		t.table = grown
	}
}

// turn rotates one head: element i with element i + len/2.
func (t *turns) turn(head []float32, position int) {
	pairs := len(t.frequencies)
	row := t.table[2*pairs*position:][:2*pairs]
	cos, sin := row[:pairs], row[pairs:]
	first, second := head[:pairs], head[pairs:][:pairs]
	for i, a := range first {
		b := second[i]
		first[i] = float32(a*cos[i]) - float32(b*sin[i])
		second[i] = float32(b*cos[i]) + float32(a*sin[i])
	}
}
