package agent

import (
	"context"
	"errors"
	"fmt"

	"meridian/fabric"
)

// Tell delivers payload to the peer like Notify, but waits for nothing that was
// posted before: a word between two agents must not stand in line behind the
// gigabytes that it is about. Two of them may arrive in any order.
func (p *Peer) Tell(ctx context.Context, payload []byte) error {
	var errs []error
	for _, f := range p.agent.fabrics {
		if p.address(f.Name()) == nil || !f.Capabilities().Notify {
			continue
		}
		sent, err := p.tell(ctx, f, payload)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
		if sent || !curable(err) || ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("%w: no fabric in common with %s that notifies", fabric.ErrUnsupported, p.Name)
	}
	return errors.Join(errs...)
}

// tell posts a transfer of nothing with a notification. Sent means that it may
// have arrived all the same.
func (p *Peer) tell(ctx context.Context, f fabric.Fabric, payload []byte) (sent bool, err error) {
	l, err := p.link(ctx, f)
	if err != nil {
		return false, err
	}
	nothing, err := l.Prepare(fabric.Write, nil, nil)
	if err != nil {
		return false, err
	}
	defer nothing.Release()
	t, err := l.Post(ctx, nothing, fabric.PostOptions{ID: p.agent.newID(), Notify: true, Notification: payload})
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
