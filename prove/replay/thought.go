package replay

import (
	"math/rand/v2"

	"meridian/decide/governor"
	"meridian/prove/replay/workload"
)

// The entropies of a thought, made up from a seed: no public trace has any. What
// is known of them is where the answer settles, so that tokens saved can be held
// against answers cut short.
//
//	token      an exponential with a mean of ½ nat: most are certain, a few are not
//	straying   one chain in twenty loses its way after its answer has settled, at
//	           a uniform point; from there on its tokens have four times the mean
//	fork       entropy after a forced end: 0.8 ± 0.6 nats before the answer has
//	           settled, at least 0.05; 0.05 and an exponential of 0.01 after
//	clauses    end with one token in eight, paragraphs with one in forty
const (
	tokenNats    = 0.5
	strayChance  = 0.05
	strayFactor  = 4
	unsettled    = 0.8
	unsettledBy  = 0.6
	settled      = 0.05
	settledBy    = 0.01
	clauseEnd    = 1.0 / 8
	paragraphEnd = 1.0 / 40
)

// thoughtStream sets these dice apart from all others of a seed.
const thoughtStream = 0x7468696e6b

// endOf is after how many tokens the budget ends a thought, and why. It asks what
// an engine's governor asks, token by token. Entropies do not depend on when a
// token is computed, so this is known when a request arrives.
func endOf(b *governor.Budget, seed uint64, number int64, r *workload.Request) (think int32, why governor.ForceReason) {
	thought := b.Begin(0)
	if !b.Entropy {
		return capped(&thought, r.Think)
	}
	dice := rand.New(rand.NewPCG(seed^thoughtStream, uint64(number)))
	converged := r.Converged
	if converged == 0 {
		converged = r.Think // nothing says that it settles earlier
	}
	strays := r.Think
	if chance, at := dice.Float64(), dice.Float64(); chance < strayChance {
		strays = converged + int32(at*float64(r.Think-converged))
	}
	for i := int32(1); i < r.Think; i++ {
		nats := tokenNats * dice.ExpFloat64()
		if i > strays {
			nats *= strayFactor
		}
		end := dice.Float64()
		thought.Token(nats, end < clauseEnd)
		if thought.ForkDue(end < paragraphEnd) {
			thought.Forked(forked(dice, i >= converged))
		}
		if why = thought.Verdict(i); why != governor.Free {
			return i, why
		}
	}
	return r.Think, governor.Free
}

// capped is a thought that only its cap can end.
func capped(t *governor.Thought, think int32) (int32, governor.ForceReason) {
	if left := t.Left(0); left < think {
		return left, governor.HardCap
	}
	return think, governor.Free
}

func forked(dice *rand.Rand, after bool) float64 {
	if after {
		return settled + settledBy*dice.ExpFloat64()
	}
	return max(settled, unsettled+unsettledBy*dice.NormFloat64())
}
