package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Transfer is one posted request. It is tried on one fabric after another, under
// one id and one deadline, until one has moved the bytes, may have moved some,
// or none is left:
//
//	connecting ─► posting ─► running ─► over
//	    ▲            │          │
//	    └────────────┴──────────┘ not submitted, and another fabric may do better
//
// While it connects nothing touches the caller's memory, so a cancel ends it on
// the spot; while it is being posted or runs, the fabric's end is its end.
type Transfer struct {
	ID    kv.ID
	Op    fabric.Op
	Bytes uint64

	agent    *Agent
	deadline time.Time // zero: none
	options  fabric.PostOptions
	done     chan struct{}

	mu        sync.Mutex // protects the rest
	request   *Request   // nil once over: a record does not keep lists alive
	stop      context.CancelCauseFunc
	cancelled bool
	posting   bool
	running   *fabric.Transfer // nil unless a fabric has it
	failures  []error          // of the attempts that failed, each with its fabric's name
	record    Record
	err       error // once over

	refused bool // Post returned an error, and the id is free again; the log's
}

// newTransfer makes the transfer of a post, and the context of its attempts.
func newTransfer(ctx context.Context, r *Request, o PostOptions) (*Transfer, context.Context) {
	t := &Transfer{
		ID: o.ID, Op: r.op, Bytes: r.bytes, agent: r.agent, request: r, done: make(chan struct{}),
		options: fabric.PostOptions{ID: o.ID, Grant: o.Grant, Notify: o.Notification != nil, Notification: bytes.Clone(o.Notification), Sums: o.Sums},
		record: Record{
			ID: o.ID, PartOf: o.PartOf, Op: r.op, Peer: r.peer.Name, Incarnation: r.peer.Incarnation, Choices: r.choices, Bytes: r.bytes, Pieces: r.pieces,
			Times: fabric.Times{Posted: r.agent.options.Clock.Now()},
		},
	}
	t.deadline, _ = ctx.Deadline()
	ctx, t.stop = context.WithCancelCause(ctx)
	return t, ctx
}

// repeated answers a post that repeats t, by r.
func (t *Transfer) repeated(r *Request) (*Transfer, error) {
	if was := t.Record(); was.Op != r.op || was.Peer != r.peer.Name || was.Incarnation != r.peer.Incarnation ||
		was.Bytes != r.bytes || was.Pieces != r.pieces {
		return nil, fmt.Errorf("agent: transfer %s is another one already: %v, %d bytes in %d pieces, with %s; take a new id",
			t.ID, was.Op, was.Bytes, was.Pieces, was.Peer)
	}
	return t, nil
}

// Status is the state now, and the error once it has ended badly. A transfer
// that goes on with another fabric is Admitted again.
func (t *Transfer) Status() (fabric.State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(), t.err
}

// state needs mu to be held. What a fabric has ended is not over before the
// agent has looked at it: it may go on with another.
func (t *Transfer) state() fabric.State {
	if t.over() || t.running == nil {
		return t.record.State
	}
	state, _ := t.running.Status()
	switch state {
	case fabric.NotSubmitted:
		return fabric.Admitted
	case fabric.Done, fabric.InDoubt:
		return fabric.Submitted
	}
	return state
}

// over needs mu to be held.
func (t *Transfer) over() bool { return t.record.State.Ended() }

// Done is closed at the end.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Await waits for the end and returns nil only for Done; the error names the
// peer. When ctx ends first the transfer goes on; Cancel ends it.
func (t *Transfer) Await(ctx context.Context) error {
	if err := t.wait(ctx); err != nil {
		return err
	}
	if _, err := t.Status(); err != nil {
		return &fabric.Error{Op: t.Op.String(), Subject: t.record.Peer, Err: err}
	}
	return nil
}

func (t *Transfer) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("agent: waiting for transfer %s: %w", t.ID, ctx.Err())
	}
}

// Cancel ends the transfer and returns when the local memory is quiet, which
// takes local work only. It returns nil when the transfer is over, also when
// it was already Done.
func (t *Transfer) Cancel(ctx context.Context) error {
	t.mu.Lock()
	t.cancelled = true
	running, stop := t.running, t.stop
	settle := func() {}
	if running == nil && !t.posting && !t.over() {
		settle = t.end(fabric.NotSubmitted, fabric.ErrCancelled)
	}
	t.mu.Unlock()
	settle()
	stop(fabric.ErrCancelled)
	if running != nil {
		_ = running.Cancel(ctx) // the same wait follows
	}
	return t.wait(ctx)
}

// end needs mu to be held, and its caller calls settle once it is not. Only the
// first end counts.
func (t *Transfer) end(state fabric.State, err error) (settle func()) {
	if t.over() {
		return func() {}
	}
	request, last := t.request, Attempt{}
	if n := len(t.record.Attempts); n > 0 {
		last = t.record.Attempts[n-1]
	}
	t.request, t.err = nil, err
	t.record.State, t.record.Times.Ended = state, t.agent.options.Clock.Now()
	t.record.Times.Submitted = last.Times.Submitted
	if err != nil {
		t.record.Error, t.record.Hint = fabric.Told(err.Error()), fabric.Hint(err)
	}
	stop := t.stop
	return func() {
		stop(nil)
		t.agent.countEnded(t.Op, t.Bytes, state)
		if errors.Is(err, fabric.ErrChecksum) {
			t.agent.audit.note(slog.LevelError, "checksum failed", "peer", request.peer.Name, "transfer", t.ID.String(), "error", err.Error())
		}
		request.peer.learnSpeed(t.Op, t.Bytes, &last)
		request.unuse()
		t.agent.log.ended(t)
		if told := t.agent.options.Ended; told != nil {
			told(t.Record())
		}
		close(t.done)
	}
}

// Record returns what is known of the transfer so far.
func (t *Transfer) Record() Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record
	r.State = t.state()
	r.Attempts = slices.Clone(r.Attempts)
	if t.running != nil {
		now := &r.Attempts[len(r.Attempts)-1]
		now.State, now.Times = r.State, t.running.Times()
		r.Times.Submitted = now.Times.Submitted
	}
	return r
}

// Explain tells what became of the transfer, and why it went the way it did.
func (t *Transfer) Explain() string { return t.Record().String() }
