package replay

import (
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/kv"
)

// tally is what a replay counts while it runs. Its memory grows with tenants, and
// with nothing else.
type tally struct {
	config *Config

	requests  Requests
	tokens    Tokens
	forced    Forced
	evictions Evictions
	moved     Moved
	cache     Cache
	work      Work

	ttft, ttfvt, ttot, thinkITL, answerITL, e2e, qoe, slowdown, thinking, chat Histogram

	tenants []tenantSlowdown
	gaps    gaps

	tpot, ttfat int64 // of the SLO, in microseconds
}

// tenantSlowdown sums whole millionths, so that it does not matter in which order
// requests that end together are counted.
type tenantSlowdown struct {
	sum, count int64
}

// gaps counts, for a batch of equal steps, how many counted requests found a
// token in each: those that took part in the step before count in every step,
// the others from the second on.
type gaps struct {
	think, thinkLater, output, outputLater int64
}

// found records so many tokens of one phase, one at the end of each step.
func (t *tally) found(r *policy.Request, s *sequence, p *plan, steps int32) {
	first := p.boundary(1)
	thinks := r.Phase == kv.Think
	if thinks {
		t.tokens.Think += int64(steps)
	} else {
		t.tokens.Output += int64(steps)
		t.read(r, s, p, steps)
	}
	if !s.counted {
		return
	}
	opening := (thinks && r.Think == 0) || (!thinks && r.Output == 0)
	if s.lastToken == 0 {
		t.ttft.add(int64((first-s.arrived)/nanosecond), 1)
	}
	if !thinks && opening {
		t.visible(s, first)
	}
	together := !opening && s.lastToken == p.start
	switch {
	case thinks && together:
		t.gaps.think++
	case thinks:
		t.gaps.thinkLater++
	case together:
		t.gaps.output++
	default:
		t.gaps.outputLater++
	}
	if together || opening {
		return
	}
	if gap := int64((first - s.lastToken) / nanosecond); thinks {
		t.thinkITL.add(gap, 1)
	} else {
		t.answerITL.add(gap, 1)
	}
}

// visible records the first token that the user sees.
func (t *tally) visible(s *sequence, at ps) {
	wait := int64((at - s.arrived) / nanosecond)
	t.ttfvt.add(wait, 1)
	if s.thought == 0 {
		t.chat.add(wait, 1)
		return
	}
	t.thinking.add(wait, 1)
	t.ttot.add(int64((at-s.thoughtEnd)/nanosecond), 1)
}

// addGaps records the times between tokens of those who decoded together.
func (t *tally) addGaps(p *plan, steps int32) {
	g := t.gaps
	if g == (gaps{}) {
		return
	}
	for j := range ps(steps) {
		gap := int64((p.first + j*p.growth) / nanosecond)
		think, output := g.think, g.output
		if j > 0 {
			think, output = think+g.thinkLater, output+g.outputLater
		}
		if think > 0 {
			t.thinkITL.add(gap, think)
		}
		if output > 0 {
			t.answerITL.add(gap, output)
		}
	}
}

// read records what the reader of an answer experiences. The i-th token, from 0,
// is expected at X(i) = end of the thought + TTFAT + i·TPOT. A reader is not
// faster than that, so that one who is behind stays behind: token i is read max over j ≤ i
// of (found(j) − X(j)) after X(i), or on time.
func (t *tally) read(r *policy.Request, s *sequence, p *plan, steps int32) {
	start := int64(s.thoughtEnd/microsec) + t.ttfat
	late := func(j int32) int64 {
		return int64(p.boundary(j)/microsec) - start - t.tpot*int64(r.Output+j-1)
	}
	s.late = max(s.late, late(1))
	// Steps only get longer, so lateness bends upwards: if neither the first nor the
	// last token is later than the reader, none is.
	if steps == 1 || late(steps) <= s.late {
		s.behind += s.late * int64(steps)
		return
	}
	for j := int32(1); j <= steps; j++ {
		s.late = max(s.late, late(j))
		s.behind += s.late
	}
}

// quality is one minus the part of the reading time that was waited for: the area
// between expected and actual reading, over the area under the expected one until
// the last token has been read. An answer without a token has none: its reader
// waits in vain.
func (t *tally) quality(s *sequence, output int32) float64 {
	n := int64(output)
	if n == 0 {
		return 0
	}
	whole := n*(s.late+t.tpot) + t.tpot*(n*(n-1)/2)
	return 1 - float64(s.behind)/float64(whole)
}

// finished records the end of a request.
func (t *tally) finished(r *policy.Request, s *sequence, now, alone ps) {
	if !s.counted {
		return
	}
	t.requests.Counted++
	t.e2e.add(int64((now-s.arrived)/nanosecond), 1)
	quality := t.quality(s, r.Output)
	t.qoe.add(int64(quality*1e6), 1)
	if quality >= t.config.SLO.QoE {
		t.requests.Met++
	}
	slow := float64(now-s.arrived) / float64(max(alone, 1))
	t.slowdown.add(int64(slow*1e3), 1)
	for int(s.tenant) >= len(t.tenants) {
		t.tenants = append(t.tenants, tenantSlowdown{})
	}
	t.tenants[s.tenant].sum += int64(slow * 1e6)
	t.tenants[s.tenant].count++
	t.thoughtEnded(s)
}

// thoughtEnded records how a thought ended.
func (t *tally) thoughtEnded(s *sequence) {
	if s.thought == 0 {
		return
	}
	f := &t.forced
	f.Thoughts++
	if s.converged > 0 {
		f.Known++
		if s.think < s.converged {
			f.CutShort++
		}
	}
	f.Saved += int64(s.thought - s.think)
	switch s.forced {
	case governor.Converged:
		f.Converged++
	case governor.Overthinking:
		f.Overthinking++
	case governor.HardCap:
		f.HardCap++
	}
}

// hit records that of a prompt so many tokens were at the engine, and so many in
// all need not be computed.
func (t *tally) hit(local, all int32) {
	t.cache.HitTokens += int64(local)
	t.cache.StoreTokens += int64(all - local)
}

func (t *tally) latency() Latency {
	return Latency{
		TTFT: t.ttft.distribution(1e9), TTFVT: t.ttfvt.distribution(1e9), TTOT: t.ttot.distribution(1e9),
		ThinkITL: t.thinkITL.distribution(1e9), AnswerITL: t.answerITL.distribution(1e9), E2E: t.e2e.distribution(1e9),
		QoE: t.qoe.distribution(1e6), Slowdown: t.slowdown.distribution(1e3), Thinking: t.thinking.distribution(1e9), Chat: t.chat.distribution(1e9),
	}
}

func (t *tally) fairness() Fairness {
	var f Fairness
	sum, squares := 0.0, 0.0
	for _, tenant := range t.tenants {
		if tenant.count == 0 {
			continue
		}
		slow := float64(tenant.sum) / 1e6 / float64(tenant.count)
		if f.Tenants == 0 || slow < f.Best {
			f.Best = slow
		}
		f.Worst = max(f.Worst, slow)
		f.Tenants++
		sum += slow
		squares += slow * slow
	}
	if f.Tenants > 0 {
		f.Jain = sum * sum / (float64(f.Tenants) * squares)
	}
	return f
}
