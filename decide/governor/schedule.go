package governor

import (
	"fmt"

	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

// schedule asks the policy and says in sequences what it said in indexes.
func (g *Governor) schedule(f *Facts) {
	d := &g.decision
	if len(g.sequences) == 0 {
		return
	}
	g.snapshot.Now, g.snapshot.Limits, g.snapshot.Costs, g.snapshot.FreeBlocks = f.Now, g.options.Limits, g.Costs(), f.FreeBlocks
	g.options.Policy.Decide(&g.snapshot, &g.policy)
	d.Steps, d.Until = max(1, g.policy.Steps), g.policy.Until
	for _, index := range g.policy.Force {
		if r := &g.snapshot.Requests[index]; r.Phase == kv.Think {
			g.forceFor(g.sequences[index], r, HardCap)
		}
	}
	for _, v := range g.policy.Victims {
		g.preempt(v)
	}
	for _, index := range g.policy.Recall {
		if r := &g.snapshot.Requests[index]; r.State == policy.Away && !g.calibration.FabricDown {
			r.State = policy.Recalling
			d.Recall = append(d.Recall, g.sequences[index].number)
		}
	}
	g.order()
}

// order is who runs; of those who hold blocks, the rest pauses.
func (g *Governor) order() {
	d := &g.decision
	for _, run := range g.policy.Run {
		s, r := g.sequences[run.Request], &g.snapshot.Requests[run.Request]
		if s.going {
			continue // the engine has yet to stop it
		}
		d.Order = append(d.Order, Allotment{Sequence: s.number, Tokens: run.Tokens})
		if r.State == policy.Paused || s.paused {
			d.Resume = append(d.Resume, s.number)
		}
		s.runs, s.paused = true, false
		switch r.Phase {
		case kv.Think:
			d.Thinking++
		case kv.Output:
			d.Answering++
		}
		if r.Phase == kv.Think && s.forced == Free && !g.options.Follows {
			d.Steps = max(1, min(d.Steps, s.thought.Left(r.Think)))
		}
	}
	for i, s := range g.sequences {
		r := &g.snapshot.Requests[i]
		switch {
		case s.runs && r.State == policy.Paused:
			r.State = policy.Running
		case s.runs: // one that waits runs when the engine says so
		case r.State == policy.Running:
			r.State, s.paused = policy.Paused, true
			d.Pause = append(d.Pause, s.number)
			s.chosen = s.chosen && s.chosenAt == g.counters.Steps
		}
		g.standing(s, r)
		s.runs = false
	}
}

// preempt carries out that a sequence stops.
func (g *Governor) preempt(v policy.Victim) {
	s, r := g.sequences[v.Request], &g.snapshot.Requests[v.Request]
	if v.Reclaim == policy.Offload && (g.blocks == nil || g.calibration.FabricDown) {
		v.Reclaim = policy.Recompute // there is nowhere to copy to
	}
	g.counters.Preempted[v.Reclaim]++
	s.chosen, s.chosenAt, s.victim = true, g.counters.Steps, v
	if v.Reclaim == policy.Keep {
		return // order leaves it out
	}
	g.decision.Preempt = append(g.decision.Preempt, Preempt{Sequence: s.number, Reclaim: v.Reclaim, Reason: v.Reason})
	s.going, s.before, s.ignored = true, *r, 0
	r.Preemptions++
	r.Since = 0
	if v.Reclaim == policy.Offload {
		r.State = policy.Leaving
		return
	}
	g.unwish(s)
	s.forgo(r)
}

// forgo makes a sequence one that holds nothing, in the eyes of a policy.
func (s *sequence) forgo(r *policy.Request) {
	r.State, r.Length, r.Blocks, r.Copied = policy.Waiting, 0, 0, 0
	r.Pending = max(1, r.Prompt+s.generated)
}

// stopped says that a sequence is off the engine.
func (g *Governor) stopped(stopped *Stopped) error {
	s := g.byNumber[stopped.Sequence]
	if s == nil {
		return fmt.Errorf("%w: %w: %d has stopped", ErrContradiction, phase.ErrUnknown, stopped.Sequence)
	}
	r := g.request(s)
	asked := s.going
	s.going, s.stopped = false, g.counters.Steps
	switch {
	case stopped.Lost:
		if !asked {
			r.Preemptions++ // of the engine's own accord
			r.Since = 0
		}
		g.recompute(s, r)
	case r.State == policy.Leaving && g.blocks != nil:
		g.mayLeave(s)
	case r.State == policy.Running:
		r.State = policy.Paused
	}
	return nil
}

// recompute gives up what a sequence holds, here and elsewhere.
func (g *Governor) recompute(s *sequence, r *policy.Request) {
	s.forgo(r)
	s.holds = false
	g.unwish(s)
	if g.blocks != nil {
		g.contradicted(g.blocks.End(s.holder))
		s.holder = g.blocks.Admit()
	}
}

// forgetCopies has those who are away computed anew once the fabric has been down
// for as long as that takes: waiting longer would gain nothing.
func (g *Governor) forgetCopies(now policy.Instant) {
	if !g.calibration.FabricDown {
		return
	}
	for i, s := range g.sequences {
		r := &g.snapshot.Requests[i]
		if r.State == policy.Away && now-g.downSince >= g.calibration.Recompute(r.Prompt+s.generated) {
			g.recompute(s, r)
			g.decision.Preempt = append(g.decision.Preempt, Preempt{Sequence: s.number, Reclaim: policy.Recompute})
		}
	}
}

// Phase is where a sequence stands; one that is not known is Complete.
func (g *Governor) Phase(number phase.Sequence) kv.Phase {
	if s := g.byNumber[number]; s != nil {
		return g.request(s).Phase
	}
	return kv.Complete
}
