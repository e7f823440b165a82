package chaos_test

import (
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
)

func TestOwnerKilledBeforeData(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		s.owner.Kill()
		s.failed(s.poster.Transfer(big(op, soon)), fabric.NotSubmitted, fabric.ErrPeerGone)
		if c := s.oldOrNew(s.poster); !c.All(ofPoster) {
			t.Errorf("the poster's memory was touched: %+v", c)
		}
		s.owner = s.newOwner()
		s.poster.Meet(s.owner, arenaBytes)
		s.served()
	})
}

func TestOwnerKilledDuringData(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		posted := s.begin(op, 0)
		s.owner.Kill()
		s.heal() // so that what is still under way arrives soon
		s.failed(s.poster.Await(posted), fabric.InDoubt, fabric.ErrPeerGone)
		after := s.oldOrNew(s.poster)

		s.owner = s.newOwner()
		s.poster.Meet(s.owner, arenaBytes)
		s.served()
		if later := s.oldOrNew(s.poster); later.Digest != after.Digest {
			t.Error("the poster's memory changed after the transfer had ended")
		}
	})
}

func TestOwnerKilledAfterData(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	out := s.poster.Transfer(big(fabric.Read, soon))
	s.done(out)
	s.owner.Kill()
	if again := s.poster.Await(out); again.State != fabric.Done {
		t.Errorf("what was done is %v: %v", again.State, again.Err)
	}
	if c := s.oldOrNew(s.poster); !c.All(ofOwner) {
		t.Errorf("what was read is gone: %+v", c)
	}
	s.failed(s.poster.Transfer(big(fabric.Read, soon)), fabric.NotSubmitted, fabric.ErrPeerGone)
}

// A reborn owner has the same name and is another: what was prepared for the
// dead one never reaches it.
func TestOwnerReborn(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served()
	s.owner.Kill()
	s.owner = s.newOwner()
	for {
		out := s.poster.Transfer(big(fabric.Write, soon))
		if out.Err == nil {
			t.Fatal("a transfer for the dead owner reached the one that was born")
		}
		if out.Err.Is(fabric.ErrStalePeer) {
			break // until then the link was still finding out
		}
	}
	if c := s.oldOrNew(s.owner); !c.All(ofOwner) {
		t.Errorf("the new owner's memory was touched: %+v", c)
	}
	s.poster.Meet(s.owner, arenaBytes)
	s.served()
}

func TestPosterKilledBeforeData(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served() // it is connected, and has posted nothing more
	s.poster.Kill()
	s.poster = s.newPoster()
	s.poster.Meet(s.owner, arenaBytes)
	s.served()
}

func TestPosterKilledDuringData(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		s.begin(op, 0)
		s.poster.Kill()
		s.heal()
		// The fence is local: it does not depend on what became of the poster.
		start := time.Now()
		if f := s.owner.Fence(); f != nil {
			t.Fatal(f)
		}
		if took := time.Since(start); took > soon {
			t.Errorf("the fence took %v", took)
		}
		after := s.oldOrNew(s.owner)

		s.poster = s.newPoster()
		s.poster.Meet(s.owner, arenaBytes)
		s.served()
		if later := s.oldOrNew(s.owner); later.Digest != after.Digest {
			t.Error("the owner's memory changed after it was fenced")
		}
	})
}

// The notification comes after the data or not at all.
func TestPosterKilledBeforeItsNotification(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served()
	half := s.proxy.Set(wayOf(fabric.Write), halfOfBig)
	o := big(fabric.Write, 0)
	o.Notification = []byte("all of it")
	s.poster.Post(o)
	s.within(half, "half of it to pass")
	s.poster.Kill()
	s.heal()
	if all := s.owner.Notifications(); len(all) != 0 {
		t.Errorf("notified of half a transfer: %q", all)
	}
	s.poster = s.newPoster()
	s.poster.Meet(s.owner, arenaBytes)
	o.Deadline = soon
	s.done(s.poster.Transfer(o))
	if all := s.owner.Notifications(); len(all) != 1 || all[0] != "all of it" {
		t.Errorf("notifications %q", all)
	}
	if c := s.owner.Count(chaos.Stretch{Length: bigBytes, Seeds: []uint64{ofPoster}}); !c.All(ofPoster) {
		t.Errorf("notified before the data: %+v", c)
	}
}

func TestPosterKilledAfterData(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	o := big(fabric.Write, soon)
	o.Notification = []byte("done")
	s.done(s.poster.Transfer(o))
	s.poster.Kill()
	if c := s.oldOrNew(s.owner); !c.All(ofPoster) {
		t.Errorf("what was written is gone: %+v", c)
	}
	if all := s.owner.Notifications(); len(all) != 1 {
		t.Errorf("notifications %q", all)
	}
	s.poster = s.newPoster()
	s.poster.Meet(s.owner, arenaBytes)
	s.served()
}
