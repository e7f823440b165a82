package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/fabric"
)

func open(t *testing.T, o Options) *Pool {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("closing again: %v", err)
		}
		goleak.VerifyNone(t)
	})
	return c
}

func nothing(t *testing.T) *fabric.Prepared {
	t.Helper()
	p, err := fabric.NewPrepared(&fabric.Regions{}, fabric.Write, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func done(*Task) (fabric.State, error) { return fabric.Done, nil }

// untilStopped is work that only a stop ends.
func untilStopped(t *Task) (fabric.State, error) {
	t.Transfer.Advance(fabric.Submitting)
	for t.Stopped() == nil {
		time.Sleep(100 * time.Microsecond)
	}
	return fabric.InDoubt, t.Stopped()
}

func post(t *testing.T, c *Pool, id byte, run func(*Task) (fabric.State, error)) *fabric.Transfer {
	t.Helper()
	transfer, err := c.Post(t.Context(), Job{ID: kv.ID{id}, Prepared: nothing(t), Run: run})
	if err != nil {
		t.Fatal(err)
	}
	return transfer
}

func expect(t *testing.T, transfer *fabric.Transfer, state fabric.State, cause error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = transfer.Await(ctx)
	if got, err := transfer.Status(); got != state || !errors.Is(err, cause) {
		t.Errorf("ended %v, %v; want %v, %v", got, err, state, cause)
	}
}

func hold(t *testing.T, c *Pool) (resume func()) {
	t.Helper()
	resume, err := c.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return resume
}

func TestStopBeforeAWorkerComes(t *testing.T) {
	c := open(t, Options{Workers: 2})
	resume := hold(t, c)
	defer resume()
	ran := false
	transfer := post(t, c, 1, func(*Task) (fabric.State, error) {
		ran = true
		return fabric.Done, nil
	})
	if err := transfer.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, transfer, fabric.NotSubmitted, fabric.ErrCancelled)
	resume()
	expect(t, post(t, c, 2, done), fabric.Done, nil)
	if ran {
		t.Error("what was stopped in the queue ran")
	}
}

func TestStopWhileRunning(t *testing.T) {
	c := open(t, Options{Workers: 1})
	transfer := post(t, c, 1, untilStopped)
	until.True(t, "it runs", func() bool { state, _ := transfer.Status(); return state == fabric.Submitting })
	first := errors.New("first")
	all := func(*Task) bool { return true }
	c.find(all)[0].Stop(first)
	if err := c.Fence(t.Context(), errors.New("second"), all); err != nil {
		t.Fatal(err)
	}
	expect(t, transfer, fabric.InDoubt, first)
}

func TestFenceGivesUpWithItsContext(t *testing.T) {
	c := open(t, Options{Workers: 1})
	release := make(chan struct{})
	transfer := post(t, c, 1, func(*Task) (fabric.State, error) {
		<-release
		return fabric.Done, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	all := func(*Task) bool { return true }
	until.True(t, "it runs", func() bool { return c.find(all)[0].isRunning() })
	if err := c.Fence(ctx, fabric.ErrCancelled, all); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fence that is not up said %v", err)
	}
	close(release)
	expect(t, transfer, fabric.Done, nil)
}

func (t *Task) isRunning() bool {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	return t.running
}

func TestLimits(t *testing.T) {
	c := open(t, Options{Workers: 1, MaxTransfers: 5})
	resume := hold(t, c)
	defer resume()
	for i := range byte(4) { // the fifth is what holds the worker
		post(t, c, i, done)
	}
	_, err := c.Post(t.Context(), Job{ID: kv.ID{9}, Prepared: nothing(t), Run: done})
	if !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("a sixth transfer: %v", err)
	}
	if again := post(t, c, 3, done); again == nil {
		t.Error("a repeated post is no new one")
	}
	resume()
	for i := range byte(4) {
		expect(t, post(t, c, i, done), fabric.Done, nil)
	}
	expect(t, post(t, c, 9, done), fabric.Done, nil)
	for _, o := range []Options{{Workers: -1}, {MaxTransfers: -1}, {Workers: 5000}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestQueueOfStoppedTasksIsBounded(t *testing.T) {
	c := open(t, Options{Workers: 1, MaxTransfers: 5})
	resume := hold(t, c)
	defer resume()
	busy := 0
	for i := range byte(20) {
		transfer, err := c.Post(t.Context(), Job{ID: kv.ID{i}, Prepared: nothing(t), Run: done})
		if errors.Is(err, fabric.ErrBusy) {
			busy++
			continue
		}
		if err := transfer.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if busy != 15 {
		t.Errorf("%d of 20 were refused, want all that the queue has no place for", busy)
	}
}

func TestRepeats(t *testing.T) {
	c := open(t, Options{Workers: 2, MaxTransfers: 4})
	var runs atomic.Int32
	once := func(*Task) (fabric.State, error) {
		runs.Add(1)
		return fabric.Done, nil
	}
	first := post(t, c, 1, once)
	expect(t, first, fabric.Done, nil)
	if again := post(t, c, 1, once); again != first || runs.Load() != 1 {
		t.Errorf("ran %d times", runs.Load())
	}
	// Another group's IDs are its own.
	other, err := c.Post(t.Context(), Job{Group: 1, ID: kv.ID{1}, Prepared: nothing(t), Run: once})
	if err != nil || other == first {
		t.Errorf("another group found %v, %v", other == first, err)
	}
	expect(t, other, fabric.Done, nil)
	// What was not submitted may be tried again; what is in doubt may not.
	refused := post(t, c, 2, func(*Task) (fabric.State, error) { return fabric.NotSubmitted, fabric.ErrBusy })
	expect(t, refused, fabric.NotSubmitted, fabric.ErrBusy)
	expect(t, post(t, c, 2, done), fabric.Done, nil)
	doubt := post(t, c, 3, func(*Task) (fabric.State, error) { return fabric.InDoubt, fabric.ErrChecksum })
	expect(t, doubt, fabric.InDoubt, fabric.ErrChecksum)
	expect(t, post(t, c, 3, done), fabric.InDoubt, fabric.ErrChecksum)
	// Only the last so many are remembered, but always those that run.
	running := post(t, c, 4, untilStopped)
	for i := range byte(50) {
		expect(t, post(t, c, 100+i, done), fabric.Done, nil)
	}
	if again := post(t, c, 4, done); again != running {
		t.Error("a running transfer was forgotten")
	}
	if n := len(c.posts.byKey); n > 8 || n != len(c.posts.order) {
		t.Errorf("%d transfers are remembered in %d places, at most 8", n, len(c.posts.order))
	}
	if err := running.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDrain(t *testing.T) {
	c := open(t, Options{Workers: 2})
	mine := func(t *Task) bool { return t.ID == kv.ID{1} }
	transfer, other := post(t, c, 1, untilStopped), post(t, c, 2, untilStopped)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := c.Drain(ctx, mine); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained what runs: %v", err)
	}
	if err := transfer.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Drain(t.Context(), mine); err != nil {
		t.Error(err)
	}
	if state, _ := other.Status(); state.Ended() {
		t.Error("Drain ended another's transfer")
	}
}

func TestCloseStopsEverything(t *testing.T) {
	c := open(t, Options{Workers: 1})
	running := post(t, c, 1, untilStopped)
	until.True(t, "it runs", func() bool { state, _ := running.Status(); return state == fabric.Submitting })
	waiting := post(t, c, 2, done)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, running, fabric.InDoubt, fabric.ErrClosed)
	expect(t, waiting, fabric.NotSubmitted, fabric.ErrClosed)
	if _, err := c.Post(t.Context(), Job{ID: kv.ID{3}, Prepared: nothing(t), Run: done}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("posted to a closed pool: %v", err)
	}
}

func TestEstimateLearns(t *testing.T) {
	p := throughput{nsPerByte: 1}
	before := p.estimate(1<<30, 1)
	p.measured(100, time.Hour) // too small to tell
	if p.estimate(1<<30, 1) != before {
		t.Error("a tiny transfer changed the estimate")
	}
	for range 100 {
		p.measured(1<<20, 10<<20) // 10 ns a byte
	}
	if got := p.estimate(1<<30, 0); got < 9<<30 || got > 11<<30 {
		t.Errorf("after transfers of 10 ns a byte 1 GiB is estimated at %v", got)
	}
	if p.estimate(0, 1000) <= p.estimate(0, 1) {
		t.Error("pieces cost nothing")
	}
}
