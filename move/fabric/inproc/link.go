package inproc

import (
	"context"
	"errors"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/workers"
)

// link is a connection between two fabrics of this process, or of one with
// itself.
type link struct {
	workers.Link
	near, far *Fabric
}

func newLink(near, far *Fabric) *link {
	l := &link{near: near, far: far}
	self := near.options
	l.Pool, l.Regions, l.Events = near.pool, &near.regions, far.options.Events
	l.Self = fabric.Peer{Name: self.Agent, Incarnation: self.Incarnation}
	l.Far = fabric.Peer{Name: far.options.Agent, Incarnation: far.options.Incarnation, Address: far.Address()}
	l.Bind = func(t *workers.Task, grant kv.ID) (*fabric.Bound, func(), error) {
		remote, err := far.admit(t, near, grant)
		return remote, func() { far.dismiss(t) }, err
	}
	l.Move = func(dst, src *fabric.Bound, stopped func() error) (bool, error) {
		c := copier{checked: !self.NoChecksums}
		moved, err := c.list(dst, src, stopped)
		return moved > 0, err
	}
	return l
}

// Close ends the link.
func (l *link) Close(ctx context.Context) error { return l.end(ctx, fabric.ErrClosed) }

// end stops what was posted here. A cause other than the poster's own Close is
// news to him.
func (l *link) end(ctx context.Context, cause error) error {
	first := l.End(cause)
	l.near.forget(l)
	l.far.forget(l)
	err := l.Fence(ctx, cause)
	if first && !errors.Is(cause, fabric.ErrClosed) {
		l.near.options.Events.LinkLost(l.Far, cause)
	}
	return err
}
