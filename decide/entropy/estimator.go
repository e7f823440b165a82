package entropy

import (
	"errors"
	"fmt"
	"math"
)

// Reason is why a thought may end.
type Reason uint8

const (
	// None means that it may go on.
	None Reason = iota
	// Converged means that the answer has settled, by EAT.
	Converged
	// Overthinking means that the chain loses its way, by RPDI.
	Overthinking
)

var reasonNames = [...]string{None: "none", Converged: "converged", Overthinking: "overthinking"}

func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Options are what estimators go by, as [entropy] and [scheduler] of
// meridian.toml have it.
type Options struct {
	Alpha          float64 // entropy.ema_alpha
	EATVariance    float64 // entropy.eat_ema_variance_threshold, in nats²
	EATInterval    int     // entropy.eat_probe_interval_tokens
	RPDI           float64 // entropy.rpdi_threshold
	Transition     float64 // entropy.transition_entropy_threshold, in nats
	MinThinkTokens int     // scheduler.min_think_tokens
}

// ErrOptions means that estimators cannot go by what they were given.
var ErrOptions = errors.New("probe: options")

// Check returns an error that names the first option that makes no sense.
func (o *Options) Check() error {
	for _, c := range []struct {
		field string
		value float64
		good  bool
		want  string
	}{
		{"Alpha", o.Alpha, o.Alpha >= MinAlpha && o.Alpha <= 1, "at least 0.001 and at most 1"},
		{"EATVariance", o.EATVariance, o.EATVariance > 0, "more than 0"},
		{"EATInterval", float64(o.EATInterval), o.EATInterval >= 1, "at least 1"},
		{"RPDI", o.RPDI, o.RPDI > 1, "more than 1"},
		{"Transition", o.Transition, o.Transition > 0, "more than 0"},
		{"MinThinkTokens", float64(o.MinThinkTokens), o.MinThinkTokens >= 0, "at least 0"},
	} {
		if !c.good {
			return fmt.Errorf("%w: %s is %v, which must be %s", ErrOptions, c.field, c.value, c.want)
		}
	}
	return nil
}

// Estimator watches one thought of one sequence. It is one block of memory, four
// kilobytes.
type Estimator struct {
	options *Options
	eat     EAT
	rpdi    RPDI

	tokens, probed int // think tokens; those at the last fork
	transitions    int
}

// NewEstimator returns an estimator of a thought that has not begun. The options
// are shared and not written to.
func NewEstimator(o *Options) (*Estimator, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Estimator{options: o}, nil
}

// Token takes the entropy of the next committed think token. A boundary is a token
// that ends a clause, a sentence or a line: only there RPDI is tested. A number
// that is no entropy counts as missing.
func (e *Estimator) Token(nats float64, boundary bool) Reason {
	nats, sound := entropyOf(nats)
	if !sound {
		e.Miss(1)
		return None
	}
	e.tokens++
	if nats > e.options.Transition {
		e.transitions++
	}
	e.rpdi.Add(nats)
	if !boundary || e.tokens < e.options.MinThinkTokens {
		return None
	}
	if e.rpdi.Exceeds(e.options.RPDI) {
		return Overthinking
	}
	return None
}

// Transitions is how many tokens were more undecided than Options.Transition.
func (e *Estimator) Transitions() int { return e.transitions }

// Miss is committed think tokens whose entropy the engine did not measure: for the rest of
// this thought the index is not known, and it is Overthinking only where that is certain
// whatever they had. A thought that began elsewhere misses what came before.
func (e *Estimator) Miss(tokens int) {
	if tokens < 1 {
		return
	}
	e.tokens += tokens
	e.rpdi.Miss(tokens)
}

// ForkDue reports whether the context should be forked for EAT after this token:
// at the first end of a paragraph that is far enough from the last fork.
func (e *Estimator) ForkDue(paragraphEnd bool) bool {
	return paragraphEnd && e.tokens-e.probed >= e.options.EATInterval
}

// Forked takes the entropy after a forced end marker, of a context that was forked
// after the newest token. A number that is no entropy leaves EAT as it was.
func (e *Estimator) Forked(nats float64) Reason {
	e.probed = e.tokens
	nats, sound := entropyOf(nats)
	if !sound {
		return None
	}
	e.eat.Add(nats, e.options.Alpha)
	if e.tokens >= e.options.MinThinkTokens && e.eat.Warm(e.options.Alpha) && e.eat.Variance < e.options.EATVariance {
		return Converged
	}
	return None
}

const (
	// An engine that computes in 32 bits may end a hair below zero.
	leastEntropy = -1e-4
	// No vocabulary is as large as 2^64.
	mostEntropy = 64 * math.Ln2
)

// entropyOf reports whether a number that an engine gave can be an entropy.
func entropyOf(nats float64) (float64, bool) {
	if !(nats >= leastEntropy && nats <= mostEntropy) {
		return 0, false
	}
	return max(nats, 0), true
}
