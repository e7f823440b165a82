//go:build real

package chaos_test

import (
	"strings"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
)

func TestRealDirectoryAway(t *testing.T) { directoryAway(t, 30*time.Second, 48<<20) }

func TestRealStorm(t *testing.T) { storm(t, time.Minute) }

// With the keep-alive that everybody has, a peer that falls silent is given up
// within twenty seconds.
func TestRealSilentOwner(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	usual := chaos.Start(t, chaos.Setup{Name: "usual", StateDir: s.dir, ArenaBytes: arenaBytes})
	usual.Meet(s.owner, arenaBytes)
	if out := usual.Transfer(big(fabric.Read, soon)); out.Err != nil {
		t.Fatal(out.Err)
	}
	s.owner.Stop()
	start := time.Now()
	out := usual.Transfer(big(fabric.Read, 0))
	if took := time.Since(start); out.Err == nil || !out.Err.Is(fabric.ErrPeerGone) || took > soon {
		t.Errorf("after %v: %+v", took, out)
	}
	s.owner.Continue()
	if out := usual.Transfer(big(fabric.Read, soon)); out.Err != nil {
		t.Error(out.Err)
	}
}

// A receiver that dies is missed after half a minute at most.
func TestRealReceiverKilled(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	sender := r.send("large", large)
	r.until("a file arrives", r.arriving)
	r.Kill()
	start := time.Now()
	<-sender.Exited()
	if took := time.Since(start); took > 30*time.Second+soon || !strings.Contains(sender.Said(), "r has not answered for 30s") {
		t.Errorf("after %v the sender said %q", took, sender.Said())
	}
	sender.Kill() // it has ended, and not in order
}
