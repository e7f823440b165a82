package engine

import (
	"time"

	"meridian/engine/batch"
)

// Step is what one turn of the step loop computed, and how long it took with all
// that belongs to it.
type Step struct {
	Sequences, Tokens int
	// Context is how many tokens those attended to who computed a single one, Pairs
	// how many pairs of tokens attended to each other in longer pieces.
	Context, Pairs int64
	Took           time.Duration
}

func newStep(work []batch.Work, took time.Duration) Step {
	s := Step{Sequences: len(work), Took: took}
	for _, w := range work {
		s.Tokens += w.Count
		before, count := int64(w.Start), int64(w.Count)
		if count == 1 {
			s.Context += before + 1
		} else {
			s.Pairs += count*before + count*(count+1)/2
		}
	}
	return s
}
