package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/move/fabric"
	"meridian/prove/chaos"
	"meridian/prove/faultproxy"
)

var halfOfBig = faultproxy.Fault{BytesPerSecond: 8 * slow, After: bigBytes / 2}

func (s *fixture) breaks(f faultproxy.Fault, ways ...faultproxy.Way) (struck <-chan struct{}) {
	for _, w := range ways {
		struck = s.proxy.Set(w, f)
	}
	return struck
}

func TestSlowNetwork(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		s.breaks(faultproxy.Fault{Delay: 30 * time.Millisecond, BytesPerSecond: 16 * slow}, faultproxy.Forward, faultproxy.Back)
		s.done(s.poster.Transfer(big(op, 2*soon)))
		destination, seed := s.poster, uint64(ofOwner)
		if op == fabric.Write {
			destination, seed = s.owner, ofPoster
		}
		if c := s.oldOrNew(destination); !c.All(seed) {
			t.Errorf("slow and wrong: %+v", c)
		}
		s.served()
	})
}

// A network so slow that what is under way takes longer than three keep-alives
// is slow, not dead.
func TestVerySlowNetwork(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		s.served()
		s.proxy.Set(wayOf(op), faultproxy.Fault{BytesPerSecond: slow})
		s.done(s.poster.Transfer(big(op, 3*soon)))
		s.heal()
		s.served()
	})
}

// struckDuring begins a big transfer and strikes it in its middle.
func (s *fixture) struckDuring(op fabric.Op, deadline time.Duration, f faultproxy.Fault, ways ...faultproxy.Way) chaos.Outcome {
	s.t.Helper()
	posted := s.begin(op, deadline)
	s.breaks(f, ways...)
	return s.poster.Await(posted)
}

func TestConnectionReset(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		s.failed(s.struckDuring(op, 0, faultproxy.Fault{Strike: faultproxy.Reset}, wayOf(op)), fabric.InDoubt, fabric.ErrPeerGone)
		s.oldOrNew(s.poster)
		s.oldOrNew(s.owner)
		s.served() // on a new connection, which the agents make by themselves
	})
}

func TestIdleConnectionReset(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	for range 3 {
		s.served()
		before := s.poster.Descriptors()
		s.proxy.Sever()
		// It is the idle link that breaks, and is seen to.
		until.Within(soon).True(t, "the poster sees that its connections are reset", func() bool { return s.poster.Descriptors() < before })
	}
	s.served()
}

func TestTruncatedFrame(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		cut := faultproxy.Fault{Strike: faultproxy.Truncate, After: 100_001}
		s.failed(s.struckDuring(op, 0, cut, wayOf(op)), fabric.InDoubt, fabric.ErrPeerGone)
		s.oldOrNew(s.poster)
		s.oldOrNew(s.owner)
		s.served()
	})
}

func TestBlackHole(t *testing.T) {
	hole := faultproxy.Fault{Strike: faultproxy.Swallow}
	both(t, func(t *testing.T, op fabric.Op) {
		t.Run("with a deadline", func(t *testing.T) {
			t.Parallel()
			s := setStage(t)
			out := s.struckDuring(op, deadline, hole, faultproxy.Forward, faultproxy.Back)
			s.failed(out, fabric.InDoubt, fabric.ErrDeadline)
			// New connections fall into it too, and are given up in time.
			if out := s.poster.Transfer(big(op, time.Second)); out.State == fabric.Done || out.Took > soon {
				t.Errorf("into a black hole: %+v", out)
			}
			s.heal()
			s.servedEventually()
		})
		t.Run("without", func(t *testing.T) {
			t.Parallel()
			s := setStage(t)
			out := s.struckDuring(op, 0, hole, faultproxy.Forward, faultproxy.Back)
			s.failed(out, fabric.InDoubt, fabric.ErrPeerGone)
			s.heal()
			s.served()
		})
	})
}

// servedEventually bears with a link that has not found out yet that its
// connection is dead: keep-alives see to it.
func (s *fixture) servedEventually() {
	s.t.Helper()
	probe := chaos.Post{Peer: "owner", Op: fabric.Write, Offset: spareOffset, Length: spareBytes, Deadline: soon}
	for start := time.Now(); s.poster.Transfer(probe).State != fabric.Done; {
		if time.Since(start) > 2*soon {
			s.t.Fatal("the link was never found to be dead")
		}
	}
	s.served()
}

