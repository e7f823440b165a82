package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// tryFabrics posts the transfer on the first fabric that takes it, after those
// that were tried. It returns nil when one has taken it; else the transfer is
// over, with the error that it returns.
func (t *Transfer) tryFabrics(ctx context.Context, r *Request) error {
	for {
		name, begun := t.begin()
		if !begun {
			break
		}
		err := t.try(ctx, r, name)
		if err == nil {
			return nil
		}
		if t.failed(err); !retryable(err) || ctx.Err() != nil {
			break
		}
	}
	return t.giveUp(ctx)
}

// begin starts an attempt with the next fabric, if there is one.
func (t *Transfer) begin() (name string, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, left := t.next()
	if !left || t.over() || t.cancelled {
		return "", false
	}
	t.record.Fabric = name
	t.record.Attempts = append(t.record.Attempts, Attempt{Fabric: name, Times: fabric.Times{Posted: t.agent.options.Clock.Now()}})
	return name, true
}

// next is the fabric to try after those that were. mu is held.
func (t *Transfer) next() (name string, left bool) {
	n := len(t.record.Attempts)
	if n == len(t.record.Choices) || t.record.Choices[n].Refused != "" {
		return "", false
	}
	return t.record.Choices[n].Fabric, true
}

// try hands the transfer to a fabric.
func (t *Transfer) try(ctx context.Context, r *Request, name string) error {
	link, prepared, err := r.ready(ctx, name)
	if err != nil {
		return err
	}
	if !t.enterPost() {
		return fabric.ErrCancelled
	}
	running, err := link.Post(ctx, prepared, t.options)
	t.mu.Lock()
	t.posting = false
	t.running = running
	cancelled := t.cancelled
	t.mu.Unlock()
	if err != nil {
		return err
	}
	running.OnEnd(func() { t.ended(running, r) })
	if cancelled {
		_ = running.Cancel(ctx) // the caller of Transfer.Cancel waits
	}
	return nil
}

// enterPost is the point after which a cancel waits for the fabric.
func (t *Transfer) enterPost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.posting = !t.over() && !t.cancelled
	return t.posting
}

// failed notes how an attempt ended that no fabric took.
func (t *Transfer) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	times := fabric.Times{Posted: t.attempt().Times.Posted, Ended: t.agent.options.Clock.Now()}
	t.note(fabric.NotSubmitted, err, times)
}

// ended is called by the fabric, which may hold locks of its own: whatever may
// wait is done elsewhere.
func (t *Transfer) ended(running *fabric.Transfer, r *Request) {
	state, err := running.Status()
	if err == nil && state != fabric.Done {
		err = fmt.Errorf("agent: %v, and the fabric does not say why", state)
	}
	t.mu.Lock()
	t.running = nil
	t.note(state, err, running.Times())
	if state == fabric.NotSubmitted {
		if t.tryNextFabric(err, r) {
			t.mu.Unlock()
			return
		}
		err = t.failure()
	}
	settle := t.end(state, err)
	t.mu.Unlock()
	settle()
}

// tryNextFabric goes on in the background, if another fabric may do better. mu
// is held.
func (t *Transfer) tryNextFabric(err error, r *Request) bool {
	if _, left := t.next(); !left || !retryable(err) {
		return false
	}
	t.stop(nil)
	ctx, stop := t.agent.until(t.deadline)
	t.stop = stop
	return t.agent.run(func() { _ = t.tryFabrics(ctx, r) }) // its error is the transfer's
}

// giveUp ends a transfer that no fabric took.
func (t *Transfer) giveUp(ctx context.Context) error {
	t.mu.Lock()
	settle := t.end(fabric.NotSubmitted, t.reason(ctx))
	err := t.err
	t.mu.Unlock()
	settle()
	return err
}

// reason is why no fabric took it: it was stopped, or all of them failed. mu is
// held.
func (t *Transfer) reason(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case t.cancelled:
		return fabric.ErrCancelled
	case cause == nil:
		return t.failure()
	case errors.Is(cause, context.DeadlineExceeded):
		cause = fabric.ErrDeadline
	}
	if len(t.failures) == 0 {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, t.failure())
}

// attempt is the last one. mu is held.
func (t *Transfer) attempt() *Attempt { return &t.record.Attempts[len(t.record.Attempts)-1] }

// note is how the last attempt ended. mu is held.
func (t *Transfer) note(state fabric.State, err error, times fabric.Times) {
	a := t.attempt()
	a.State, a.Times = state, times
	if err != nil {
		a.Error = fabric.Told(err.Error())
		t.failures = append(t.failures, fmt.Errorf("%s: %w", a.Fabric, err))
	}
}

// failure is what all attempts failed of. mu is held.
func (t *Transfer) failure() error {
	if len(t.failures) == 1 {
		return errors.Unwrap(t.failures[0]) // there is no doubt which one it was
	}
	return errors.Join(t.failures...)
}

// wrongEverywhere is what no other fabric helps against.
var wrongEverywhere = []error{
	fabric.ErrCancelled, fabric.ErrDeadline, fabric.ErrStalePeer, fabric.ErrStaleEpoch, fabric.ErrUnknownRegion,
	fabric.ErrOverlap, fabric.ErrLengths, fabric.ErrReleased, ErrForgotten,
	fabric.ErrNoGrant, fabric.ErrGrantSpans, fabric.ErrGrantPeer, fabric.ErrGrantOp, fabric.ErrGrantExpired, fabric.ErrGrantRevoked,
	mem.ErrBounds, mem.ErrSpans, mem.ErrClosed, mem.ErrGone, mem.ErrReadOnly,
}

// retryable reports whether another fabric may do better where one failed before
// anything moved. In doubt it may: trying costs nothing but time.
func retryable(err error) bool {
	return !slices.ContainsFunc(wrongEverywhere, func(wrong error) bool { return errors.Is(err, wrong) })
}
