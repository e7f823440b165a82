package chaos_test

import (
	"errors"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
	"meridian/prove/faultproxy"
)

func TestMain(m *testing.M) { chaos.Main(m, nil) }

const (
	arenaBytes = 16 << 20
	// big is what a fault strikes; spare is for the transfers that come after.
	bigBytes    = 12 << 20
	spareOffset = 15 << 20
	spareBytes  = 1 << 20

	ofPoster, ofOwner, scribbled = 1, 2, 9 // seeds

	// keepAlive makes a silent peer lost after nine seconds, and twelve at most: a
	// machine may stand still for some of them.
	keepAlive = 3 * time.Second
	// deadline is for transfers that are to miss it: long enough for a busy machine to
	// begin one, and shorter than a peer is waited for.
	deadline = 8 * time.Second
	// soon is how long a bounded thing may take on a busy machine.
	soon = time.Minute
	// slow makes a big transfer last for longer than a deadline.
	slow = 1 << 20
	// handshake is how long a new connection may take to say who it is.
	handshake = 20 * time.Second
	// some is how much of it must have passed for it to have begun.
	some = 128 << 10
)

// fixture is a poster and an owner of memory, in two processes, and the network
// between them.
type fixture struct {
	t             *testing.T
	dir           string
	proxy         *faultproxy.Proxy
	poster, owner *chaos.AgentProcess
	fresh         uint64 // the last seed that served used
	streams       int    // of the poster's links; 0 means as many as it likes
}

func setStage(t *testing.T) *fixture { return setStageOf(t, 0) }

// setStageOf has links of so many streams.
func setStageOf(t *testing.T, streams int) *fixture {
	t.Helper()
	proxy, err := faultproxy.Open(t.Context(), faultproxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &fixture{t: t, dir: t.TempDir(), proxy: proxy, fresh: 100, streams: streams}
	s.owner = s.newOwner()
	s.poster = s.newPoster()
	s.poster.Meet(s.owner, arenaBytes)
	return s
}

func (s *fixture) newOwner() *chaos.AgentProcess {
	s.t.Helper()
	owner := chaos.Start(s.t, chaos.Setup{
		Name: "owner", StateDir: s.dir, Advertise: s.proxy.Address(), ArenaBytes: arenaBytes, Seed: ofOwner,
		KeepAlive: keepAlive, Handshake: handshake,
	})
	s.proxy.Aim(owner.Address)
	return owner
}

func (s *fixture) newPoster() *chaos.AgentProcess {
	s.t.Helper()
	return chaos.Start(s.t, chaos.Setup{
		Name: "poster", StateDir: s.dir, ArenaBytes: arenaBytes, Seed: ofPoster, Streams: s.streams,
		KeepAlive: keepAlive, Handshake: handshake,
	})
}

// heal takes every fault away.
func (s *fixture) heal() {
	s.proxy.Set(faultproxy.Forward, faultproxy.Fault{})
	s.proxy.Set(faultproxy.Back, faultproxy.Fault{})
}

// wayOf is the way that the bytes of an operation go.
func wayOf(op fabric.Op) faultproxy.Way {
	if op == fabric.Read {
		return faultproxy.Back
	}
	return faultproxy.Forward
}

func big(op fabric.Op, deadline time.Duration) chaos.Post {
	return chaos.Post{Peer: "owner", Op: op, Length: bigBytes, Deadline: deadline}
}

// begin posts a big transfer that is slow, and returns when some of its bytes
// have passed.
func (s *fixture) begin(op fabric.Op, deadline time.Duration) chaos.Outcome {
	s.t.Helper()
	s.served() // so that the link is there
	passed := s.proxy.Set(wayOf(op), faultproxy.Fault{BytesPerSecond: slow, After: some})
	posted := s.poster.Post(big(op, deadline))
	if posted.Err != nil {
		s.t.Fatalf("post: %v", posted.Err)
	}
	s.within(passed, "some of it to pass")
	return posted
}

func (s *fixture) within(c <-chan struct{}, what string) {
	s.t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		s.t.Fatalf("waited %v for %s", soon, what)
	}
}

// served demands that the next transfers work, there and back, to the byte.
func (s *fixture) served() {
	s.t.Helper()
	s.fresh++
	spare := chaos.Stretch{Offset: spareOffset, Length: spareBytes, Seed: s.fresh, Seeds: []uint64{s.fresh}}
	s.poster.Fill(spare)
	write := chaos.Post{Peer: "owner", Op: fabric.Write, Offset: spareOffset, Length: spareBytes, Deadline: soon}
	s.done(s.poster.Transfer(write))
	if c := s.owner.Count(spare); !c.All(s.fresh) {
		s.t.Fatalf("the owner has %+v of seed %d", c, s.fresh)
	}
	s.poster.Fill(chaos.Stretch{Offset: spareOffset, Length: spareBytes, Seed: scribbled})
	read := write
	read.Op = fabric.Read
	s.done(s.poster.Transfer(read))
	if c := s.poster.Count(spare); !c.All(s.fresh) {
		s.t.Fatalf("the poster has %+v of seed %d", c, s.fresh)
	}
}

func (s *fixture) done(out chaos.Outcome) {
	s.t.Helper()
	if out.State != fabric.Done {
		s.t.Fatalf("the transfer is %v: %v", out.State, out.Err)
	}
}

// failed demands an end that is bad, has that reason, and came in time.
func (s *fixture) failed(out chaos.Outcome, state fabric.State, reason error) {
	s.t.Helper()
	if out.State != state || out.Err == nil || !errors.Is(out.Err, reason) {
		s.t.Fatalf("the transfer is %v, %v; want %v, %v", out.State, out.Err, state, reason)
	}
	if out.Took > soon {
		s.t.Errorf("that took %v", out.Took)
	}
}

// oldOrNew demands that a stretch holds nothing but what was there before and
// what was on its way.
func (s *fixture) oldOrNew(p *chaos.AgentProcess) chaos.WordCount {
	s.t.Helper()
	c := p.Count(chaos.Stretch{Length: bigBytes, Seeds: []uint64{ofPoster, ofOwner}})
	if c.Strange != 0 {
		s.t.Errorf("%s: %d of %d words are neither old nor new", p.Name, c.Strange, c.Words)
	}
	return c
}

// both runs a test for a read and for a write.
func both(t *testing.T, test func(*testing.T, fabric.Op)) {
	t.Parallel()
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		t.Run(op.String(), func(t *testing.T) {
			t.Parallel()
			test(t, op)
		})
	}
}
