package transceiver_test

import (
	"sync/atomic"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// wakeClock notes the shortest time after which it was to call.
type wakeClock struct {
	fabric.Clock
	shortest atomic.Int64
	set      chan struct{}
}

func (c *wakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	if c.shortest.Load() > int64(d) {
		c.shortest.Store(int64(d))
	}
	select {
	case c.set <- struct{}{}:
	default:
	}
	return c.Clock.AfterFunc(max(d, time.Millisecond), f)
}

// A home that names a lease of 10^13 ms, which in nanoseconds is beyond an int64,
// does not keep the agent of its ranks busy with alarms that are due at once.
func TestLeaseOfAges(t *testing.T) {
	clock := &wakeClock{Clock: fabric.SystemClock, set: make(chan struct{}, 1)}
	clock.shortest.Store(int64(time.Hour))
	c := newCell(t, "inproc")
	home := c.start("home")
	far := c.start("far", func(o *transceiver.Options) { o.Clock = clock })
	e := c.engine("prefill", model, shape{tp: 2, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}, home, far)
	peer, err := home.agent.LoadMetadata(far.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	order := &handoff.Order{
		Session: 1, Number: 1, Kind: handoff.OrderMove, As: handoff.Source, Engine: "prefill", LeaseMs: 1e13, RemainingMs: 1e13,
		Terms: &handoff.Terms{Src: handoff.Party{Engine: e.Engine}, Dst: handoff.Party{Engine: e.Engine}},
	}
	if err := peer.NotifyUnordered(soon(t), handoff.AppendMessage(nil, kv.ID{1}, order)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-clock.set:
	case <-soon(t).Done():
		t.Fatal("no alarm was set")
	}
	if d := time.Duration(clock.shortest.Load()); d <= 0 {
		t.Errorf("an alarm was set for %v from now", d)
	}
}
