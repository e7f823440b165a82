// Package bench is what all measurements share: figures and their spread, what a
// machine is and how much of it others use, which cores belong to whom, and
// processes that are measured. What is measured is in the packages below it.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Progress is where a run is.
type Progress struct {
	Row, Rows     int
	What          string // the row
	Round, Rounds int    // round 0 is the warm-up
	Who           string
}

// Setting is what every measurement is told beside what it measures.
type Setting struct {
	Program string // Meridian; empty means this program
	Version string // of this build, for the report
	// Progress is told what is being measured; it may be nil.
	Progress func(Progress)
}

// Tell says where the run is.
func (s *Setting) Tell(p Progress) {
	if s.Progress != nil {
		s.Progress(p)
	}
}

func (p Progress) String() string {
	if p.Rows == 0 {
		return p.What // nothing is measured yet
	}
	round := "warm-up"
	if p.Round > 0 {
		round = fmt.Sprintf("round %d of %d", p.Round, p.Rounds)
	}
	return fmt.Sprintf("[%d/%d] %s: %s, %s", p.Row, p.Rows, p.What, round, p.Who)
}

// ErrOptions means that what was asked for makes no sense.
var ErrOptions = errors.New("bench")

// Known refuses names that are not among all, twice the same one, and none.
func Known[T ~string](what string, given, all []T) error {
	if len(given) == 0 {
		return fmt.Errorf("%w: no %s", ErrOptions, what)
	}
	for i, name := range given {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%w: no %s %q; there is %s", ErrOptions, what, name, Names(all))
		}
		if slices.Contains(given[:i], name) {
			return fmt.Errorf("%w: %s %s twice", ErrOptions, what, name)
		}
	}
	return nil
}

// Names is names as a sentence has them.
func Names[T ~string](names []T) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}
