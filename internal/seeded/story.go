package seeded

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Entry is one thing that happened, put into words only when a reader wants to
// read it.
type Entry struct {
	At     time.Duration
	Format string
	Args   []any
}

func (e *Entry) String() string {
	return fmt.Sprintf("%13.3fms  %s", float64(e.At)/float64(time.Millisecond), fmt.Sprintf(e.Format, e.Args...))
}

// Violation is a promise that was broken.
type Violation struct {
	// Rule names the promise.
	Rule string
	// What happened instead.
	What string
	// At is when, by the world's clock; Event how much of the story came before.
	At    time.Duration
	Event int
}

func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Rule, v.What) }

// Result is what became of a world; T counts what was exercised.
type Result[T any] struct {
	Seed      uint64
	Violation *Violation // nil: all promises were kept
	Tally     T
	World     string // what was drawn for it
	State     string // of everything, when the promise was broken
	Simulated time.Duration
	Story     []Entry
}

// Tell is the violation and the last so many things before it.
func (r *Result[T]) Tell(most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s: %s\nthe world: %s\n", r.Seed, r.Violation.Rule, r.Violation.What, r.World)
	before := r.Story[:r.Violation.Event]
	for i := max(0, len(before)-most); i < len(before); i++ {
		fmt.Fprintln(&b, &before[i])
	}
	return b.String() + r.State
}

// Hash is one number for the whole story.
func (r *Result[T]) Hash() uint64 {
	h := fnv.New64a()
	for i := range r.Story {
		fmt.Fprintln(h, &r.Story[i])
	}
	return h.Sum64()
}
