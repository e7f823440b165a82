package policy

import (
	"fmt"
	"slices"

	"meridian/kv"
)

// world is an engine for tests: it carries decisions out, and refuses those
// that break a limit.
type world struct {
	s        Snapshot
	plans    []plan // beside s.Requests
	d        Decision
	lastStep int
	finished []finish
}

// plan is what a request will turn out to be; policies do not see it.
type plan struct {
	id                    int
	prompt, think, output int32
	ready                 int // the step at which a copy ends
	waited, longest       int // steps without service, now and at most
	served                int64
}

type finish struct {
	plan
	at Instant
	r  Request
}

func newWorld(l Limits, tenants int) *world {
	return &world{s: Snapshot{
		Now: Second, Limits: l, FreeBlocks: l.Blocks, Tenants: make([]Tenant, tenants),
		Costs: Costs{PrefillToken: 20 * Microsecond, CopiedBlock: 10 * Microsecond, RecalledBlock: 10 * Microsecond, Step: 20 * Millisecond},
	}}
}

func (w *world) arrive(id int, tenant, prompt, think, output int32) {
	w.s.Requests = append(w.s.Requests, Request{Arrived: w.s.Now, Tenant: tenant, Pending: prompt, Prompt: prompt})
	w.plans = append(w.plans, plan{id: id, prompt: prompt, think: think, output: output})
}

// check says what of a decision breaks a limit or names what cannot be.
func (w *world) check(bounded bool) error {
	l, d := &w.s.Limits, &w.d
	if d.Steps < 1 {
		return fmt.Errorf("holds for %d steps", d.Steps)
	}
	free := w.s.FreeBlocks
	named := make(map[int32]bool)
	once := func(i int32) error {
		if i < 0 || int(i) >= len(w.s.Requests) || named[i] {
			return fmt.Errorf("request %d is named twice or does not exist", i)
		}
		named[i] = true
		return nil
	}
	holding, lost := 0, 0
	for i := range w.s.Requests {
		if w.s.Requests[i].Holds() {
			holding++
		}
	}
	for _, v := range d.Victims {
		if err := once(v.Request); err != nil {
			return err
		}
		r := &w.s.Requests[v.Request]
		if !r.Holds() {
			return fmt.Errorf("victim %d is %s", v.Request, r.State)
		}
		switch v.Reclaim {
		case Recompute:
			free += r.Blocks
			lost++
		case Offload:
			if w.s.Costs.CopiedBlock == 0 {
				return fmt.Errorf("victim %d is copied out, where nothing can be copied", v.Request)
			}
			free += r.Copied
			lost++
		}
	}
	if most := max(1, int(l.PreemptMaxFraction*float64(holding))); bounded && lost > most {
		return fmt.Errorf("%d of %d lose their blocks, %d may", lost, holding, most)
	}
	for _, i := range d.Recall {
		if err := once(i); err != nil {
			return err
		}
		if w.s.Requests[i].State != Away {
			return fmt.Errorf("recalled %d is %s", i, w.s.Requests[i].State)
		}
		free -= w.s.Requests[i].Blocks
	}
	var tokens int32
	for _, run := range d.Run {
		if err := once(run.Request); err != nil {
			return err
		}
		r := &w.s.Requests[run.Request]
		if !r.Holds() && r.State != Waiting || run.Tokens < 1 || run.Tokens > r.Pending {
			return fmt.Errorf("%d runs %d of %d tokens and is %s", run.Request, run.Tokens, r.Pending, r.State)
		}
		tokens += run.Tokens
		free -= l.need(r, run.Tokens)
	}
	if tokens > l.Tokens || len(d.Run) > int(l.Sequences) || free < 0 {
		return fmt.Errorf("%d tokens, %d sequences, %d blocks are left: more than %+v", tokens, len(d.Run), free, *l)
	}
	return nil
}

