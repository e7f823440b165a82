package chaos_test

import (
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
)

// What a paused owner sends when it wakes belongs to a transfer that is over:
// no memory hears of it.
func TestOwnerPausedPastTheDeadline(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		posted := s.begin(op, deadline)
		s.owner.Stop()
		s.failed(s.poster.Await(posted), fabric.InDoubt, fabric.ErrDeadline)
		after := s.oldOrNew(s.poster)
		if op == fabric.Write {
			// The source is the caller's again: he may put other things there.
			s.poster.Fill(chaos.Stretch{Length: bigBytes, Seed: scribbled})
		}
		s.owner.Continue()
		s.heal()
		s.served()
		if later := s.poster.Count(chaos.Stretch{Length: bigBytes}); op == fabric.Read && later.Digest != after.Digest {
			t.Error("the poster's memory changed after the deadline")
		}
		s.oldOrNew(s.owner) // and nothing of what was scribbled
	})
}

func TestPosterPausedPastTheDeadline(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		posted := s.begin(op, deadline)
		s.poster.Stop()
		time.Sleep(deadline) // the pause is the fault
		if f := s.owner.Fence(); f != nil {
			t.Errorf("while its peer was paused: %v", f)
		}
		s.poster.Continue()
		if out := s.poster.Await(posted); out.State == fabric.Done || out.Took > soon {
			t.Errorf("after the pause: %+v", out)
		}
		s.heal()
		s.poster.Meet(s.owner, arenaBytes) // the fence gave the region another epoch
		s.served()
	})
}

// An owner that is silent for longer than three keep-alives is given up, and
// found again when it wakes.
func TestOwnerPausedPastItsKeepAlive(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served()
	s.owner.Stop()
	s.failed(s.poster.Transfer(big(fabric.Read, 0)), fabric.InDoubt, fabric.ErrPeerGone)
	s.owner.Continue()
	s.served()
}

// A machine that stands still for longer than three keep-alives and wakes has lost no
// peer: its peers did not fall silent, it did not listen.
func TestBothStandStill(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		posted := s.begin(op, 0)
		s.owner.Stop()
		s.poster.Stop()
		time.Sleep(4 * keepAlive) // the pause is the fault
		s.owner.Continue()
		s.poster.Continue()
		s.heal()
		s.done(s.poster.Await(posted))
		s.served()
	})
}
