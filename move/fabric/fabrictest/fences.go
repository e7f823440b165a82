package fabrictest

import (
	"time"

	"meridian/move/fabric"
)

var fencePlays = []testCase{
	{name: "deregister near memory while it is read into", rounds: 4, run: func(s *fixture) { playDeregister(s, fabric.Read, true) }},
	{name: "deregister near memory while it is written from", rounds: 4, run: func(s *fixture) { playDeregister(s, fabric.Write, true) }},
	{name: "deregister far memory while it is read from", rounds: 4, run: func(s *fixture) { playDeregister(s, fabric.Read, false) }},
	{name: "deregister far memory while it is written to", rounds: 4, run: func(s *fixture) { playDeregister(s, fabric.Write, false) }},
	{name: "deregister while stalled", run: playDeregisterStalled},
}

// After Deregister the memory is its owner's alone, and only transfers that
// touch it have noticed.
func playDeregister(s *fixture, op fabric.Op, near bool) {
	s.needOp(op)
	running := s.postHeavy(6, op)
	doomed, others := running[:3], running[3:]
	s.random.Shuffle(len(doomed), func(i, j int) { doomed[i], doomed[j] = doomed[j], doomed[i] })
	s.pause()
	for _, t := range doomed {
		t.touched(near).deregister()
	}
	for _, t := range doomed {
		t.stopped(near, func() {})
		t.named(fabric.ErrUnknownRegion, fabric.ErrStaleEpoch)
	}
	for _, t := range others {
		t.must(fabric.Done)
	}
	time.Sleep(s.o.Quiet)
	s.checkAll()
}

// touched is the memory of one side.
func (p *posted) touched(near bool) *memory {
	if near {
		return p.plan.near[0].memory
	}
	return p.plan.far[0].memory
}

// stopped is for a transfer that may not touch its memory on one side any more.
// The owner gives that new bytes: they stay, and the other side does not see them.
func (p *posted) stopped(near bool, then func()) {
	p.s.Helper()
	m := p.touched(near)
	destination := p.plan.destination()
	if destination[0].memory == m {
		old, got := destination.gather(), destination.hold()
		destination.scatter(got)
		m.check()
		m.renew()
		then()
		p.verdict(p.end(), old, got)
	} else {
		m.check()
		m.renew()
		then()
		p.settle()
	}
}

// Deregister needs no peer: near memory is free, and its transfers are over,
// while the other side does nothing.
func playDeregisterStalled(s *fixture) {
	for _, op := range s.ops() {
		for _, near := range []bool{true, false} {
			t := s.ready(s.light(op))
			resume := s.stall()
			t.start()
			t.stillRuns()
			t.touched(near).deregister()
			t.stopped(near, func() {
				if !near {
					resume() // near learns of it when far speaks again
				}
			})
			t.named(fabric.ErrUnknownRegion, fabric.ErrStaleEpoch)
			if state, _ := t.Status(); state == fabric.Done {
				s.Errorf("%v was stalled, fenced, and done", op)
			}
			resume()
			time.Sleep(s.o.Quiet)
			s.checkAll()
		}
	}
	s.works()
}

// stillRuns makes sure that a stalled transfer is one.
func (p *posted) stillRuns() {
	p.s.Helper()
	time.Sleep(p.s.o.Quiet)
	if state, err := p.Status(); state.Ended() {
		p.s.Fatalf("a stalled %v ended %v: %v", p.Op, state, err)
	}
}