// apply carries the decision out, with a step that takes so long.
func (w *world) apply(step Instant) (events bool) {
	w.lastStep++
	for _, v := range w.d.Victims {
		r := &w.s.Requests[v.Request]
		switch v.Reclaim {
		case Recompute:
			w.s.FreeBlocks += r.Blocks
			*r = Request{
				Arrived: r.Arrived, LastServed: r.LastServed, ThoughtEnd: r.ThoughtEnd, FirstOutput: r.FirstOutput, Tenant: r.Tenant,
				Pending: r.Length + r.Pending, Prompt: r.Prompt, Think: r.Think, Output: r.Output, Preemptions: r.Preemptions + 1, Phase: r.Phase,
			}
		case Offload:
			w.s.FreeBlocks += r.Copied
			r.State, r.Preemptions, r.Since = Leaving, r.Preemptions+1, 0
			w.plans[v.Request].ready = w.lastStep + 2
		case Keep:
			r.State = Paused
		}
		events = true
	}
	for _, i := range w.d.Recall {
		r := &w.s.Requests[i]
		w.s.FreeBlocks -= r.Blocks
		r.State = Recalling
		w.plans[i].ready = w.lastStep + 2
		events = true
	}
	ran := make([]bool, len(w.s.Requests))
	for _, run := range w.d.Run {
		ran[run.Request] = true
	}
	w.s.Now += step
	for _, run := range w.d.Run {
		events = w.compute(run) || events
	}
	for i := range w.s.Requests {
		r, p := &w.s.Requests[i], &w.plans[i]
		if p.waited++; ran[i] {
			p.waited = 0
		} else if r.State == Running {
			r.State = Paused
			events = true
		}
		p.longest = max(p.longest, p.waited)
		if r.State == Leaving && p.ready <= w.lastStep {
			w.s.FreeBlocks += r.Blocks - r.Copied
			r.State, r.Copied = Away, r.Blocks
			events = true
		}
		if r.State == Recalling && p.ready <= w.lastStep {
			r.State = Paused
			events = true
		}
	}
	return w.end() || events
}

// compute is one run of a step.
func (w *world) compute(run Allotment) (events bool) {
	r, p := &w.s.Requests[run.Request], &w.plans[run.Request]
	if r.State == Waiting {
		r.Since, events = 0, true
	}
	events = events || r.State != Running || !r.Decodes()
	more := w.s.Limits.need(r, run.Tokens)
	w.s.FreeBlocks -= more
	r.Blocks += more
	r.Length += run.Tokens
	r.Pending -= run.Tokens
	r.State, r.LastServed = Running, w.s.Now
	p.served += int64(run.Tokens)
	w.s.Tenants[r.Tenant].Served += int64(run.Tokens)
	if r.Pending > 0 {
		return true
	}
	r.Pending, r.Since = 1, r.Since+1
	w.s.Tenants[r.Tenant].Served++
	if r.Phase == kv.Think && slices.Contains(w.d.Force, run.Request) {
		p.think = min(p.think, r.Think+1)
	}
	switch {
	case r.Think < p.think:
		r.Think++
		r.Phase, events = kv.Think, events || r.Phase != kv.Think
	default:
		if r.Phase != kv.Output {
			r.Phase, r.ThoughtEnd, r.FirstOutput, events = kv.Output, w.s.Now, w.s.Now, true
		}
		r.Output++
	}
	return events
}

// end takes out those who have said everything.
func (w *world) end() bool {
	before := len(w.s.Requests)
	for i := before - 1; i >= 0; i-- {
		r, p := &w.s.Requests[i], &w.plans[i]
		if r.Think >= p.think && r.Output >= p.output {
			w.s.FreeBlocks += r.Blocks
			w.finished = append(w.finished, finish{plan: *p, at: w.s.Now, r: *r})
			w.s.Requests = slices.Delete(w.s.Requests, i, i+1)
			w.plans = slices.Delete(w.plans, i, i+1)
		}
	}
	return len(w.s.Requests) < before
}
