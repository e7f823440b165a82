package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
	"meridian/prove/faultproxy"
)

// One fault after another, at any place, in any direction: what is Done is
// right, nothing hangs, and when the storm is over all is well.
func TestStorm(t *testing.T) { storm(t, 3*time.Second) }

func storm(t *testing.T, d time.Duration) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	s := setStage(t)
	ends := make(map[fabric.State]int)
	for start := time.Now(); time.Since(start) < d; {
		ends[s.randomFault(dice)]++
	}
	t.Logf("%v", ends)
	s.heal()
	s.servedEventually()
}

// fence ends the doubt about the owner's memory.
func (s *fixture) fence() {
	s.t.Helper()
	if f := s.owner.Fence(); f != nil {
		s.t.Fatal(f)
	}
	s.poster.Meet(s.owner, arenaBytes)
}

// randomFault is one transfer under one fault.
func (s *fixture) randomFault(dice *rand.Rand) fabric.State {
	s.t.Helper()
	strikes := []faultproxy.Strike{faultproxy.Nothing, faultproxy.Truncate, faultproxy.Reset, faultproxy.Swallow, faultproxy.Stall}
	op := []fabric.Op{fabric.Read, fabric.Write}[dice.IntN(2)]
	length := uint64(1+dice.IntN(spareBytes/8-1)) * 8
	source, destination := s.owner, s.poster
	if op == fabric.Write {
		source, destination = s.poster, s.owner
	}
	s.fresh++
	moved := chaos.Stretch{Offset: spareOffset, Length: length, Seed: s.fresh, Seeds: []uint64{s.fresh}}
	source.Fill(moved)
	fault := faultproxy.Fault{Strike: strikes[dice.IntN(len(strikes))], After: dice.Int64N(int64(length) + 200), Delay: time.Duration(dice.IntN(5)) * time.Millisecond}
	s.proxy.Set(faultproxy.Way(dice.IntN(2)), fault)
	out := s.poster.Transfer(chaos.Post{Peer: "owner", Op: op, Offset: spareOffset, Length: length, Deadline: 300 * time.Millisecond})
	s.heal()
	if out.Took > soon {
		s.t.Errorf("%+v: it took %v", fault, out.Took)
	}
	if c := destination.Count(moved); out.State == fabric.Done && !c.All(s.fresh) {
		s.t.Errorf("%v under %+v: done, and wrong: %+v", op, fault, c)
	}
	if out.State != fabric.Done {
		s.proxy.Sever() // a connection that lost bytes is dead; do not wait to find out
	}
	if out.State == fabric.InDoubt && op == fabric.Write {
		s.fence() // else what is still under way may be placed
	}
	return out.State
}
