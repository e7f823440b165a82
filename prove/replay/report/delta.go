package report

// Verdict is what a difference amounts to.
type Verdict string

const (
	Win  Verdict = "WIN"
	Flat Verdict = "FLAT" // the interval has zero in it, or the difference is less than the metric's least
	Loss Verdict = "LOSS"
	None Verdict = "" // one seed has no interval, and facts have no merit; nor have seeds that drew the same
)

// Delta is how far one policy is from another in one metric at one load.
type Delta struct {
	Load    float64 `json:"load"`
	Metric  string  `json:"metric"`
	Policy  string  `json:"policy"`
	Against string  `json:"against"`
	// Change is relative to the other's mean where Relative, else in the
	// metric's own unit: shares, indices, and where the other may have nothing.
	Change   Interval `json:"change"`
	Relative bool     `json:"relative"`
	Verdict  Verdict  `json:"verdict"`
}

// delta compares two points of one load, seed by seed.
func delta(m Metric, ours, theirs *Point) (Delta, bool) {
	v, w := ours.value(m.Name), theirs.value(m.Name)
	if v == nil || w == nil {
		return Delta{}, false
	}
	g := pairedGap(v.Seeds, w.Seeds)
	change, relative := m.change(g)
	return Delta{
		Load: ours.Load, Metric: m.Name, Policy: ours.Policy, Against: theirs.Policy, Change: change, Relative: relative, Verdict: m.verdict(g),
	}, true
}

// Standing is a policy's place at one load among those that no other beats in
// everything that policies are judged by.
type Standing struct {
	Load   float64 `json:"load"`
	Policy string  `json:"policy"`
	// DominatedBy names the policies that do the same work, lose to this one in
	// nothing that is judged and win something; without any it is on the front.
	DominatedBy []string `json:"dominated_by"`
}

// standing says who dominates the point, as far as intervals tell.
func (r *Report) standing(p *Point, others []*Point) Standing {
	s := Standing{Load: p.Load, Policy: p.Policy, DominatedBy: []string{}}
	for _, other := range others {
		if other != p && r.shortens(other.Policy) == r.shortens(p.Policy) && dominates(other, p) {
			s.DominatedBy = append(s.DominatedBy, other.Policy)
		}
	}
	return s
}

func dominates(a, z *Point) bool {
	wins := false
	for _, name := range Judged {
		m := metricOf(Metrics, name)
		d, compared := delta(m, a, z)
		if compared && d.Verdict == Loss {
			return false
		}
		wins = wins || compared && d.Verdict == Win
	}
	return wins
}
