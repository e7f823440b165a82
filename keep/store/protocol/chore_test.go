package protocol

import (
	"bytes"
	"errors"
	"testing"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// What many objects leave for is done in steps: no event lets more of them go than a few
// batches, or names more to the master, and others have their turns between.
func TestMuchIsDoneInSteps(t *testing.T) {
	const count = 20_000
	c := fullCrowd(t, count)
	most, steps, before := uint64(0), 0, uint64(0)
	c.watch = func(what string, event func()) {
		event()
		if what == "Continued" {
			steps++
		}
		now := c.objects.Stats().Evictions
		most, before = max(most, now-before), now
	}
	c.elect()
	put := func(n int) { c.ask(&Put{Name: keyOfTenant(t, n), Value: make([]byte, 100)}) }
	for n := range count * 11 / 10 {
		put(n)
	}
	bound := uint64(2 * c.objects.Batch())
	if stats := c.objects.Stats(); stats.Evictions == 0 || most > bound {
		t.Errorf("passing the high watermark, %d objects left in one event, of %d", most, stats.Evictions)
	}

	bounds := c.heap.Bounds()
	plan := c.ask(&Open{Name: keyOfTenant(t, count*2), Bytes: (bounds.Limit - bounds.Base) / 3}).(*Plan)
	if most > bound || steps < 10 {
		t.Errorf("for a large object %d left in one event, in %d steps", most, steps)
	}
	c.ask(&Commit{Header: plan.Header, Epoch: plan.Epoch, KeyHash: plan.KeyHash, Abort: true})

	steps = 0
	ready := c.objects.Stats().Ready
	if evicted := c.ask(&Evict{Permille: 200}).(*Evicted); evicted.Objects < ready/2 || most > bound || steps < 10 {
		t.Errorf("an operator evicted %d of %d objects, %d in one event, in %d steps", evicted.Objects, ready, most, steps)
	}
	if used := c.objects.Used(); used > 0.2 {
		t.Errorf("%g of the heap are used", used)
	}

	steps, c.parts = 0, 0
	left := c.objects.Stats().Ready
	c.elect(master.Mark{Owner: testOwner.Name, Incarnation: testOwner.Incarnation})
	if c.parts < int(left)/maxTold || steps < c.parts-1 {
		t.Errorf("%d keys were told in %d parts and %d steps", left, c.parts, steps)
	}
}

// Whoever asks while room is made for another is answered, a request that waits for room has its
// end, and what was lent with it is the lender's again.
func TestOthersAskWhileRoomIsMade(t *testing.T) {
	heap, err := arena.Format(make([]byte, 1<<20), arena.Options{Headers: 4096})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := owner.New(heap, owner.Options{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerOptions{Self: testOwner}, objects)
	s.Elected(0, testMaster, 1)
	s.Receive(0, testMaster, 0, &Answer{master.Answer{Term: 1, Seq: 1, Verdict: master.Granted, Length: 60 * kv.Minute}})
	has := 0
	for ; objects.Stats().Evictions == 0; has++ {
		plan, err := objects.Reserve(0, owner.Put{Key: crowdKey(has), Bytes: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err := objects.Commit(0, plan, heap.SumPayload(plan.Offset, plan.Bytes)); err != nil {
			t.Fatal(err)
		}
	}
	value := bytes.Repeat([]byte("v"), 60<<10)
	only[Continue](t, s.Receive(0, testClient, 1, &Put{Name: []byte("\x00large"), Value: value, PatienceMs: 1000}))
	if asked := s.Receive(0, testClient, 2, &Open{Name: []byte("\x00late"), Bytes: 500 << 10, PatienceMs: 500}); len(asked) != 0 {
		t.Errorf("asked for Continue twice: %+v", asked)
	}
	clear(value)
	for n := 0; ; n++ {
		if n == has {
			t.Fatal("room is never made")
		}
		if got := only[Deliver](t, s.Receive(0, testClient, 3, &Get{Name: crowdKey(has - 1)})); got.Location.Bytes != 1000 {
			t.Fatalf("%+v", got)
		}
		effects := s.Continue(0)
		only[Continue](t, effects)
		if w := s.byKey[arena.HashKey([]byte("\x00large"))]; w != nil {
			if !bytes.Equal(w.value, bytes.Repeat([]byte("v"), 60<<10)) {
				t.Error("the value that waited is not what was put")
			}
			break
		}
	}
	s.Continue(kv.Second)
	effects := s.Receive(kv.Second, testClient, 4, &Describe{})
	if len(s.chores.requests) != 0 || s.shares[testClient].requests == 0 {
		t.Errorf("%d requests wait: %+v", len(s.chores.requests), effects)
	}
}

// The end of a request that waited for room too long says so.
func TestRoomIsNotMadeInTime(t *testing.T) {
	c := fullCrowd(t, 5000)
	c.elect()
	for n := range 5500 {
		c.ask(&Put{Name: crowdKey(n), Value: make([]byte, 100)})
	}
	bounds := c.heap.Bounds()
	c.server.Receive(c.now, testClient, 9, &Open{Name: []byte("\x00large"), Bytes: (bounds.Limit - bounds.Base) / 2, PatienceMs: 10})
	for _, e := range c.server.Continue(c.now + kv.Second) {
		if send, is := e.(Send); is && send.Request == 9 {
			if err := send.Message.(*Reply).Problem.Err(); !errors.Is(err, ErrUnavailable) {
				t.Errorf("it ended with %v", err)
			}
			return
		}
	}
	t.Error("it has no end")
}
