package fabrictest

import (
	"context"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

var revokePlays = []testCase{
	{name: "revoke while it is read from", rounds: 8, run: func(s *fixture) { playRevoke(s, fabric.Read) }},
	{name: "revoke while it is written to", rounds: 8, run: func(s *fixture) { playRevoke(s, fabric.Write) }},
	{name: "revoke while stalled", run: playRevokeStalled},
	{name: "revoked before it is posted", run: playRevokedBefore},
}

// revoke takes a grant of far's back, as an agent does: first no new access is let
// in, then what runs is stopped.
func (s *fixture) revoke(grant kv.ID) {
	s.Helper()
	s.far.guard.revoke(grant)
	revoker := s.far.fabric.(fabric.Revoker)
	if err := s.bounded("Revoke", func(ctx context.Context) error { return revoker.Revoke(ctx, grant) }); err != nil {
		s.Errorf("revoke: %v", err)
	}
}

func (s *fixture) needRevoke() {
	s.Helper()
	if _, serves := s.far.fabric.(fabric.Revoker); !serves {
		s.Skip("this fabric serves no peer under grants")
	}
}

// startUnder posts under a grant of its own.
func (p *posted) startUnder() (grant kv.ID) {
	p.s.Helper()
	grant = p.s.id()
	p.startAs(context.Background(), fabric.PostOptions{ID: p.s.id(), Grant: grant})
	return grant
}

// After Revoke far's memory is its owner's alone: what it puts there stays, and
// none of it is seen by what ran under the grant. Others have not noticed.
func playRevoke(s *fixture, op fabric.Op) {
	s.needRevoke()
	s.needOp(op)
	var running []*posted
	for range 6 {
		running = append(running, s.ready(s.heavy(op)))
	}
	var grants []kv.ID
	for _, t := range running {
		grants = append(grants, t.startUnder())
	}
	s.pause()
	for i, t := range running[:3] {
		s.revoke(grants[i])
		t.stopped(false, func() {})
		t.named(fabric.ErrGrantRevoked)
	}
	for _, t := range running[3:] {
		t.must(fabric.Done)
	}
	time.Sleep(s.o.Quiet)
	s.checkAll()
	s.works()
}

func playRevokeStalled(s *fixture) {
	s.needRevoke()
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		resume := s.stall()
		grant := t.startUnder()
		t.stillRuns()
		s.revoke(grant)
		t.stopped(false, resume)
		t.named(fabric.ErrGrantRevoked)
		if state, _ := t.Status(); state == fabric.Done {
			s.Errorf("%v was stalled, its grant revoked, and done", op)
		}
		time.Sleep(s.o.Quiet)
		s.checkAll()
	}
	s.works()
}

// A grant that was revoked opens nothing, and what names it touches nothing.
func playRevokedBefore(s *fixture) {
	s.needRevoke()
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		grant := s.id()
		s.revoke(grant)
		t.startAs(context.Background(), fabric.PostOptions{ID: s.id(), Grant: grant})
		t.must(fabric.NotSubmitted)
		t.named(fabric.ErrGrantRevoked)
		s.checkAll()
	}
	s.works()
}
