package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/move/fabric"
)

// Redial is the posting side of a link over all its lives: it connects when it
// must, and connects again when the connection was lost. It is what a caller
// holds; fabrics add their Estimate and their Close.
type Redial struct {
	options RedialOptions

	mu      sync.Mutex // protects the rest
	current Connection // nil when there is none
	closed  bool
	// dialing is closed when the attempt that runs has ended.
	dialing chan struct{}
	backoff time.Duration
	// notBefore is when the next attempt may dial. It is a time and not a pause that
	// every caller waits out: callers whose deadlines are shorter than the pause
	// would never dial.
	notBefore time.Time
	// stale: another incarnation answered, or none that speaks our version. It is
	// believed for a while only, because who said so has proven nothing.
	stale      error
	staleUntil time.Time
}

// Connection is one connection of a link.
type Connection interface {
	Posting() *Poster
	// Wait returns when nothing of it runs, once it was lost.
	Wait()
}

// RedialOptions says who is at the other end, and how to get there.
type RedialOptions struct {
	Peer    fabric.Peer
	Regions *fabric.Regions
	Cutter  Cutter
	Clock   fabric.Clock // default the machine's
	// Dial makes a connection and starts it. Its poster's OnLost calls Drop.
	Dial func(ctx context.Context) (Connection, error)
	// FirstBackoff is how long to wait before the second attempt, LastBackoff
	// before any; 0 for peers that refuse at once.
	FirstBackoff, LastBackoff time.Duration
	// Lost hears of a connection that broke while the link was open.
	Lost func(p fabric.Peer, err error)
}

// NewRedial makes a link that has not connected yet.
func NewRedial(o RedialOptions) *Redial {
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	return &Redial{options: o}
}

// Peer is who is at the other end.
func (r *Redial) Peer() fabric.Peer { return r.options.Peer }

func (r *Redial) error(op string, err error) error { return fabric.WithOp(op, r.options.Peer, err) }

func (r *Redial) gaveUp(err error) error {
	return r.error("connect", fmt.Errorf("%w: %w", fabric.ErrPeerGone, err))
}

// Connected returns the connection, making one if need be. One goroutine dials;
// others wait for it.
func (r *Redial) Connected(ctx context.Context) (Connection, error) {
	for {
		r.mu.Lock()
		switch {
		case r.closed:
			r.mu.Unlock()
			return nil, r.error("connect", fabric.ErrClosed)
		case r.stale != nil && r.options.Clock.Now().Before(r.staleUntil):
			stale := r.stale
			r.mu.Unlock()
			return nil, r.error("connect", stale)
		case r.current != nil:
			c := r.current
			r.mu.Unlock()
			if gone := c.Posting().Gone(); gone != nil {
				r.Drop(c, gone)
				continue
			}
			return c, nil
		}
		if wait := r.dialing; wait != nil {
			r.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, r.gaveUp(ctx.Err())
			}
		}
		r.dialing = make(chan struct{})
		pause := r.notBefore.Sub(r.options.Clock.Now())
		r.mu.Unlock()
		if err := r.waitOut(ctx, pause); err != nil {
			r.mu.Lock()
			r.settleLocked() // no caller has dialed, which says nothing of the peer
			r.mu.Unlock()
			return nil, err
		}
		return r.dialed(r.options.Dial(ctx))
	}
}

// waitOut waits until the next attempt may dial.
func (r *Redial) waitOut(ctx context.Context, pause time.Duration) error {
	if pause <= 0 {
		return nil
	}
	over := make(chan struct{})
	stop := r.options.Clock.AfterFunc(pause, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return r.gaveUp(ctx.Err())
	}
}

// settleLocked ends an attempt for all who wait for it. mu is held.
func (r *Redial) settleLocked() {
	close(r.dialing)
	r.dialing = nil
}

// dialed is the end of an attempt that was made.
func (r *Redial) dialed(c Connection, err error) (Connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settleLocked()
	switch {
	case err == nil && r.closed:
		r.mu.Unlock() // which Drop takes
		c.Posting().Lost(fabric.ErrClosed)
		r.mu.Lock()
		return nil, r.error("connect", fabric.ErrClosed)
	case err == nil:
		r.current, r.backoff, r.notBefore = c, 0, time.Time{}
		return c, nil
	}
	err = r.error("connect", err)
	now := r.options.Clock.Now()
	switch {
	case errors.Is(err, fabric.ErrStalePeer), errors.Is(err, fabric.ErrVersion):
		r.stale, r.staleUntil = err, now.Add(r.options.LastBackoff)
	default:
		r.backoff = min(max(r.options.FirstBackoff, 2*r.backoff), r.options.LastBackoff)
		r.notBefore = now.Add(r.backoff)
	}
	return nil, err
}

// Drop forgets a connection that was lost.
func (r *Redial) Drop(c Connection, err error) {
	r.mu.Lock()
	mine, closed := r.current == c, r.closed
	if mine {
		r.current = nil
	}
	r.mu.Unlock()
	if mine && !closed && !errors.Is(err, fabric.ErrClosed) {
		r.options.Lost(r.options.Peer, err)
	}
}

// Prepare checks a request and cuts it into parts.
func (r *Redial) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := r.options.Cutter.Prepare(r.options.Regions, op, local, remote)
	if err != nil {
		return nil, r.error("prepare", err)
	}
	return p, nil
}

// Post starts a prepared request.
func (r *Redial) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	c, err := r.Connected(ctx)
	if err != nil {
		return nil, err
	}
	t, err := c.Posting().Post(ctx, p, o)
	if err != nil {
		return nil, r.error(p.Op.String(), err)
	}
	return t, nil
}

// Notify delivers payload by itself.
func (r *Redial) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	c, err := r.Connected(ctx)
	if err != nil {
		return err
	}
	if err := c.Posting().Notify(ctx, id, payload); err != nil {
		return r.error("notify", err)
	}
	return nil
}

// Announce delivers payload by itself, now, where there is a connection.
func (r *Redial) Announce(id kv.ID, payload []byte, within time.Duration, ended func(error)) error {
	r.mu.Lock()
	c := r.current
	r.mu.Unlock()
	if c == nil {
		return r.error("announce", fabric.ErrUnconnected)
	}
	err := c.Posting().Announce(id, payload, within, ended)
	switch {
	case err == nil:
		return nil
	case c.Posting().Gone() != nil:
		return r.error("announce", fabric.ErrUnconnected)
	}
	return r.error("announce", err)
}

// Fence ends everything that touches a region here.
func (r *Redial) Fence(region uint64, cause error) {
	r.mu.Lock()
	c := r.current
	r.mu.Unlock()
	if c != nil {
		c.Posting().Fence(region, cause)
	}
}

// Close ends the link, and returns when nothing of it runs, or when ctx ends: a stream
// may wait for a GPU.
func (r *Redial) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	c := r.current
	r.mu.Unlock()
	if c != nil {
		c.Posting().Lost(fabric.ErrClosed)
		return join.Within(ctx, "fabric: closing a link", c.Wait)
	}
	return nil
}
