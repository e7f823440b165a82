package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"meridian/internal/rounds"
)

// Costs is what a run of Measure found.
type Costs struct {
	Rows []Cost
	// Others is how many cores were used by processes that are not part of the
	// run, on average.
	Others float64
	// Absent are those that would be measured beside, and why they are not.
	Absent []Absence

	options Options
	date    time.Time
}

// Cost is one line of the table.
type Cost struct {
	What   string   `json:"what"`
	Unit   string   `json:"unit"`
	Score  Score    `json:"score"`
	Bound  *float64 `json:"bound"` // null: nothing is promised
	Kept   *bool    `json:"kept"`
	Beside string   `json:"beside,omitempty"`
	Theirs *Score   `json:"theirs"`
	// Ratio is how many times as fast as the plain way, round by round.
	Ratio *Score `json:"ratio"`
	// Allocations is how often one operation allocates.
	Allocations float64 `json:"allocations"`
}

// Score is what several rounds gave, in the row's unit.
type Score struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (s Score) String() string {
	return fmt.Sprintf("%s [%s–%s]", digits(s.Median), digits(s.Min), digits(s.Max))
}

// digits are four, and all of those before the point.
func digits(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// NewScore sums up the scores of at least one round.
func NewScore(scores []float64) Score { return Score(NewFigure(scores)) }

func newCost(t rounds.Task, r rounds.Scores) Cost {
	row := Cost{What: t.What, Unit: t.UnitOf(), Score: NewScore(r.Ours), Allocations: NewScore(r.Allocations).Median}
	if t.Bound > 0 {
		kept := t.Keeps(row.Score.Median)
		row.Bound, row.Kept = &t.Bound, &kept
	}
	if t.Theirs != nil {
		theirs, ratio := NewScore(r.Theirs), NewScore(r.Ratios)
		row.Beside, row.Theirs, row.Ratio = t.Beside, &theirs, &ratio
	}
	return row
}

// WriteJSON writes the rows for programs.
func (r *Costs) WriteJSON(w io.Writer) error {
	return WriteJSON(w, struct {
		Machine string  `json:"machine"`
		Others  float64 `json:"others"`
		Rows    []Cost  `json:"rows"`
	}{Machine(), r.Others, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *Costs) WriteText(w io.Writer) error {
	var b strings.Builder
	o := &r.options
	b.WriteString(Heading(o.Version, r.date))
	b.WriteString(BesideOthers(r.Others))
	fmt.Fprintf(&b, "one goroutine; median [min–max] of %d rounds; ns: for one operation; M/s: millions of operations a second; "+
		"RATIO: times as fast as the plain way beside it, in the same rounds\n\n", o.Rounds)
	for _, absence := range r.Absent {
		fmt.Fprintf(&b, "%v\n\n", absence)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tUNIT\tMERIDIAN\tBOUND\tALLOCATIONS\tBESIDE\tTHEIRS\tRATIO")
	for _, row := range r.Rows {
		bound, beside, theirs, ratio := "–", "–", "–", "–"
		if row.Bound != nil {
			bound = digits(*row.Bound)
			if !*row.Kept {
				bound += " missed"
			}
		}
		if row.Theirs != nil {
			beside, theirs, ratio = row.Beside, row.Theirs.String(), row.Ratio.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%s\t%.3g\t%s\t%s\t%s\n", row.What, row.Unit, row.Score, bound, row.Allocations, beside, theirs, ratio)
	}
	return table.Flush()
}
