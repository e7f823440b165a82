package fabrictest

import (
	"context"
	"errors"
	"time"

	"meridian/move/fabric"
)

var closePlays = []testCase{
	{name: "close the link during transfers", rounds: 4, run: playCloseLink},
	{name: "close near during transfers", rounds: 4, run: playCloseNear},
	{name: "close far during transfers", rounds: 4, run: playCloseFar},
	{name: "close while stalled", run: playCloseStalled},
	{name: "connect again", run: playConnectAgain},
}

// over demands that transfers have ended already, and reclaims their memory.
func (s *fixture) over(running []*posted, causes ...error) {
	s.Helper()
	for _, t := range running {
		if state, _ := t.Status(); !state.Ended() {
			s.Errorf("%v is %v after Close", t.Op, state)
		}
		t.end()
		t.named(causes...)
	}
	s.reclaim(running...)
}

func (s *fixture) closeLink() {
	s.Helper()
	if err := s.bounded("Link.Close", s.link.Close); err != nil {
		s.Errorf("closing the link: %v", err)
	}
}

func (s *fixture) refusesPosts() {
	s.Helper()
	empty, err := s.link.Prepare(s.ops()[0], nil, nil)
	if err == nil {
		_, err = s.link.Post(context.Background(), empty, fabric.PostOptions{ID: s.id()})
		empty.Release()
	}
	if !errors.Is(err, fabric.ErrClosed) {
		s.Errorf("posting on a closed link: %v, want %v", err, fabric.ErrClosed)
	}
	if err := s.link.Notify(s.soon(), s.id(), nil); !errors.Is(err, fabric.ErrClosed) {
		s.Errorf("notifying on a closed link: %v, want %v", err, fabric.ErrClosed)
	}
}

func playCloseLink(s *fixture) {
	running := s.postHeavy(6, s.ops()...)
	s.pause()
	s.closeLink()
	s.over(running, fabric.ErrClosed, fabric.ErrCancelled)
	s.refusesPosts()
	s.closeLink()
	s.link = s.connect()
	s.works()
}

func playCloseNear(s *fixture) {
	running := s.postHeavy(6, s.ops()...)
	s.pause()
	s.close(s.near)
	s.over(running, fabric.ErrClosed, fabric.ErrCancelled)
	s.refusesPosts()
	if _, err := s.near.fabric.Connect(s.soon(), s.far.self); !errors.Is(err, fabric.ErrClosed) {
		s.Errorf("connecting from a closed fabric: %v, want %v", err, fabric.ErrClosed)
	}
}

// The far side's memory is quiet when its Close returns; near hears of it.
func playCloseFar(s *fixture) {
	s.needPeer()
	running := s.postHeavy(6, s.ops()...)
	s.pause()
	s.close(s.far)
	for _, t := range running {
		if t.plan.op == fabric.Write {
			m, destination := t.plan.far[0].memory, t.plan.destination()
			old, got := destination.gather(), destination.hold()
			m.renew()
			t.verdict(t.end(), old, got)
		} else {
			t.settle()
		}
		t.named(fabric.ErrPeerGone, fabric.ErrClosed)
	}
	time.Sleep(s.o.Quiet)
	s.checkAll()
}

func playCloseStalled(s *fixture) {
	var running []*posted
	for _, op := range s.ops() {
		running = append(running, s.ready(s.light(op)))
	}
	s.stall()
	for _, t := range running {
		t.start()
	}
	s.closeLink()
	s.over(running, fabric.ErrClosed, fabric.ErrCancelled)
	s.close(s.near)
}

// Links are independent of each other, also to the same peer.
func playConnectAgain(s *fixture) {
	first := s.link
	s.works()
	s.link = s.connect()
	s.works()
	if err := s.bounded("Link.Close", first.Close); err != nil {
		s.Errorf("closing the first link: %v", err)
	}
	s.works()
}