// One direction dies, and neither side is told.
func TestHalfOpen(t *testing.T) {
	hole := faultproxy.Fault{Strike: faultproxy.Swallow}
	both(t, func(t *testing.T, op fabric.Op) {
		for name, way := range map[string]faultproxy.Way{"from the poster": faultproxy.Forward, "to the poster": faultproxy.Back} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := setStage(t)
				out := s.struckDuring(op, 0, hole, way)
				// Bytes that were on their way may still arrive, and complete a
				// read; nothing may hang, and nothing may be wrong.
				if out.State == fabric.Done {
					s.done(out)
				} else {
					s.failed(out, fabric.InDoubt, fabric.ErrPeerGone)
				}
				s.oldOrNew(s.poster)
				s.oldOrNew(s.owner)
				s.heal()
				s.servedEventually()
			})
		}
	})
}

// A network that comes back within the deadline costs time and nothing else.
func TestStalledNetwork(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		posted := s.begin(op, 2*soon)
		s.breaks(faultproxy.Fault{Strike: faultproxy.Stall}, faultproxy.Forward, faultproxy.Back)
		time.Sleep(keepAlive) // shorter than three of them
		s.heal()
		s.done(s.poster.Await(posted))
		s.served()
	})
}

func TestFlippedByteInData(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStageOf(t, 1) // on several streams the byte might be the first of a frame
		s.served()
		s.proxy.Set(wayOf(op), faultproxy.Fault{Strike: faultproxy.Flip, After: 300_000})
		s.failed(s.poster.Transfer(big(op, soon)), fabric.InDoubt, fabric.ErrChecksum)
		s.served()
	})
}

// Wherever a byte is flipped on a link: what is Done is right, what is not says
// so, and memory that no transfer names is untouched.
func TestFlippedByteAnywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		dice := rand.New(rand.NewPCG(seed, uint64(op)))
		for range 12 {
			s.flipOnce(op, wayOf(op), requestBytes+dice.Int64N(flipBytes))
		}
		s.served()
	})
}

// The frames around the data: the request, and its answer.
func TestFlippedByteInAFrame(t *testing.T) {
	both(t, func(t *testing.T, op fabric.Op) {
		s := setStage(t)
		for after := range int64(requestBytes) {
			s.flipOnce(op, faultproxy.Forward, after)
		}
		for after := range int64(answerBytes) {
			s.flipOnce(op, faultproxy.Back, after)
		}
		s.served()
	})
}

const (
	flipBytes    = 8 << 10 // of data
	requestBytes = 110     // a little more than the frame that asks for them
	answerBytes  = 40      // a little more than the one that answers
)

// flipOnce moves a small stretch while one byte changes on the way.
func (s *fixture) flipOnce(op fabric.Op, way faultproxy.Way, after int64) {
	s.t.Helper()
	const offset = 1 << 20
	source, destination := s.owner, s.poster
	if op == fabric.Write {
		source, destination = s.poster, s.owner
	}
	s.servedEventually() // on a link that stands: a greeting is another story
	s.fresh++
	moved := chaos.Stretch{Offset: offset, Length: flipBytes, Seed: s.fresh, Seeds: []uint64{s.fresh}}
	source.Fill(moved)
	around := func() [2]chaos.WordCount {
		return [2]chaos.WordCount{
			destination.Count(chaos.Stretch{Length: offset}),
			destination.Count(chaos.Stretch{Offset: offset + flipBytes, Length: bigBytes - offset - flipBytes}),
		}
	}
	before := around()
	s.proxy.Set(way, faultproxy.Fault{Strike: faultproxy.Flip, After: after})
	out := s.poster.Transfer(chaos.Post{Peer: "owner", Op: op, Offset: offset, Length: flipBytes, Deadline: time.Second})
	s.heal()
	if c := destination.Count(moved); out.State == fabric.Done && !c.All(s.fresh) {
		s.t.Errorf("%v, byte %d of way %d flipped: done, and wrong: %+v", op, after, way, c)
	}
	if out.State != fabric.Done && out.Err == nil {
		s.t.Errorf("%v, byte %d of way %d flipped: %v without an error", op, after, way, out.State)
	}
	if now := around(); now[0].Digest != before[0].Digest || now[1].Digest != before[1].Digest {
		s.t.Errorf("%v, byte %d of way %d flipped: bytes went where they were not sent; %v, %v", op, after, way, out.State, out.Err)
	}
	if out.State == fabric.InDoubt && op == fabric.Write {
		s.fence() // else what is still under way may be placed
	}
}
