package gateway

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
)

// engine is what the gateway has of a stub.
func (c *testCell) engine(s *stub) *roster.Engine {
	c.t.Helper()
	for _, e := range c.roster.All() {
		if e.Name() == s.id {
			return e
		}
	}
	c.t.Fatalf("the gateway does not know %s", s.id)
	return nil
}

// An engine that does not answer when it is asked to let requests go keeps none from leaving
// another.
func TestSilentEngineKeepsNoneElsewhere(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	silent, well := c.decode[0], c.decode[1]
	silent.set(habits{muteMoves: true})
	well.set(habits{moves: true})
	var active sync.WaitGroup
	defer active.Wait()
	var over atomic.Int64
	for range 2 * moves.MaxAsking {
		active.Go(func() {
			c.moves.Tell(&moves.Leg{Engine: c.engine(silent), Transfer: upstream.NewTransfer(), ID: "stays"})
			over.Add(1)
		})
	}
	c.until("it is asked", func() bool { return silent.mutely.Load() >= int64(cap(c.engine(silent).AskingToMove)) })
	before := over.Load()
	if !c.moves.Tell(&moves.Leg{Engine: c.engine(well), Transfer: upstream.NewTransfer(), ID: "leaves"}) {
		t.Error("an engine that answers was not asked")
	}
	if n := over.Load() - before; n != 0 {
		t.Errorf("%d others had to be over first", n)
	}
	if n := silent.mutely.Load(); int(n) > cap(c.engine(silent).AskingToMove) {
		t.Errorf("the silent one is asked for %d at a time", n)
	}
}

// A request that was to leave and does not takes no other's room for longer than a while, and
// its engine, which has heard it, is not asked again.
func TestOrderThatIsNotFollowed(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	c.prefill[0].set(habits{keepsAll: true, slow: 3 * time.Millisecond})
	c.decode[0].set(habits{moves: true, room: 1})
	leave := c.occupy(c.decode[0])
	end := c.occupy(c.prefill[0])
	leave()
	c.until("it was asked", func() bool {
		lent := c.moves.Lent()
		if len(lent) != 1 {
			return false
		}
		_, asked := lent[0].Asked()
		return asked
	})
	c.moves.Lapse(time.Now().Add(2 * moves.Patience))
	c.until("it is counted on no more", func() bool {
		return c.engine(c.decode[0]).Arriving.Load() == 0 && c.engine(c.prefill[0]).Arriving.Load() == 0
	})
	lent := c.moves.Lent()
	if len(lent) != 1 {
		t.Fatal("it has ended, and so nothing is shown")
	}
	if !lent[0].Stands(lifecycle.ByRoom) || lent[0].Stands(lifecycle.ByDrain) {
		t.Error("an engine that heard it is asked again, or not for drain")
	}
	end()
	c.until("the request is over", func() bool { return len(c.moves.Lent()) == 0 })
	for _, e := range c.roster.All() {
		if n := e.Arriving.Load(); n != 0 {
			t.Errorf("%d requests are counted on at %s", n, e.Name())
		}
	}
}

// An engine that does not tell how much room it has is left out, and the others are asked as
// often as ever.
func TestSilentEngineSlowsNoRounds(t *testing.T) {
	c := newCell(t, 1, 2, nil)
	c.prefill[0].set(atWork(0))
	silent, full := c.decode[0], c.decode[1]
	silent.set(atWork(1))
	full.set(atWork(1))
	silent.open.Add(1) // another gateway's
	full.open.Add(1)
	c.occupy(c.prefill[0])
	silent.set(habits{muteStats: true, room: 1, slow: 3 * time.Millisecond})
	first, second := silent.asked.Load(), full.asked.Load()
	c.until("many rounds are over", func() bool { return full.asked.Load() > second+12 })
	if n := silent.asked.Load() - first; n > 8 {
		t.Errorf("one that does not answer was asked %d times in 12 rounds", n)
	}
}
