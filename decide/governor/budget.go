package governor

import (
	"errors"
	"fmt"

	"meridian/decide/entropy"
)

// ErrOptions means that a governor cannot go by what it was given.
var ErrOptions = errors.New("governor: options")

// ForceReason is why a thought is ended.
type ForceReason uint8

const (
	// Free: it may go on.
	Free ForceReason = iota
	// Converged: the answer has settled.
	Converged
	// Overthinking: the chain loses its way.
	Overthinking
	// HardCap: it is as long as a thought may be.
	HardCap
)

var forceReasons = [...]string{"free", "converged", "overthinking", "hard_cap"}

func (r ForceReason) String() string {
	if int(r) >= len(forceReasons) {
		return "unknown reason"
	}
	return forceReasons[r]
}

// Budget is how long a thought may be.
type Budget struct {
	// MaxThinkTokens is scheduler.max_think_tokens: the cap of a request that names none,
	// and the most that one may name.
	MaxThinkTokens int32
	// Entropy is entropy.enabled.
	Entropy bool
	// Probe is what estimators go by; scheduler.min_think_tokens is in it.
	Probe entropy.Options
}

// Check returns an error that names the first thing that makes no sense.
func (b *Budget) Check() error {
	if b.MaxThinkTokens < 1 {
		return fmt.Errorf("%w: a thought of %d tokens at most", ErrOptions, b.MaxThinkTokens)
	}
	if b.Entropy {
		return b.Probe.Check()
	}
	return nil
}

// Cap is the longest thought of a request that asked for one of so many tokens
// at most; 0 means that it did not say.
func (b *Budget) Cap(asked int32) int32 {
	if asked <= 0 {
		return b.MaxThinkTokens
	}
	return min(asked, b.MaxThinkTokens)
}
