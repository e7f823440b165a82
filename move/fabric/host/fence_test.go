package host

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/move/fabric"
)

// fill is what the owner does with memory that is his alone.
func (a *agent) fill(with byte) {
	all := a.memory.Bytes(0, a.memory.Size())
	all[0] = with
	for done := 1; done < len(all); done *= 2 {
		copy(all[done:], all[:done])
	}
}

// fence makes the agent's region quiet and registers it under another epoch.
func (a *agent) fence(t *testing.T, epoch uint64, meanwhile func()) {
	t.Helper()
	if err := a.Deregister(context.Background(), 1); err != nil {
		t.Error(err)
	}
	meanwhile()
	if err := a.Register(fabric.Region{ID: 1, Epoch: epoch, Section: a.memory.Section}); err != nil {
		t.Error(err)
	}
}

// race copies the source, full of one byte, over the destination, full of
// zeros, and has stop come at any moment, which fills memory with something
// else. Then look judges what the destination holds.
type race struct {
	op                  fabric.Op
	source, destination *agent
	stop                func(t *testing.T, r *race, posted *fabric.Transfer, epoch uint64)
	look                func(state fabric.State, zeros, ones, others int) bool
}

const (
	before = 1
	after  = 2
)

func (r *race) run(t *testing.T) {
	const size, rounds = 4 << 20, 200
	near, far := newAgent(t, "near", size, Options{}), newAgent(t, "far", size, Options{})
	link := near.connect(t, far.peer())
	r.source, r.destination = far, near
	if r.op == fabric.Write {
		r.source, r.destination = near, far
	}
	ends := make(map[fabric.State]int)
	usual := 200 * time.Microsecond // what a transfer takes
	for round := range uint64(rounds) {
		epoch := 100 + 2*round
		r.source.fence(t, epoch, func() { r.source.fill(before) })
		r.destination.fence(t, epoch, func() { r.destination.fill(0) })
		prepared, err := link.Prepare(r.op, dense(size, epoch), dense(size, epoch))
		if err != nil {
			t.Fatal(err)
		}
		posted, err := link.Post(context.Background(), prepared, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(usual))
		r.stop(t, r, posted, epoch+1)
		err = posted.Await(soon(t))
		state, _ := posted.Status()
		if ends[state]++; state == fabric.Done {
			times := posted.Times()
			usual = (3*usual + times.Ended.Sub(times.Posted)) / 4
		} else if !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrUnknownRegion) && !errors.Is(err, fabric.ErrCancelled) {
			t.Errorf("round %d: %v", round, err)
		}
		r.destination.fence(t, epoch+1, func() {})
		got := r.destination.memory.Bytes(0, size)
		zeros, ones := bytes.Count(got, []byte{0}), bytes.Count(got, []byte{before})
		if !r.look(state, zeros, ones, size-zeros-ones) {
			t.Fatalf("round %d ended %v: of %d bytes %d are as they were, %d were copied, %d are others",
				round, state, size, zeros, ones, size-zeros-ones)
		}
		prepared.Release()
	}
	t.Logf("%v", ends)
	if ends[fabric.Done] == rounds {
		t.Error("nothing was stopped in time")
	}
}

// Done means that every byte is from before the stop, and after any end no byte
// is from after it.
func nothingLater(state fabric.State, zeros, _, others int) bool {
	return others == 0 && (state != fabric.Done || zeros == 0)
}

func fenceSource(t *testing.T, r *race, _ *fabric.Transfer, epoch uint64) {
	r.source.fence(t, epoch, func() { r.source.fill(after) })
}

func TestSourceIsFencedWhileItIsCopied(t *testing.T) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		t.Run(op.String(), (&race{op: op, stop: fenceSource, look: nothingLater}).run)
	}
}

func TestWriteIsCancelledWhileItIsCopied(t *testing.T) {
	cancel := func(t *testing.T, r *race, posted *fabric.Transfer, _ uint64) {
		if err := posted.Cancel(context.Background()); err != nil {
			t.Error(err)
		}
		r.source.fill(after)
	}
	(&race{op: fabric.Write, stop: cancel, look: nothingLater}).run(t)
}

// What its owner puts there after the fence stays.
func TestDestinationIsFencedWhileItIsCopied(t *testing.T) {
	fence := func(t *testing.T, r *race, _ *fabric.Transfer, epoch uint64) {
		r.destination.fence(t, epoch, func() { r.destination.fill(after) })
	}
	untouched := func(_ fabric.State, zeros, ones, _ int) bool { return zeros+ones == 0 }
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		t.Run(op.String(), (&race{op: op, stop: fence, look: untouched}).run)
	}
}

// A region that was fenced is unmapped by its borrower.
func TestLoansAreGivenBack(t *testing.T) {
	near, far := newAgent(t, "near", 1<<20, Options{}), newAgent(t, "far", 1<<20, Options{})
	l := near.connect(t, far.peer())
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		prepared, err := l.Prepare(op, dense(1<<20, 7), dense(1<<20, 7))
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, l, prepared, fabric.PostOptions{ID: newID()})
		prepared.Release()
	}
	loans := func() (count int) {
		for _, s := range append(near.everyStream(), far.everyStream()...) {
			s.borrowed.mu.Lock()
			count += len(s.borrowed.loans)
			s.borrowed.mu.Unlock()
		}
		return count
	}
	if got := loans(); got != 2 {
		t.Errorf("%d loans, want one in each direction", got)
	}
	for _, a := range []*agent{near, far} {
		if err := a.Deregister(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "all loans are given back", func() bool { return loans() == 0 })
}
