package workload

import (
	"math"
	"math/rand/v2"
)

// settling adds to every thought the token after which its answer is settled,
// where the source does not tell. No public trace does, so it is made up: a
// quarter of thoughts settle with their last token, the others after
// ¼ + ¾·√u of it, u uniform. In the mean 19 % of a thought comes after its
// answer is settled, which is within the 12 to 22 % that early exits by
// entropy are published to save (arXiv:2509.26522).
type settling struct {
	Source
	dice *rand.Rand
}

// Next returns the next request.
func (s *settling) Next() (Request, bool) {
	r, more := s.Source.Next()
	if !more {
		return r, false
	}
	// The dice are rolled for every request, so that they fall alike whatever
	// a source tells.
	late, u := s.dice.Float64() < 0.25, s.dice.Float64()
	switch {
	case r.Think == 0 || r.Converged > 0:
	case late:
		r.Converged = r.Think
	default:
		r.Converged = max(1, int32(float64(r.Think)*(0.25+0.75*math.Sqrt(u))))
	}
	return r, true
}
