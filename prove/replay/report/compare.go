package report

import (
	"fmt"
	"slices"
)

// CompareSchema is what the JSON of a Comparison says of itself.
const CompareSchema = "meridian-replay-diff"

// Comparison is two reports side by side: what B has changed against A.
type Comparison struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	A       About  `json:"a"`
	B       About  `json:"b"`
	// Paired says that both sides had the same requests under the same seeds,
	// so that differences are those of each seed.
	Paired     bool     `json:"paired"`
	Confidence float64  `json:"confidence"`
	Changes    []Change `json:"changes"`
	// Lone are the policies and loads that one side has alone.
	Lone []string `json:"lone"`
}

// Change is one metric of one policy at one load, in A and in B.
type Change struct {
	Policy   string   `json:"policy"`
	Load     float64  `json:"load"`
	Metric   string   `json:"metric"`
	A        Interval `json:"a"`
	B        Interval `json:"b"`
	Change   Interval `json:"change"`
	Relative bool     `json:"relative"`
	Verdict  Verdict  `json:"verdict"` // of B
}

// Compare sets B against A wherever both have the same policy and load.
func Compare(a, b *Report) *Comparison {
	c := &Comparison{
		Schema: CompareSchema, Version: Version, A: a.About, B: b.About, Confidence: Confidence,
		Paired:  slices.Equal(a.Seeds, b.Seeds) && a.Workload == b.Workload,
		Changes: []Change{}, Lone: []string{},
	}
	between := looseGap
	if c.Paired {
		between = pairedGap
	}
	for i := range b.Points {
		p := &b.Points[i]
		old := a.Point(p.Policy, p.Load)
		if old == nil {
			c.Lone = append(c.Lone, fmt.Sprintf("B has %s at load %v, A has not", p.Policy, p.Load))
			continue
		}
		c.Changes = append(c.Changes, changes(old, p, between)...)
	}
	for _, p := range a.Points {
		if b.Point(p.Policy, p.Load) == nil {
			c.Lone = append(c.Lone, fmt.Sprintf("A has %s at load %v, B has not", p.Policy, p.Load))
		}
	}
	return c
}

func changes(old, p *Point, between func(values, base []float64) gap) []Change {
	var all []Change
	for _, m := range Metrics {
		v, w := p.value(m.Name), old.value(m.Name)
		if v == nil || w == nil {
			continue
		}
		g := between(v.Seeds, w.Seeds)
		change, relative := m.change(g)
		all = append(all, Change{
			Policy: p.Policy, Load: p.Load, Metric: m.Name, A: w.Interval, B: v.Interval, Change: change, Relative: relative,
			Verdict: m.verdict(g),
		})
	}
	return all
}

// Count is how many changes have a verdict.
func (c *Comparison) Count(v Verdict) int {
	count := 0
	for _, change := range c.Changes {
		if change.Verdict == v {
			count++
		}
	}
	return count
}
