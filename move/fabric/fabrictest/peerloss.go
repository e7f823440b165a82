package fabrictest

import (
	"context"
	"time"

	"meridian/move/fabric"
)

var deathPlays = []testCase{
	{name: "peer dies while it is read from", rounds: 5, run: func(s *fixture) { playDeath(s, fabric.Read) }},
	{name: "peer dies while it is written to", rounds: 5, run: func(s *fixture) { playDeath(s, fabric.Write) }},
	{name: "peer dies before and after", run: playDeathAround},
	{name: "peer dies while stalled", run: playDeathStalled},
	{name: "poster dies while it reads", rounds: 4, run: func(s *fixture) { playPosterDeath(s, fabric.Read) }},
	{name: "poster dies while it writes", rounds: 4, run: func(s *fixture) { playPosterDeath(s, fabric.Write) }},
}

// Everything that was posted ends, says why, and leaves near memory alone.
func playDeath(s *fixture, op fabric.Op) {
	s.needOp(op)
	s.needKill()
	running := s.postHeavy(4, op)
	s.pause()
	s.o.Kill(s.far.fabric)
	for _, t := range running {
		t.end()
		t.named(fabric.ErrPeerGone)
	}
	s.close(s.far)
	s.reclaim(running...)
	s.gone()
}

// gone checks that near knows of the death and can live with it.
func (s *fixture) gone() {
	s.Helper()
	s.eventually("LinkLost names the dead peer", func() bool { return s.near.events.hasLost(s.far.self.Name) })
	near := s.memory(s.near, 4096)
	dead := fabric.List{{Region: 1, Epoch: 1}}
	if err := dead[0].Spans.Add(0, 100); err != nil {
		s.Fatal(err)
	}
	err := s.bounded("a transfer with a dead peer", func(ctx context.Context) error {
		prepared, err := s.link.Prepare(s.ops()[0], pieces{{near, 0, 100}}.list(s), dead)
		if err != nil {
			return err
		}
		defer prepared.Release()
		ctx, cancel := context.WithTimeout(ctx, min(s.o.Patience/4, 2*time.Second)) // it may be dialled until then
		defer cancel()
		t, err := s.link.Post(ctx, prepared, fabric.PostOptions{ID: s.id()})
		if err != nil {
			return err
		}
		return t.Await(context.Background())
	})
	if err == nil {
		s.Error("a transfer with a dead peer was done")
	}
	s.checkAll()
}

// Before: the next post fails. After: what is done stays done.
func playDeathAround(s *fixture) {
	s.needKill()
	var done []*posted
	for _, op := range s.ops() {
		t := s.post(s.light(op))
		t.must(fabric.Done)
		done = append(done, t)
	}
	s.o.Kill(s.far.fabric)
	s.gone()
	for _, t := range done {
		if state, err := t.Status(); state != fabric.Done || err != nil {
			s.Errorf("%v was done, then %v, %v", t.Op, state, err)
		}
		t.cancel()
	}
	s.close(s.far)
	s.checkAll()
}

func playDeathStalled(s *fixture) {
	s.needKill()
	var running []*posted
	for _, op := range s.ops() {
		running = append(running, s.ready(s.light(op)))
	}
	s.stall()
	for _, t := range running {
		t.start()
	}
	running[0].stillRuns()
	s.o.Kill(s.far.fabric)
	for _, t := range running {
		if state := t.end(); state == fabric.Done {
			s.Errorf("%v was stalled, its peer died, and it was done", t.Op)
		}
		t.named(fabric.ErrPeerGone)
	}
	s.close(s.far)
	s.reclaim(running...)
}

// When who posted is gone, the side that serves falls quiet by itself.
func playPosterDeath(s *fixture, op fabric.Op) {
	s.needOp(op)
	s.needKill()
	running := s.postHeavy(4, op)
	s.pause()
	s.o.Kill(s.near.fabric)
	for _, t := range running {
		t.end()
	}
	for _, t := range running {
		section := t.plan.far[0].memory.region.Section
		s.eventually("far memory is let go", func() bool { return section.References() == 0 })
		state := t.settle()
		t.plan.far[0].memory.renew()
		t.plan.near[0].memory.renew()
		if _, err := t.Status(); state != fabric.Done && err == nil {
			s.Errorf("%v ended %v without saying why", op, state)
		}
	}
	time.Sleep(s.o.Quiet)
	s.checkAll()
	s.close(s.near)
}
