package engine

import (
	"slices"
	"sync"
	"testing"
)

// A measurement of the engine is told of every step what its time depends on.
func TestStepsAreTold(t *testing.T) {
	var mu sync.Mutex
	var steps []Step
	e := join(t, nil, Options{MaxRunning: 8, StepTokens: 8, OnStep: func(s Step) {
		mu.Lock()
		defer mu.Unlock()
		if s.Took <= 0 {
			t.Errorf("a step that took %v", s.Took)
		}
		s.Took = 0
		steps = append(steps, s)
	}})
	ask(t, e, Request{Prompts: [][]uint32{prompt(3, 12)}, MaxTokens: 3, IgnoreEOS: true})
	// The prompt in pieces of 8 and 4, then a token a step.
	want := []Step{
		{Sequences: 1, Tokens: 8, Pairs: 8 * 9 / 2},
		{Sequences: 1, Tokens: 4, Pairs: 4*8 + 4*5/2},
		{Sequences: 1, Tokens: 1, Context: 13},
		{Sequences: 1, Tokens: 1, Context: 14},
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, want) {
		t.Errorf("%+v, want %+v", steps, want)
	}
}
