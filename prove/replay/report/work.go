package report

import (
	"fmt"
	"slices"
)

// Parts of think tokens: from noteworthy on it is said that a policy thought
// less; one that thought less than the subject by lessWork is set apart.
const (
	noteworthy = 0.001
	lessWork   = 0.01
)

// thoughtSaved is the part of think tokens that a policy did not think.
func (r *Report) thoughtSaved(policy string, load float64) float64 {
	if p := r.Point(policy, load); p != nil && p.value("thought_saved") != nil {
		return p.value("thought_saved").Mean
	}
	return 0
}

// shortens says that a policy ends thoughts that the subject lets go on: it does
// less work, and its figures are not of the same thing.
func (r *Report) shortens(policy string) bool {
	return slices.ContainsFunc(r.Loads, func(load float64) bool {
		return r.thoughtSaved(policy, load)-r.thoughtSaved(r.Subject, load) >= lessWork
	})
}

// peers are the others that do the subject's work, shorteners those that do less.
func (r *Report) peers() []string {
	return slices.DeleteFunc(slices.Clone(r.Policies), func(p string) bool { return p == r.Subject || r.shortens(p) })
}

func (r *Report) shorteners() []string {
	return slices.DeleteFunc(slices.Clone(r.Policies), func(p string) bool { return !r.shortens(p) })
}

// labelled is a policy's name, with a word where it does less work.
func (r *Report) labelled(policy string) string {
	if r.shortens(policy) {
		return policy + " (ends thoughts)"
	}
	return policy
}

// notes say what must be known to compare policies fairly.
func (r *Report) notes() []string {
	var notes []string
	if slices.ContainsFunc(r.Points, func(p Point) bool { return p.value(Attainment) != nil }) {
		notes = append(notes, "SLO attainment, QoE and goodput look at an answer from the end of its thought on: they ignore how long the request waited before. TTFVT and slowdown have that wait in them.")
	}
	for _, policy := range r.Policies {
		most := 0.0
		for _, load := range r.Loads {
			most = max(most, r.thoughtSaved(policy, load))
		}
		if most < noteworthy {
			continue
		}
		note := fmt.Sprintf("%s ends thoughts: up to %s of the tokens that were to be thought were not.", policy, Share.text(most))
		if r.shortens(policy) {
			note += " It does less work than the others, for other answers, so its latencies and its throughput are not of the same thing."
		}
		notes = append(notes, note)
	}
	return notes
}
