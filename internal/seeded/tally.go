package seeded

import "errors"

// Sections are counts, those together that belong together.
type Sections []struct {
	Title  string
	Counts Counts
}

// Counts are what was counted, by name.
type Counts []struct {
	Name string
	N    *uint64
}

// OtherReason is the name of the count of failures that have none of the known
// reasons.
const OtherReason = "another reason"

// Failed counts a failure by its reason; the last count is for others.
func Failed(counts []uint64, reasons []error, why error) {
	for i, reason := range reasons {
		if errors.Is(why, reason) {
			counts[i]++
			return
		}
	}
	counts[len(reasons)]++
}

// Reasons lists what Failed counts.
func Reasons(counts []uint64, reasons []error) Counts {
	all := make(Counts, len(counts))
	for i := range counts {
		all[i].Name, all[i].N = OtherReason, &counts[i]
		if i < len(reasons) {
			all[i].Name = reasons[i].Error()
		}
	}
	return all
}

// Add adds the counts of another run.
func (s Sections) Add(other Sections) {
	for i := range s {
		for j := range s[i].Counts {
			*s[i].Counts[j].N += *other[i].Counts[j].N
		}
	}
}
