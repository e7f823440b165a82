package governor

import "meridian/decide/policy"

const (
	// newest is the weight of the newest measurement: some ten steps forget a
	// burst, one slow copy does not change a threshold.
	newest = 0.2
	// ahead is how much copying may be under way, as the time it takes: enough to
	// keep a link busy, little enough that a pause does not wait for others.
	ahead = 100 * policy.Millisecond
)

// Calibration is what steps and copies take here, from measurements. Its
// thresholds follow from them.
type Calibration struct {
	// FabricDown: nothing can be copied, whatever it took before.
	FabricDown bool
	// BlockTokens is the size of a block.
	BlockTokens int32

	curve                  curve
	step, copied, recalled float64 // nanoseconds, of one each; 0: not measured
}

// average takes a measurement into a moving average; no number, no change.
func average(old *float64, total policy.Instant, n int32) {
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

// Stepped takes what a step took, if it can be.
func (c *Calibration) Stepped(took policy.Instant, w *Work) {
	if !w.possible(took) {
		return
	}
	c.curve.learn(took, w)
	if w.Tokens-w.Sequences <= w.Sequences {
		average(&c.step, took, 1)
	}
}

// token is what a token of a prompt takes, in nanoseconds; 0 if it is not known.
func (c *Calibration) token() float64 {
	var spots [curvePoints]spot
	return price(c.curve.read(spots[:0]))
}

// CopiedOut takes what it took to copy so many blocks out.
func (c *Calibration) CopiedOut(took policy.Instant, blocks int32) { average(&c.copied, took, blocks) }

// Recalled takes what it took to bring so many blocks back.
func (c *Calibration) Recalled(took policy.Instant, blocks int32) { average(&c.recalled, took, blocks) }

// Costs are what policies go by while so many sequences decode. While copies have not been measured they cost as
// much as computing anew, so that a first one is tried where nothing is lost by it.
func (c *Calibration) Costs(decoding int32) policy.Costs {
	var all [curvePoints]spot
	spots := c.curve.read(all[:0])
	token := price(spots)
	costs := policy.Costs{PrefillToken: policy.Instant(token), Step: policy.Instant(c.step), FreeTokens: free(spots, float64(max(1, decoding)))}
	if c.FabricDown {
		return costs
	}
	unknown := token * float64(c.BlockTokens)
	costs.CopiedBlock, costs.RecalledBlock = positive(c.copied, unknown), positive(c.recalled, unknown)
	return costs
}

// positive is a cost that says that copies can be made, as 0 says that not.
func positive(measured, otherwise float64) policy.Instant {
	if measured > 0 {
		return max(1, policy.Instant(measured))
	}
	return max(1, policy.Instant(otherwise))
}

// WorthCopying says whether a finished thought is copied out: bringing it back
// must be quicker than computing it anew. What was never measured is tried.
func (c *Calibration) WorthCopying() bool {
	if c.FabricDown {
		return false
	}
	token := c.token()
	return c.recalled == 0 || token == 0 || c.recalled < token*float64(c.BlockTokens)
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
func (c *Calibration) Recompute(tokens int32) policy.Instant {
	return policy.Instant(c.token() * float64(tokens))
}
