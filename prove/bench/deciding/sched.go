package deciding

import (
	"context"
	"fmt"
	"slices"
	"time"

	"meridian/decide/policy"
	"meridian/kv"
	"meridian/prove/bench"
)

// SchedOptions is what RunSched measures.
type SchedOptions struct {
	Options
	Requests int // that run
}

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

// RunSched measures a decision of every policy, with memory to spare, with
// none, and where everybody asks for more than there is, beside one that sorts all requests by phase and arrival and fills the
// step from the front.
func RunSched(ctx context.Context, o SchedOptions) (*Report, error) {
	if o.Requests < 16 || o.Requests > 1<<16 {
		return nil, fmt.Errorf("%w: %d requests; 16 to %d", bench.ErrOptions, o.Requests, 1<<16)
	}
	var tasks []Task
	for _, name := range policy.Names() {
		for _, c := range crowds {
			p, err := policy.New(name, policy.Options{})
			if err != nil {
				return nil, err
			}
			task := Task{What: fmt.Sprintf("%s, %d run%s", name, o.Requests, c.what), Beside: "a sort"}
			if o.Requests <= 1000 {
				task.Bound = decideBound
			}
			s := c.make(int32(o.Requests))
			task.Ours, task.Theirs = decisions(p, s), decisions(&plainPolicy{}, s)
			tasks = append(tasks, task)
		}
	}
	return Measure(ctx, o.Options, tasks)
}

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
	dice := uint64(1)
	for i := range running + running/4 {
		r := policy.Request{
			Arrived: s.Now - policy.Instant(running+running/4-i)*policy.Millisecond, Tenant: i % 16, Prompt: 500, Pending: 500,
		}
		if i < running {
			r.State, r.Phase, r.Pending, r.LastServed = policy.Running, kv.Think, 1, s.Now
			r.Think = int32(rollOf(&dice, 4000))
			if i%3 == 0 {
				r.Phase, r.Output, r.FirstOutput = kv.Output, 1+int32(rollOf(&dice, 600)), s.Now-policy.Second
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
) func() (Lap, error) {
	d := &policy.Decision{}
	return func() (Lap, error) {
		n := max(1, 1<<18/len(s.Requests))
		p.Decide(s, d) // its memory has grown
		start := time.Now()
		for range n {
			p.Decide(s, d)
		}
		if len(d.Run) == 0 {
			return Lap{}, fmt.Errorf("nobody of %d runs", len(s.Requests))
		}
		return Lap{n, time.Since(start)}, nil
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
