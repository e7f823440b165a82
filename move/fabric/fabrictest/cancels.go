package fabrictest

import (
	"context"
	"errors"
	"time"

	"meridian/move/fabric"
)

var cancelPlays = []testCase{
	{name: "cancel a read at any moment", rounds: 10, run: func(s *fixture) { playCancel(s, fabric.Read) }},
	{name: "cancel a write at any moment", rounds: 10, run: func(s *fixture) { playCancel(s, fabric.Write) }},
	{name: "cancel what is stalled", run: playCancelStalled},
	{name: "cancel what is done", run: playCancelDone},
	{name: "deadline of a read at any moment", rounds: 4, run: func(s *fixture) { playDeadline(s, fabric.Read) }},
	{name: "deadline of a write at any moment", rounds: 4, run: func(s *fixture) { playDeadline(s, fabric.Write) }},
	{name: "deadline that has passed", run: playDeadlinePassed},
	{name: "deadline of what is stalled", run: playDeadlineStalled},
	{name: "give up waiting", run: playGiveUpWaiting},
}

// cancel must return soon, with the transfer over.
func (p *posted) cancel() {
	p.s.Helper()
	if err := p.s.bounded("Cancel", p.Cancel); err != nil {
		p.s.Errorf("cancel: %v", err)
	}
	if state, _ := p.Status(); !state.Ended() {
		p.s.Errorf("%v is %v after Cancel", p.Op, state)
	}
}

// At whatever moment Cancel comes, near memory is the caller's when it returns.
func playCancel(s *fixture, op fabric.Op) {
	s.needOp(op)
	t := s.ready(s.heavy(op))
	o := s.onceOptions()
	s.far.events.onNotified(func(fabric.Notification) error {
		t.placed()
		return nil
	})
	t.startAs(context.Background(), o)
	s.pause()
	if s.random.IntN(2) == 0 {
		go func() { _ = t.Cancel(s.soon()) }() // twice at once is no harder
	}
	t.cancel()
	s.far.events.onNotified(nil)
	t.named(fabric.ErrCancelled)
	s.reclaim(t)
	if state, _ := t.Status(); state == fabric.NotSubmitted && len(s.far.events.of(o.ID)) > 0 {
		s.Error("a transfer of which no byte left was notified")
	}
	s.works()
}

func playCancelStalled(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		resume := s.stall()
		t.start()
		t.stillRuns()
		t.cancel()
		t.named(fabric.ErrCancelled)
		if state, _ := t.Status(); state == fabric.Done {
			s.Errorf("%v was stalled, cancelled, and done", op)
		}
		if op == fabric.Read {
			s.reclaim(t)
			resume()
		} else {
			t.plan.near[0].memory.renew()
			resume()
			time.Sleep(s.o.Quiet)
			t.settle()
		}
		time.Sleep(s.o.Quiet)
		s.checkAll()
	}
	s.works()
}

func playCancelDone(s *fixture) {
	for _, op := range s.ops() {
		t := s.post(s.light(op))
		t.must(fabric.Done)
		t.cancel()
		if state, err := t.Status(); state != fabric.Done || err != nil {
			s.Errorf("cancelling what was done made it %v, %v", state, err)
		}
		s.checkAll()
	}
	s.works()
}

func playDeadline(s *fixture, op fabric.Op) {
	s.needOp(op)
	t := s.ready(s.heavy(op))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1)<<s.random.IntN(24))
	defer cancel()
	t.startLate(ctx)
	s.works()
}

func playDeadlinePassed(s *fixture) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, op := range s.ops() {
		s.ready(s.heavy(op)).startLate(ctx)
	}
	s.works()
}

// startLate posts with a deadline that may be over before Post looks at it.
func (p *posted) startLate(ctx context.Context) {
	p.s.Helper()
	err := p.tryStart(ctx, fabric.PostOptions{ID: p.s.id()})
	if err == nil {
		p.end()
		p.named(fabric.ErrDeadline)
		p.s.reclaim(p)
	} else if !errors.Is(err, fabric.ErrDeadline) && !errors.Is(err, context.DeadlineExceeded) {
		p.s.Errorf("post: %v, want %v", err, fabric.ErrDeadline)
	}
	p.s.checkAll()
}

func playDeadlineStalled(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		resume := s.stall()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		t.startAs(ctx, fabric.PostOptions{ID: s.id()})
		if state := t.end(); state == fabric.Done {
			s.Errorf("%v was stalled, and done", op)
		}
		t.named(fabric.ErrDeadline)
		cancel()
		resume()
		s.reclaim(t)
	}
	s.works()
}

// Who stops waiting for a transfer has not stopped it.
func playGiveUpWaiting(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		resume := s.stall()
		t.start()
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Quiet)
		if err := t.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("giving up: %v, want %v", err, context.DeadlineExceeded)
		}
		cancel()
		resume()
		t.must(fabric.Done)
		s.checkAll()
	}
	s.works()
}
