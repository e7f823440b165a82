package link

import (
	"context"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// announced is a notification by itself that the peer has not answered.
type announced struct {
	ended func(error)
	bytes int       // of its payload
	until time.Time // then it is given up; zero is never
}

// Notify sends a notification, once what was posted before it has ended, and
// waits for the peer to take it.
func (e *Poster) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	for _, t := range e.Running() {
		select {
		case <-t.Done():
		case <-ctx.Done():
			return fmt.Errorf("fabric: waiting for what was posted before notification %s: %w", id, ctx.Err())
		}
	}
	answer := make(chan error, 1)
	if err := e.Announce(id, payload, 0, func(err error) { answer <- err }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		e.Withdraw(id)
		return fmt.Errorf("fabric: waiting for the peer to take notification %s: %w", id, ctx.Err())
	}
}

// Announce sends a notification now. Ended hears once whether the peer has taken
// it, with ErrDeadline when it has not said so within a time, where one is given.
// It comes under the end's lock: it must not call back. The payload is the
// caller's again when Announce returns.
func (e *Poster) Announce(id kv.ID, payload []byte, within time.Duration, ended func(error)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, again := e.notices[id]
	switch {
	case e.gone != nil:
		return fmt.Errorf("%w: %w", fabric.ErrPeerGone, e.gone)
	case len(e.notices) >= e.options.MaxTransfers || again:
		return fmt.Errorf("%w: too many notifications wait", fabric.ErrBusy)
	case e.held+len(payload) > maxHeld && e.held > 0:
		return fmt.Errorf("%w: what waits on this link takes %d bytes, at most %d", fabric.ErrBusy, e.held, maxHeld)
	}
	a := announced{ended: ended, bytes: len(payload)}
	if within > 0 {
		now := e.options.Clock.Now()
		a.until = now.Add(within)
		e.expireAt(now, a.until)
	}
	e.notices[id] = a
	e.held += a.bytes
	e.frame = mrdn.Notice{ID: id, Payload: payload}.Append(e.frame[:0])
	s := e.streams[e.nextStream%len(e.streams)]
	e.nextStream++
	s.Send(e.frame)
	if cap(e.frame) > keptFrame {
		e.frame = nil
	}
	return nil
}

// keptFrame is the longest frame whose room is used again: one with a value of the
// object cache.
const keptFrame = 320 << 10

// answered ends an announcement; false when there is none. mu is held.
func (e *Poster) answered(id kv.ID, err error) bool {
	a, waits := e.notices[id]
	if waits {
		delete(e.notices, id)
		e.held -= a.bytes
		a.ended(err)
	}
	return waits
}

// expireAt has announcements given up at a time. One timer serves them all: most
// are answered long before it fires. mu is held.
func (e *Poster) expireAt(now, at time.Time) {
	if !e.expires.IsZero() && !at.Before(e.expires) {
		return
	}
	if e.stopExpiry != nil {
		e.stopExpiry()
	}
	e.expires = at
	e.stopExpiry = e.options.Clock.AfterFunc(at.Sub(now), e.expire)
}

// expire gives up announcements whose time is over.
func (e *Poster) expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.options.Clock.Now()
	e.expires, e.stopExpiry = time.Time{}, nil
	var next time.Time
	for _, id := range inOrder(e.notices) {
		switch until := e.notices[id].until; {
		case until.IsZero():
		case !until.After(now):
			e.answered(id, fmt.Errorf("%w: the peer has not said that it took notification %s", fabric.ErrDeadline, id))
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	if !next.IsZero() && e.gone == nil {
		e.expireAt(now, next)
	}
}

// Withdraw gives up waiting for the answer to an announcement, which the peer
// may have heard all the same.
func (e *Poster) Withdraw(id kv.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held -= e.notices[id].bytes
	delete(e.notices, id)
}
