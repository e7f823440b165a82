package bench

import (
	"fmt"
	"io"

	"meridian/internal/rounds"
)

// Costs is what a run of Measure found.
type Costs struct {
	Head
	Rows []Cost

	rounds int
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
	head, absent := r.Head, ""
	head.Absent = nil
	for _, absence := range r.Absent {
		absent += absence.String() + "\n\n"
	}
	note := fmt.Sprintf("one goroutine; median [min–max] of %d rounds; ns: for one operation; M/s: millions of operations a second; "+
		"RATIO: times as fast as the plain way beside it, in the same rounds\n\n", r.rounds)
	return Write(w, head.Text(), note, absent, Table("WHAT\tUNIT\tMERIDIAN\tBOUND\tALLOCATIONS\tBESIDE\tTHEIRS\tRATIO", r.Rows, (*Cost).line))
}

func (c *Cost) line() string {
	bound, beside, theirs, ratio := "–", "–", "–", "–"
	if c.Bound != nil {
		bound = Digits(*c.Bound, 4)
		if !*c.Kept {
			bound += " missed"
		}
	}
	if c.Theirs != nil {
		beside, theirs, ratio = c.Beside, c.Theirs.String(), c.Ratio.String()
	}
	return fmt.Sprintf("%s\t%s\t%v\t%s\t%.3g\t%s\t%s\t%s", c.What, c.Unit, c.Score, bound, c.Allocations, beside, theirs, ratio)
}
