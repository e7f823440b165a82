package governor

import "meridian/decide/entropy"

// Thought is one thought, from its first token until something ends it: the
// budget, and what estimators say of it.
type Thought struct {
	budget *Budget
	// limit is the longest that it may be.
	limit int32
	// estimator is nil until the first token, and where none is wanted.
	estimator *entropy.Estimator
	heard     entropy.Reason
}

// Begin is a thought of a request that asked for one of so many tokens at most; 0
// means that it did not say. The budget is shared and not written to.
func (b *Budget) Begin(asked int32) Thought { return Thought{budget: b, limit: b.Cap(asked)} }

// Token takes the entropy of the next think token; a boundary ends a clause, a
// sentence or a line. It says whether the token was a transition.
func (t *Thought) Token(nats float64, boundary bool) bool {
	if !t.listens() {
		return false
	}
	before := t.estimator.Transitions()
	t.Heard(t.estimator.Token(nats, boundary))
	return t.estimator.Transitions() > before
}

// Miss is think tokens whose entropies the engine did not measure; a thought that began
// elsewhere misses those of its beginning.
func (t *Thought) Miss(tokens int) {
	if tokens > 0 && t.listens() {
		t.estimator.Miss(tokens)
	}
}

// ForkDue says whether the context should be forked after this token.
func (t *Thought) ForkDue(paragraphEnd bool) bool {
	return t.listens() && t.estimator.ForkDue(paragraphEnd)
}

// Forked takes the entropy after a forced end of the thought.
func (t *Thought) Forked(nats float64) {
	if t.listens() {
		t.Heard(t.estimator.Forked(nats))
	}
}

// Heard takes what an estimator said, here or elsewhere. The first reason is kept.
func (t *Thought) Heard(reason entropy.Reason) {
	if t.heard == entropy.None {
		t.heard = reason
	}
}

// listens says whether entropies count, and makes room for them.
func (t *Thought) listens() bool {
	if !t.budget.Entropy {
		return false
	}
	if t.estimator == nil {
		estimator, err := entropy.NewEstimator(&t.budget.Probe)
		if err != nil {
			return false // the cap remains; Budget's owner has checked the options
		}
		t.estimator = estimator
	}
	return true
}

// Verdict says whether the thought ends after so many tokens, and why. Where
// several reasons meet, the one that says more is told, and the cap says least.
func (t *Thought) Verdict(think int32) ForceReason {
	switch {
	case t.budget.Entropy && t.heard == entropy.Converged:
		return Converged
	case t.budget.Entropy && t.heard == entropy.Overthinking:
		return Overthinking
	case think >= t.limit:
		return HardCap
	}
	return Free
}

// Left is how many tokens it has until its cap: a decision that holds for several
// steps holds for no more than that.
func (t *Thought) Left(think int32) int32 { return max(0, t.limit-think) }

// over forgets what only a thought that goes on needs.
func (t *Thought) over() { t.estimator = nil }
