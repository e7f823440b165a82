package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"meridian/decide/governor"
)

// ErrProfile means that a profile makes no engine.
var ErrProfile = errors.New("replay: bad profile")

// Profile is how long an engine's steps take, and how much it holds. It comes
// from a roofline (Profiles), or from measurements (ReadProfile). The time of a
// step is
//
//	StepNs + SequenceNs·sequences + dense(tokens) + ContextNs·context + PairNs·pairs
//
// where dense is Dense, joined by straight lines and continued by its last one;
// context is how many tokens those who compute one token attend to; and
// pairs is how many pairs of tokens attend to each other in chunks of prompts.
type Profile struct {
	Name string `json:"name"`
	// Source says where the numbers come from; Measured that they were measured.
	Source   string `json:"source"`
	Measured bool   `json:"measured"`

	StepNs     float64 `json:"step_ns"`
	SequenceNs float64 `json:"sequence_ns"`
	Dense      []Point `json:"dense"`
	ContextNs  float64 `json:"context_ns"`
	PairNs     float64 `json:"pair_ns"`

	// KVBytesPerToken is of all ranks together, and BlockTokens the size of one of
	// Blocks.
	KVBytesPerToken int64 `json:"kv_bytes_per_token"`
	BlockTokens     int32 `json:"block_tokens"`
	Blocks          int32 `json:"blocks"`
	// MaxTokens and MaxSequences bound a step.
	MaxTokens    int32 `json:"max_tokens"`
	MaxSequences int32 `json:"max_sequences"`
}

// Point is the time of the part of a step that depends on how many tokens it
// computes.
type Point struct {
	Tokens int32   `json:"tokens"`
	Ns     float64 `json:"ns"`
}

// maxProfileBytes and the limits below bound what a file may ask for.
const (
	maxProfileBytes = 1 << 20
	maxStepTokens   = 1 << 20
	maxSequences    = 1 << 16
	maxStepNs       = 60e9
)

// ReadProfile reads a measured profile from a JSON file.
func ReadProfile(path string) (Profile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Profile{}, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	if info.Size() > maxProfileBytes {
		return Profile{}, fmt.Errorf("%w: %s has %d bytes; a profile has %d at most", ErrProfile, path, info.Size(), maxProfileBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Profile{}, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	var p Profile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("%w: %s: %w", ErrProfile, path, err)
	}
	if err := p.validate(); err != nil {
		return Profile{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// FindProfile is the built-in profile of that name, or the one in that file.
func FindProfile(name string) (Profile, error) {
	all := Profiles()
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
	}
	if strings.HasSuffix(name, ".json") {
		return ReadProfile(name)
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return Profile{}, fmt.Errorf("%w: there is no profile %q; there is %s, or a FILE.json", ErrProfile, name, strings.Join(names, ", "))
}

func (p *Profile) validate() error {
	times := []struct {
		name string
		ns   float64
	}{{"step_ns", p.StepNs}, {"sequence_ns", p.SequenceNs}, {"context_ns", p.ContextNs}, {"pair_ns", p.PairNs}}
	for _, t := range times {
		if !(t.ns >= 0 && t.ns <= maxStepNs) {
			return fmt.Errorf("%w: %s is %g; it must be from 0 to %g", ErrProfile, t.name, t.ns, maxStepNs)
		}
	}
	rising := true
	for i := 1; i < len(p.Dense); i++ {
		rising = rising && p.Dense[i-1].Tokens < p.Dense[i].Tokens && p.Dense[i-1].Ns <= p.Dense[i].Ns
	}
	switch {
	case len(p.Dense) == 0 || !rising || p.Dense[0].Tokens < 0:
		return fmt.Errorf("%w: dense must have points with more tokens, and no less time, from one to the next", ErrProfile)
	case !(p.Dense[0].Ns >= 0 && p.Dense[len(p.Dense)-1].Ns <= maxStepNs):
		return fmt.Errorf("%w: the times of dense must be from 0 to %g ns", ErrProfile, maxStepNs)
	case p.StepNs+p.SequenceNs+p.Dense[0].Ns <= 0:
		return fmt.Errorf("%w: a step would take no time", ErrProfile)
	case p.BlockTokens < 1 || p.BlockTokens > 4096:
		return fmt.Errorf("%w: block_tokens is %d; it must be from 1 to 4096", ErrProfile, p.BlockTokens)
	case p.Blocks < 1 || int64(p.Blocks)*int64(p.BlockTokens) > math.MaxInt32:
		return fmt.Errorf("%w: %d blocks of %d tokens; a cache holds from one block to %d tokens", ErrProfile, p.Blocks, p.BlockTokens, math.MaxInt32)
	case p.MaxTokens < 1 || p.MaxTokens > maxStepTokens:
		return fmt.Errorf("%w: max_tokens is %d; it must be from 1 to %d", ErrProfile, p.MaxTokens, maxStepTokens)
	case p.MaxSequences < 1 || p.MaxSequences > maxSequences:
		return fmt.Errorf("%w: max_sequences is %d; it must be from 1 to %d", ErrProfile, p.MaxSequences, maxSequences)
	case p.KVBytesPerToken < 0 || p.KVBytesPerToken > 1<<30:
		return fmt.Errorf("%w: kv_bytes_per_token is %d; it must be from 0 to %d", ErrProfile, p.KVBytesPerToken, 1<<30)
	}
	return nil
}

// stepCost is a profile in whole picoseconds, so that the sum of many steps is
// exact and does not depend on how they are grouped.
type stepCost struct {
	step, sequence, context, pair ps
	dense                         []ps // by tokens
}

func (p *Profile) cost() stepCost {
	c := stepCost{step: picoseconds(p.StepNs), sequence: picoseconds(p.SequenceNs), context: picoseconds(p.ContextNs), pair: picoseconds(p.PairNs)}
	c.dense = make([]ps, p.MaxTokens+1)
	for tokens := range c.dense {
		c.dense[tokens] = picoseconds(p.denseNs(float64(tokens)))
	}
	return c
}

// denseNs joins the points.
func (p *Profile) denseNs(tokens float64) float64 {
	d := p.Dense
	if len(d) == 1 || tokens <= float64(d[0].Tokens) {
		return d[0].Ns
	}
	i := 1
	for i < len(d)-1 && float64(d[i].Tokens) < tokens {
		i++
	}
	a, b := d[i-1], d[i]
	return a.Ns + (b.Ns-a.Ns)*(tokens-float64(a.Tokens))/float64(b.Tokens-a.Tokens)
}

// of is the time of a step.
func (c *stepCost) of(w *governor.Work) ps {
	return c.step + c.sequence*ps(w.Sequences) + c.dense[w.Tokens] + c.context*ps(w.Context) + c.pair*ps(w.Pairs)
}

// ps is time in picoseconds: 106 days fit.
type ps int64

const (
	nanosecond ps = 1e3
	microsec   ps = 1e6
	second     ps = 1e12
)

func picoseconds(ns float64) ps { return ps(math.Round(ns * 1e3)) }
