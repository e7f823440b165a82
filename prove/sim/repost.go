package sim

import (
	"slices"

	"meridian/move/fabric"
)

// repost posts a request a second time, under a new id: it was prepared once,
// and perhaps long ago.
func (p *process) repost() {
	w := p.world
	old := p.someEnded()
	if old == nil || !old.frozen || old.mutilated {
		return
	}
	t := &transfer{
		op: old.op, from: p, to: old.to, source: slices.Clone(old.source), destination: old.destination,
		request: old.request, grant: old.grant,
	}
	for _, u := range old.units {
		t.units = append(t.units, unit{region: u.region, index: u.index})
	}
	old.releaseUnits()
	for _, u := range t.units {
		u.region.owners[u.index] = t
	}
	w.tally.Again++
	p.launch(t)
}

// someEnded picks a transfer that is over and still of interest.
func (p *process) someEnded() *transfer {
	p.ended = slices.DeleteFunc(p.ended, func(t *transfer) bool { return t.released || !t.over })
	if len(p.ended) == 0 {
		return nil
	}
	return one(p.world.work, p.ended)
}

// repeat posts an id again. While it runs, and for as long as the agent
// remembers it, that is the same transfer. Later the peer answers as it ended,
// on the same connection; on another one, or another rail, it would not know.
func (p *process) repeat() {
	w := p.world
	var t *transfer
	if len(p.running) > 0 && w.work.IntN(2) == 0 {
		t = one(w.work, p.running)
	} else if t = p.someEnded(); t == nil || t.running == nil {
		return
	}
	w.tally.Repeated++
	if _, err := p.agent.Explain(t.id); err == nil && !t.refused {
		w.note(p, t, "is posted again")
		again, err := t.request.Post(p.within(0), t.options())
		if again != t.running || err != nil {
			w.violate("an id is one transfer", t, "%v was posted again, which made another: %v", t, err)
		}
		p.contradict(t)
		return
	}
	if t.over && t.carrier.alive() && w.swarm.rails == 1 && !t.mutilated {
		t.repostForgotten()
	}
}

// contradict posts something else under an id that is taken.
func (p *process) contradict(t *transfer) {
	other := p.someEnded()
	if other == nil || total(other.source) == total(t.source) {
		return
	}
	if again, err := other.request.Post(p.within(0), t.options()); err == nil {
		p.world.violate("an id is one transfer", t, "another request was posted under its id, and became %v", again.ID)
	}
}

// repostForgotten posts a transfer under its id that the agent has forgotten.
func (t *transfer) repostForgotten() {
	w := t.world()
	before := *t
	t.mayStillNotify = t.mayStillNotify || t.state == fabric.InDoubt && t.forbidden == nil
	t.forbidden = firstOf(stale(t), t.grant.refusal())
	t.wasDone = t.wasDone || t.state == fabric.Done
	t.wasInDoubt = t.wasInDoubt || t.state == fabric.InDoubt
	if (t.wasDone || t.wasInDoubt) && t.op == fabric.Write {
		t.forbidden = nil // it is answered as it ended, and may have ended well
	}
	t.over, t.cancelled, t.frozen = false, false, false
	t.units = slices.Clone(t.units)
	for i := range t.units {
		t.units[i].kept = nil
	}
	w.note(t.from, t, "is posted again, and its agent does not remember it")
	if err := t.start(); err != nil {
		w.note(t.from, t, "is not: %v", err)
		*t = before
		t.refused = true
		return
	}
	t.refused = false
	w.tally.Relived++
}

// releaseUnits lets another transfer have the units, which must be as they were left.
func (t *transfer) releaseUnits() {
	t.checkKept()
	t.released, t.units = true, nil
}

// abandon is for a transfer whose client is gone.
func (t *transfer) abandon() {
	t.over, t.state = true, fabric.InDoubt
	for i := range t.source {
		t.source[i].last = len(t.source[i].region.versions) - 1
	}
	t.world().tally.Abandoned++
}
