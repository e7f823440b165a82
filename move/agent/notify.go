package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/move/fabric"
)

// Notify delivers payload to the peer by itself, in order after what was posted
// before on the same fabric, and returns when the peer has taken it. Another
// fabric is tried only while it is certain that nothing was sent: the peer is
// never notified twice.
func (p *Peer) Notify(ctx context.Context, payload []byte) error {
	return p.notify(ctx, func(l fabric.Link) (sent bool, err error) {
		err = l.Notify(ctx, p.agent.newID(), payload)
		return !neverSent(err), err
	})
}

// NotifyUnordered delivers payload to the peer like Notify, but waits for
// nothing that was posted before: what two agents say of a transfer must not
// stand in line behind its gigabytes. Two of them may arrive in any order.
func (p *Peer) NotifyUnordered(ctx context.Context, payload []byte) error {
	return p.notify(ctx, func(l fabric.Link) (sent bool, err error) { return p.postNotification(ctx, l, payload) })
}

// PostNotification is NotifyUnordered for who does not wait: ended hears once
// whether the peer has taken it, unless this returns an error. It may be called
// before this returns and by a fabric that holds locks: it must not block. The
// payload is the caller's again when this returns.
func (p *Peer) PostNotification(ctx context.Context, payload []byte, ended func(error)) error {
	within := time.Duration(0)
	if deadline, has := ctx.Deadline(); has {
		within = max(1, deadline.Sub(p.agent.options.Clock.Now()))
	}
	if err := p.Announce(payload, within, ended); !errors.Is(err, fabric.ErrUnconnected) {
		return err
	}
	return p.notify(ctx, func(l fabric.Link) (sent bool, err error) {
		t, err := fabric.PostNotification(ctx, l, p.agent.newID(), payload)
		if err != nil {
			return false, err
		}
		t.OnEnd(func() {
			_, err := t.Status()
			ended(err)
		})
		return true, nil
	})
}

// Announce is PostNotification for who must not wait for a connection, either: it
// returns ErrUnconnected where there is none. Ended hears ErrDeadline when it is not
// known within a time whether the peer has taken it; 0 is no bound.
func (p *Peer) Announce(payload []byte, within time.Duration, ended func(error)) error {
	for _, f := range p.agent.fabrics {
		link, announces := p.linked(f.Name()).(fabric.Announcer)
		if !announces {
			continue
		}
		err := link.Announce(p.agent.newID(), payload, within, ended)
		if !errors.Is(err, fabric.ErrUnconnected) {
			return err
		}
	}
	return fabric.ErrUnconnected
}

// notify sends on the first fabric that notifies, and on the next where nothing
// was sent. Sent means that the notification may have arrived despite the error.
func (p *Peer) notify(ctx context.Context, send func(fabric.Link) (sent bool, err error)) error {
	var errs []error
	for _, f := range p.agent.fabrics {
		if p.address(f.Name()) == nil || !f.Capabilities().Notify {
			continue
		}
		l, err := p.link(ctx, f)
		sent := false
		if err == nil {
			sent, err = send(l)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
		if sent || !retryable(err) || ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("%w: no fabric in common with %s that notifies", fabric.ErrUnsupported, p.Name)
	}
	return errors.Join(errs...)
}

// neverSent reports whether a fabric failed before it had anything to send on.
func neverSent(err error) bool {
	var failed *fabric.Error
	return errors.Is(err, fabric.ErrUnsupported) || errors.As(err, &failed) && failed.Op == "connect"
}

// postNotification posts a transfer of nothing with a notification, and waits for
// its end.
func (p *Peer) postNotification(ctx context.Context, l fabric.Link, payload []byte) (sent bool, err error) {
	t, err := fabric.PostNotification(ctx, l, p.agent.newID(), payload)
	if err != nil {
		return false, err
	}
	err = t.Await(ctx)
	if err != nil {
		_ = t.Cancel(context.WithoutCancel(ctx)) // local work only
	}
	state, _ := t.Status()
	return state != fabric.NotSubmitted, err
}
