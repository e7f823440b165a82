package governor

import "meridian/sched"

const (
	// newest is the weight of the newest measurement: some ten steps forget a
	// burst, one slow copy does not change a threshold.
	newest = 0.2
	// ahead is how much copying may be under way, as the time it takes: enough to
	// keep a link busy, little enough that a pause does not wait for others.
	ahead = 100 * sched.Millisecond
)

// Calibration is what steps and copies take here, from measurements. Its
// thresholds follow from them.
type Calibration struct {
	// FabricDown: nothing can be copied, whatever it took before.
	FabricDown bool
	// BlockTokens is the size of a block.
	BlockTokens int32

	step, token, copied, recalled float64 // nanoseconds, of one each; 0: not measured
}

// average takes a measurement into a moving average; no number, no change.
func average(old *float64, total sched.Instant, n int32) {
	if total <= 0 || n <= 0 {
		return
	}
	value := float64(total) / float64(n)
	if *old == 0 {
		*old = value
		return
	}
	*old += newest * (value - *old)
}

// Stepped takes what a step took. One that computed more tokens than sequences
// also tells what a token of a prompt takes.
func (c *Calibration) Stepped(took sched.Instant, tokens, sequences int32) {
	prefill := tokens - sequences
	if prefill <= sequences {
		average(&c.step, took, 1)
		return
	}
	if rest := took - sched.Instant(c.step); c.step > 0 && rest > 0 {
		average(&c.token, rest, prefill)
	} else if c.step == 0 {
		average(&c.token, took, tokens)
	}
}

// CopiedOut takes what it took to copy so many blocks out.
func (c *Calibration) CopiedOut(took sched.Instant, blocks int32) { average(&c.copied, took, blocks) }

// Recalled takes what it took to bring so many blocks back.
func (c *Calibration) Recalled(took sched.Instant, blocks int32) { average(&c.recalled, took, blocks) }

// Costs are what policies go by. While copies have not been measured they cost as
// much as computing anew, so that a first one is tried where nothing is lost by it.
func (c *Calibration) Costs() sched.Costs {
	costs := sched.Costs{PrefillToken: sched.Instant(c.token), Step: sched.Instant(c.step)}
	if c.FabricDown {
		return costs
	}
	unknown := c.token * float64(c.BlockTokens)
	costs.CopiedBlock, costs.RecalledBlock = positive(c.copied, unknown), positive(c.recalled, unknown)
	return costs
}

// positive is a cost that says that copies can be made, as 0 says that not.
func positive(measured, otherwise float64) sched.Instant {
	if measured > 0 {
		return max(1, sched.Instant(measured))
	}
	return max(1, sched.Instant(otherwise))
}

// WorthCopying says whether a finished thought is copied out: bringing it back
// must be quicker than computing it anew. What was never measured is tried.
func (c *Calibration) WorthCopying() bool {
	if c.FabricDown {
		return false
	}
	return c.recalled == 0 || c.token == 0 || c.recalled < c.token*float64(c.BlockTokens)
}

// Ahead is how many blocks may be under way at once; a batch always may.
func (c *Calibration) Ahead(batch int32) int32 {
	if c.copied == 0 {
		return batch
	}
	return max(batch, int32(min(float64(ahead)/c.copied, 1<<20)))
}

// Recompute is what it takes to compute so many tokens anew; 0 means that it is
// not known.
func (c *Calibration) Recompute(tokens int32) sched.Instant {
	return sched.Instant(c.token * float64(tokens))
}
