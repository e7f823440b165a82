package governor

import (
	"testing"

	"meridian/decide/entropy"
	"meridian/decide/policy"
)

func TestCalibration(t *testing.T) {
	c := Calibration{BlockTokens: 16}
	if got := c.Costs(8); got.CopiedBlock < 1 || got.RecalledBlock < 1 || !c.WorthCopying() || c.Ahead(4) != 4 {
		t.Errorf("nothing was measured, and copies are not tried: %+v, %d ahead", got, c.Ahead(4))
	}
	for range 3 {
		c.Stepped(10*policy.Millisecond, &Work{Tokens: 8, Sequences: 8})    // all decode
		c.Stepped(20*policy.Millisecond, &Work{Tokens: 1008, Sequences: 8}) // 1,000 tokens of a prompt
	}
	c.CopiedOut(policy.Millisecond, 10)
	c.Recalled(policy.Millisecond, 10)
	want := policy.Costs{PrefillToken: 10 * policy.Microsecond, CopiedBlock: 100 * policy.Microsecond, RecalledBlock: 100 * policy.Microsecond, Step: 10 * policy.Millisecond}
	if got := c.Costs(8); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A block is computed in 160 µs and brought back in 100.
	if !c.WorthCopying() || c.Ahead(4) != 1000 || c.Recompute(32) != 320*policy.Microsecond {
		t.Errorf("%v, %d ahead, %d ns", c.WorthCopying(), c.Ahead(4), c.Recompute(32))
	}
	for range 20 {
		c.Recalled(policy.Millisecond, 1)
	}
	if c.WorthCopying() {
		t.Error("a thought is copied out although computing it is quicker")
	}
	if c.FabricDown = true; c.Costs(8).CopiedBlock != 0 || c.Costs(8).RecalledBlock != 0 || c.WorthCopying() {
		t.Errorf("the fabric is down: %+v", c.Costs(8))
	}
	// What is no measurement changes nothing.
	before := c
	c.Stepped(-1, &Work{Tokens: 5, Sequences: 5})
	c.Stepped(0, &Work{Tokens: 500, Sequences: 5})
	c.Stepped(policy.Millisecond, &Work{Tokens: 1 << 30, Sequences: 5})
	c.Stepped(policy.Millisecond, &Work{Tokens: 5, Sequences: 8, Context: -1})
	c.CopiedOut(5, 0)
	c.Recalled(-5, -1)
	if c != before {
		t.Errorf("%+v, was %+v", c, before)
	}
}

func TestVerdict(t *testing.T) {
	on, off := Budget{MaxThinkTokens: 100, Entropy: true}, Budget{MaxThinkTokens: 100}
	for name, c := range map[string]struct {
		budget Budget
		think  int32
		heard  entropy.Reason
		want   ForceReason
	}{
		"free":                   {on, 99, entropy.None, Free},
		"cap":                    {on, 100, entropy.None, HardCap},
		"converged":              {on, 10, entropy.Converged, Converged},
		"converged at the cap":   {on, 100, entropy.Converged, Converged},
		"overthinking":           {on, 10, entropy.Overthinking, Overthinking},
		"disabled, converged":    {off, 10, entropy.Converged, Free},
		"disabled, and the cap":  {off, 100, entropy.Converged, HardCap},
		"disabled, overthinking": {off, 99, entropy.Overthinking, Free},
	} {
		thought := c.budget.Begin(0)
		thought.Heard(c.heard)
		if got := thought.Verdict(c.think); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if thought := on.Begin(500); thought.Left(40) != 60 || thought.Left(140) != 0 {
		t.Error("wrong tokens left")
	}
}
