package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/kv"
)

// State is how far a transfer has come; see the package comment.
type State uint8

// The states.
const (
	Admitted State = iota
	Submitting
	Submitted
	Done
	NotSubmitted
	InDoubt
)

var stateNames = [...]string{"admitted", "submitting", "submitted", "done", "not submitted", "in doubt"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes s as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("fabric: unknown state %q", text)
	}
	*s = State(i)
	return nil
}

// Ended reports whether s is an end state.
func (s State) Ended() bool { return s >= Done }

// Times is when a transfer reached each stage; zero means never.
type Times struct {
	Posted, Submitted, Ended time.Time
}

// Transfer is one posted operation. Its end is seen by Await, by the channel
// Done, or by polling Status.
type Transfer struct {
	ID    kv.ID
	Op    Op
	Bytes uint64

	clock Clock
	done  chan struct{}

	mu sync.Mutex // protects the rest
	// stop asks the fabric to end the transfer; it may be called often. An
	// ended transfer lets go of it, and with it of the request.
	stop  func(cause error)
	unuse func()
	local *Bound
	onEnd func()
	// stopTimer takes the deadline back.
	stopTimer func() bool
	state     State
	err       error
	times     Times
}

// NewTransfer is for fabrics: a transfer of p that stop can end. It keeps p's
// memory until Finish. A deadline of ctx, by clock, cancels the transfer when it
// passes, which may be before NewTransfer returns: a fabric calls it under the
// lock that stop takes.
func NewTransfer(ctx context.Context, clock Clock, p *Prepared, id kv.ID, stop func(cause error)) (*Transfer, error) {
	unuse, err := p.use()
	if err != nil {
		return nil, err
	}
	t := &Transfer{ID: id, Op: p.Op, Bytes: p.Bytes, clock: clock, stop: stop, unuse: unuse, local: p.Local, done: make(chan struct{})}
	t.times.Posted = clock.Now()
	if deadline, has := ctx.Deadline(); has {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopTimer = clock.AfterFunc(deadline.Sub(t.times.Posted), func() { stop(ErrDeadline) })
	}
	return t, nil
}

// Advance is for fabrics: a stage that was reached. Going back is ignored.
func (t *Transfer) Advance(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s <= t.state || t.state.Ended() || s.Ended() {
		return
	}
	t.state = s
	if s == Submitted {
		t.times.Submitted = t.clock.Now()
	}
}

// Finish is for fabrics: the end, once local memory is quiet but for what holds it
// still, which is waited for. Only the first call counts.
func (t *Transfer) Finish(s State, err error) {
	t.local.WhenIdle(func() { t.finish(s, err) })
}

func (t *Transfer) finish(s State, err error) {
	t.mu.Lock()
	if t.state.Ended() {
		t.mu.Unlock()
		return
	}
	unuse, onEnd := t.unuse, t.onEnd
	t.state, t.err, t.times.Ended = s, err, t.clock.Now()
	if s == Done && t.times.Submitted.IsZero() {
		t.times.Submitted = t.times.Ended // the peer's answer was faster than our own report
	}
	if t.stopTimer != nil {
		t.stopTimer()
	}
	t.stop, t.unuse, t.onEnd, t.stopTimer = nil, nil, nil, nil
	t.mu.Unlock()
	unuse()
	if onEnd != nil {
		onEnd()
	}
	close(t.done)
}

// OnEnd has f called once at the end, before Done is closed; at once when it is
// over already. f must not block. A second call replaces the first.
func (t *Transfer) OnEnd(f func()) {
	t.mu.Lock()
	over := t.state.Ended()
	if !over {
		t.onEnd = f
	}
	t.mu.Unlock()
	if over {
		f()
	}
}

// Status is the state now, and the error once it has ended badly.
func (t *Transfer) Status() (State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.err
}

// Done is closed at the end.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Times tells when each stage was reached.
func (t *Transfer) Times() Times {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.times
}

// Await waits for the end and returns nil only for Done. When ctx ends first
// the transfer goes on; Cancel ends it.
func (t *Transfer) Await(ctx context.Context) error {
	select {
	case <-t.done:
	default:
		select {
		case <-t.done:
		case <-ctx.Done():
			return fmt.Errorf("fabric: waiting for transfer %s: %w", t.ID, ctx.Err())
		}
	}
	_, err := t.Status()
	return err
}

// Cancel ends the transfer and returns when the local memory is quiet, which
// takes local work only. It returns nil when the transfer is over, also when
// it was already Done.
func (t *Transfer) Cancel(ctx context.Context) error {
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	if stop != nil {
		stop(ErrCancelled)
	}
	err := t.Await(ctx)
	if errors.Is(err, ctx.Err()) && ctx.Err() != nil {
		select {
		case <-t.done:
		default:
			return err
		}
	}
	return nil
}
