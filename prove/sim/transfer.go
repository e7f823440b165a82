package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// transfer is what the world knows of a posted transfer, and what it promises.
type transfer struct {
	serial   int
	id       kv.ID
	op       fabric.Op
	from, to *process // who posts, and the process it is meant for
	// source and destination say the same number of bytes.
	source, destination []piece
	units               []unit
	request             *agent.Request
	running             *agent.Transfer
	grant               *grant
	// forbidden says why it must never be done; nil: it may.
	forbidden error
	notify    bool
	heard     int           // how often its notification was delivered
	deadline  time.Duration // by the world's clock; 0: none

	carrier   *connection  // that the last attempt went on
	reached   fabric.State // as far as the client has seen
	attempts  int
	cancelled bool // Cancel has returned
	over      bool
	state     fabric.State
	err       error
	tries     int  // fabrics that were tried
	refused   bool // Post refused to have it again
	// wasDone and wasInDoubt: in an earlier life, for it was posted again under
	// its id.
	wasDone, wasInDoubt bool
	// mayStillNotify: an earlier life, which nothing forbade, was given up in doubt. Its
	// notification may be on the way, whatever has become of grants and epochs since.
	mayStillNotify bool
	frozen         bool // what the units hold is final
	mutilated      bool // some of its destination is gone with its process
	corrupted      bool // a byte of it was changed on the way
	late           bool // some of it was copied after its owner had taken it back, and stays in doubt
	released       bool
}

// piece is some bytes of a region, as a list names them.
type piece struct {
	region         *region
	epoch          uint64
	offset, length uint64
	// first and last are the versions between which a source was read.
	first, last int
}

// unit is a unit of a destination: what it held before, and, once frozen, what
// it must keep.
type unit struct {
	region       *region
	index        int
	before, kept []byte
}

func (t *transfer) String() string { return fmt.Sprintf("T%d", t.serial) }

func (t *transfer) world() *world { return t.from.world }

func total(pieces []piece) (bytes uint64) {
	for i := range pieces {
		bytes += pieces[i].length
	}
	return bytes
}

// find returns the piece that holds the first byte of a cut, if pieces hold them
// all: a list joins pieces that touch.
func find(pieces []piece, r *region, cut fabric.Cut) (first *piece) {
	for cut.Length > 0 {
		i := slices.IndexFunc(pieces, func(p piece) bool {
			return p.region == r && cut.Offset >= p.offset && cut.Offset < p.offset+p.length
		})
		if i < 0 {
			return nil
		}
		if first == nil {
			first = &pieces[i]
		}
		held := min(cut.Length, pieces[i].offset+pieces[i].length-cut.Offset)
		cut.Offset, cut.Length = cut.Offset+held, cut.Length-held
	}
	return first
}

// carriedBy is told when a transfer is handed to a connection.
func (w *world) carriedBy(id kv.ID, c *connection) {
	if t := w.transfers[id]; t != nil {
		w.note(t.from, t, "goes on connection %d", c.serial)
		t.carrier = c
	}
}

// look sees how far the transfer has come, and judges its end.
func (t *transfer) look() (over bool) {
	select {
	case <-t.running.Done():
		state, err := t.running.Status()
		t.end(state, err)
		return true
	default:
	}
	t.progress()
	return false
}

// progress demands that states only go forward, but for another attempt.
func (t *transfer) progress() {
	state, _ := t.running.Status()
	if state == t.reached {
		return
	}
	attempts := t.running.Record().Attempts
	if last := attempts[len(attempts)-1]; state < t.reached && len(attempts) == t.attempts && last.State != fabric.NotSubmitted {
		t.world().violate("states only go forward", t, "%v was %v and is %v", t, t.reached, state)
	}
	t.reached, t.attempts = state, len(attempts)
}

// end judges how the transfer ended.
func (t *transfer) end(state fabric.State, err error) {
	w := t.world()
	t.over, t.state, t.err = true, state, err
	for i := range t.source {
		t.source[i].last = len(t.source[i].region.versions) - 1
	}
	if t.running != nil {
		t.tries = len(t.running.Record().Attempts)
	}
	w.note(t.from, t, "is %v: %v", state, err)
	w.tally.end(t)
	switch {
	case !state.Ended():
		w.violate("an end is an end", t, "%v is closed as %v", t, state)
	case (state == fabric.Done) != (err == nil):
		w.violate("ends are explained", t, "%v is %v: %v", t, state, err)
	case state == fabric.Done && t.forbidden != nil:
		w.violate("what is forbidden does not happen", t, "%v is done, and must not be: %v", t, t.forbidden)
	case t.deadline > 0 && w.now > max(t.deadline, t.from.pausedUntil)+localWork:
		w.violate("nothing waits past its deadline", t, "%v ended %v after its deadline", t, w.now-t.deadline)
	case state == fabric.Done && t.notify && t.heard == 0:
		w.violate("a notification is delivered once", t, "%v is done, and its notification was not delivered", t)
	case state == fabric.NotSubmitted && t.heard > 0 && !t.wasDone && !t.wasInDoubt:
		w.violate("not submitted means that nothing happened", t, "the notification of %v was delivered", t)
	}
	t.checkGrantError()
	t.checkBytes()
	if !t.doubtful() {
		t.freeze()
	}
}

// doubtful: a write of which its poster does not know whether bytes still arrive.
func (t *transfer) doubtful() bool {
	return t.over && t.op == fabric.Write && (t.state == fabric.InDoubt || t.state == fabric.NotSubmitted && t.wasInDoubt)
}

// quiet is told when nothing of the transfer can reach a region any more. When
// that is so of all its units, what they hold is final.
func (t *transfer) quiet(r *region) {
	reached := false
	for i := range t.units {
		if u := &t.units[i]; u.region == r && u.kept == nil {
			u.kept = bytes.Clone(r.unit(u.index))
		} else if u.kept == nil {
			reached = true
		}
	}
	if !reached {
		t.freeze()
	}
}

// freeze: from now on nothing may change in the destination.
func (t *transfer) freeze() {
	if t.frozen {
		return
	}
	t.frozen = true
	t.checkBytes()
	for i := range t.units {
		if u := &t.units[i]; u.kept == nil {
			u.kept = bytes.Clone(u.region.unit(u.index))
		}
	}
	w := t.world()
	w.after(between(w.work, time.Millisecond, 2*time.Second), nil, t.release)
}

// lose is told when memory that the transfer touches is gone for good.
func (t *transfer) lose(r *region) {
	t.units = slices.DeleteFunc(t.units, func(u unit) bool { return u.region == r })
	t.mutilated = true
}

// release ends the world's interest in the transfer: its units are for others.
// One that is in doubt keeps them until they are fenced.
func (t *transfer) release() {
	if t.released || !t.over || !t.frozen {
		return
	}
	t.checkKept()
	for _, u := range t.units {
		u.region.owners[u.index] = nil
	}
	t.released, t.units = true, nil
	t.request.Release()
}

// localWork is what an end may take longer than its deadline: the agent's
// background work waits that long for its turn.
const localWork = 5 * time.Millisecond

// checkGrantError demands that each refusal has its own error.
func (t *transfer) checkGrantError() {
	if t.state == fabric.Done {
		return
	}
	for _, refusal := range grantErrors {
		if errors.Is(t.err, refusal) && !t.mayFailBy(refusal) {
			t.world().violate("each refusal has its own error", t, "%v failed by %v, and should by %v", t, t.err, t.forbidden)
		}
	}
}
