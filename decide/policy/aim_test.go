package policy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"meridian/decide/policy"
	"meridian/internal/rounds"
	"meridian/kv"
)

// decideBound is what a decision for a thousand requests may take, in
// nanoseconds.
const decideBound = 50_000

// crowds are the engines that decisions are measured on.
var crowds = []struct {
	what string
	make func(running int32) *policy.Snapshot
}{
	{"", crowd},
	{", no block is free", func(running int32) *policy.Snapshot {
		s := crowd(running)
		s.FreeBlocks = 0
		return s
	}},
	{", half of them lack blocks in vain", starve},
}

// aims are decisions of every policy, with memory to spare, with none, and where half of the
// requests ask for more than there is, beside one that sorts all requests by phase and arrival
// and fills the step from the front.
func aims(running int) (tasks []rounds.Task, err error) {
	for _, name := range policy.Names() {
		for _, c := range crowds {
			p, err := policy.New(name, policy.Options{})
			if err != nil {
				return nil, err
			}
			s := c.make(int32(running))
			tasks = append(tasks, rounds.Task{
				What: fmt.Sprintf("%s, %d run%s", name, running, c.what), Bound: decideBound,
				Ours: decisions(p, s), Beside: "sort", Theirs: decisions(&plainPolicy{}, s),
			})
		}
	}
	return tasks, nil
}

// BenchmarkAim is a decision for a thousand requests that run, and a quarter as many that wait.
func BenchmarkAim(b *testing.B) {
	tasks, err := aims(1000)
	if err != nil {
		b.Fatal(err)
	}
	rounds.RunAll(b, tasks)
}

func TestAimsAllocateNothing(t *testing.T) {
	tasks, err := aims(64)
	if err != nil || len(tasks) != len(crowds)*len(policy.Names()) {
		t.Fatalf("%d tasks for %d policies, %v", len(tasks), len(policy.Names()), err)
	}
	for _, task := range tasks {
		if allocations, err := rounds.Once(task); err != nil || allocations > 0.01 {
			t.Errorf("%s allocates %v times, %v", task.What, allocations, err)
		}
	}
}

// Without requests there is nothing to decide, and nothing to measure.
func TestAimOfNoRequest(t *testing.T) {
	tasks, err := aims(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if _, err := rounds.Once(task); !errors.Is(err, errNoneRuns) {
			t.Errorf("%s: %v", task.What, err)
		}
	}
}

var errNoneRuns = errors.New("no request runs")

// crowd is an engine with so many that run, a third of which answer, and a
// quarter as many that wait.
func crowd(running int32) *policy.Snapshot {
	s := &policy.Snapshot{
		Now: 1000 * policy.Second, Tenants: make([]policy.Tenant, 16), FreeBlocks: 1 << 16,
		Limits: policy.Limits{Tokens: 8192, Sequences: running, BlockTokens: 16, Blocks: 1 << 20, PreemptMaxFraction: 0.1},
		Costs: policy.Costs{
			PrefillToken: 100 * policy.Microsecond, CopiedBlock: 500 * policy.Microsecond, RecalledBlock: 500 * policy.Microsecond,
			Step: 30 * policy.Millisecond, FreeTokens: 128,
		},
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range running + running/4 {
		r := policy.Request{
			Arrived: s.Now - policy.Instant(running+running/4-i)*policy.Millisecond, Tenant: i % 16, Prompt: 500, Pending: 500,
		}
		if i < running {
			r.State, r.Phase, r.Pending, r.LastServed = policy.Running, kv.Think, 1, s.Now
			r.Think = dice.Int32N(4000)
			if i%3 == 0 {
				r.Phase, r.Output, r.FirstOutput = kv.Output, 1+dice.Int32N(600), s.Now-policy.Second
			}
			r.Length = r.Prompt + r.Think + r.Output - 1
			r.Blocks = (r.Length + 15) / 16
		}
		s.Requests = append(s.Requests, r)
	}
	return s
}

// starve is a crowd without a free block whose second half have begun long
// prompts: each asks for more blocks than all behind it hold, and was served at
// another time.
func starve(running int32) *policy.Snapshot {
	s := crowd(running)
	s.FreeBlocks = 0
	for i := range running {
		r := &s.Requests[i]
		r.Length, r.Blocks, r.LastServed = 15, 1, s.Now-policy.Instant(i*7919%running)
		if i >= running/2 {
			r.State, r.Phase, r.Pending, r.Think, r.Output, r.FirstOutput = policy.Paused, kv.Prefill, 9000-i, 0, 0, 0
		}
	}
	return s
}

// decisions asks a policy as often as makes a round.
func decisions(p interface {
	Decide(*policy.Snapshot, *policy.Decision)
}, s *policy.Snapshot,
) func() (rounds.Lap, error) {
	d := &policy.Decision{}
	return func() (rounds.Lap, error) {
		n := 1 << 18 / max(1, len(s.Requests))
		p.Decide(s, d) // its memory has grown
		start := time.Now()
		for range n {
			p.Decide(s, d)
		}
		if len(d.Run) == 0 {
			return rounds.Lap{}, errNoneRuns
		}
		return rounds.Lap{Operations: n, Took: time.Since(start)}, nil
	}
}

// plainPolicy is the least that a policy with phases takes: no victims, no
// bounds, no promise.
type plainPolicy struct{ order []int32 }

func (p *plainPolicy) Decide(s *policy.Snapshot, d *policy.Decision) {
	p.order, d.Run = p.order[:0], d.Run[:0]
	for i := range s.Requests {
		p.order = append(p.order, int32(i))
	}
	slices.SortFunc(p.order, func(a, b int32) int {
		x, y := &s.Requests[a], &s.Requests[b]
		if x.Phase != y.Phase {
			return int(y.Phase) - int(x.Phase)
		}
		return int(a - b)
	})
	tokens := s.Limits.Tokens
	for _, i := range p.order {
		if r := &s.Requests[i]; tokens > 0 && len(d.Run) < int(s.Limits.Sequences) {
			run := policy.Allotment{Request: i, Tokens: min(r.Pending, tokens)}
			tokens -= run.Tokens
			d.Run = append(d.Run, run)
		}
	}
}
