package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"meridian/engine/batch"
)

// However answers are ordered about, paused and thrown out between any two steps, their
// tokens are those that they would have alone.
func TestNothingDependsOnOrders(t *testing.T) {
	var requests []Request
	for i := range 16 {
		requests = append(requests, Request{
			Prompts: [][]uint32{prompt(uint64(i%5), 3+i*5)}, MaxTokens: 40, IgnoreEOS: true, N: 1 + i%2,
			Sampling: Sampling{Temperature: float64(i % 3), Seed: uint64(i)},
		})
	}
	alone := join(t, nil, Options{})
	want := make([][]told, len(requests))
	for i, r := range requests {
		want[i], _ = ask(t, alone, r)
	}

	var e *Engine
	dice := rand.New(rand.NewPCG(18, 10))
	var preempted, paused int
	e = join(t, nil, Options{Blocks: 60, BlockTokens: 8, MaxRunning: 7, StepTokens: 11, OnStep: func(Step) {
		list := sequences(e)
		if len(list) == 0 {
			return
		}
		var o batch.Order
		for range dice.IntN(4) {
			o.Run = append(o.Run, batch.Allotment{Sequence: list[dice.IntN(len(list))], Tokens: dice.IntN(5)})
			o.Victims = append(o.Victims, list[dice.IntN(len(list))])
		}
		e.scheduler.Obey(o)
		q := list[dice.IntN(len(list))]
		switch dice.IntN(8) {
		case 0:
			if e.scheduler.Preempt(q) {
				preempted++
			}
		case 1:
			paused++
			e.scheduler.Pause(q, batch.Governed)
			time.AfterFunc(time.Millisecond, func() { e.post(func() { e.scheduler.Unpause(q, batch.Governed) }) })
		}
	}})
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			if got, _ := ask(t, e, r); !gocmp.Equal(got, want[i]) {
				t.Errorf("request %d: %s", i, gocmp.Diff(want[i], got))
			}
		})
	}
	all.Wait()
	if idle(t, e); preempted == 0 || paused == 0 {
		t.Errorf("%d were thrown out and %d paused: the test tests too little", preempted, paused)
	}
}

// sequences are those that an engine has, in an order that dice can rely on.
func sequences(e *Engine) []*batch.Sequence {
	var list []*batch.Sequence
	for q := range e.requests {
		for _, c := range q.choices {
			list = append(list, &c.sequence)
		}
	}
	slices.SortFunc(list, func(a, b *batch.Sequence) int { return cmp.Compare(len(a.Tokens), len(b.Tokens)) })
	return list
}
