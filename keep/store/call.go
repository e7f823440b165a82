package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/fabric"
)

// calls are the questions of this client that wait for an answer.
type calls struct {
	closed chan struct{}

	mu    sync.Mutex // protects the rest
	ended bool
	byID  map[uint64]*call
}

// call is one of them.
type call struct {
	to     kv.Member
	since  time.Time
	done   chan struct{} // closed with the answer, or with why none will come
	stop   func()        // where it is not nil, ends its delivery when none will come
	answer protocol.Message
	err    error
	taking
}

// taking is how the bytes of a get come to its reader.
type taking struct {
	// into is where the owner in this process copies them.
	into func(size uint64) []byte
	// inline takes those of a value that came in a message, while that is there.
	inline func(*protocol.Value)
}

func newCalls() *calls { return &calls{closed: make(chan struct{}), byID: make(map[uint64]*call)} }

func (c *calls) begin(id uint64, one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id] = one; c.ended {
		c.endLocked(id, ErrClosed)
	}
}

// endLocked ends a call that will have no answer.
func (c *calls) endLocked(id uint64, err error) {
	one := c.byID[id]
	delete(c.byID, id)
	one.err = err
	close(one.done)
	if one.stop != nil {
		one.stop()
	}
}

// stopWith has stop called when no answer will come.
func (c *calls) stopWith(one *call, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.stop = stop; one.err != nil {
		stop()
	}
}

// answer takes an answer, of which it keeps no value. Only who was asked can give one.
func (c *calls) answer(from kv.Member, id uint64, m protocol.Message) {
	c.mu.Lock()
	one := c.byID[id]
	mine := one != nil && one.to == from
	if mine {
		delete(c.byID, id) // from now on nothing else ends it, and its caller waits for done
	}
	c.mu.Unlock()
	if !mine {
		return
	}
	if v, is := m.(*protocol.Value); is {
		if one.inline != nil && !v.Landed {
			one.inline(v)
		}
		v.Data = nil
	}
	one.answer = m
	close(one.done)
}

// forget ends a call whose caller waits no longer.
func (c *calls) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id] != nil {
		c.endLocked(id, errNoAnswer)
	}
}

// fail ends the calls to a peer that were made before a moment.
func (c *calls) fail(to kv.Member, before time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, one := range c.byID {
		if one.to == to && !one.since.After(before) {
			c.endLocked(id, err)
		}
	}
}

// close ends all calls, and those to come.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.closed)
	for id := range c.byID {
		c.endLocked(id, ErrClosed)
	}
}

// silent are the peers that owe an answer since before a moment.
func (c *calls) silent(before time.Time) map[kv.Member]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all map[kv.Member]bool
	for _, one := range c.byID {
		if one.since.Before(before) {
			if all == nil {
				all = make(map[kv.Member]bool)
			}
			all[one.to] = true
		}
	}
	return all
}

// into is where the bytes of a get from the owner in this process go.
func (c *calls) into(id, size uint64) []byte {
	c.mu.Lock()
	one := c.byID[id]
	c.mu.Unlock()
	if one == nil || one.into == nil {
		return nil
	}
	return one.into(size)
}

var (
	errNoAnswer = errors.New("no answer came in time")
	// errUndelivered means that what was asked surely did not arrive.
	errUndelivered = errors.New("it was not delivered")
)

// ask asks a peer, or this process itself, and waits for the answer.
func (s *Store) ask(ctx context.Context, to kv.Member, m protocol.Message, t taking) (protocol.Message, error) {
	if err := s.reach.suspected(to); err != nil {
		return nil, err
	}
	id := firstRequest + s.number.Add(1)
	one := &call{to: to, since: s.options.Clock.Now(), done: make(chan struct{}), taking: t}
	s.calls.begin(id, one)
	var err error
	if to == s.self {
		s.step(func(now, _ kv.Instant) []protocol.Effect { return s.receive(now, to, id, m) })
		select {
		case <-one.done:
		case <-ctx.Done():
		}
	} else {
		payload := encode(id, m)
		err = s.deliver(ctx, one, *payload)
		messages.Put(payload)
	}
	s.calls.forget(id)
	<-one.done
	if err != nil && one.answer == nil && !errors.Is(one.err, ErrClosed) {
		return nil, err
	}
	return one.answer, one.err
}

// firstRequest keeps the numbers of a client's requests apart from those of the
// owner in its process.
const firstRequest = 1 << 40

// deliver takes a question to a peer, and waits until it is answered or ctx ends. An
// error says why no answer will come.
func (s *Store) deliver(ctx context.Context, one *call, payload []byte) error {
	d := &delivery{call: one, payload: payload, failed: make(chan error, 1)}
	d.ended = func(err error) {
		if err == nil {
			s.counters.sent.Add(1)
			return
		}
		d.failed <- err // one at a time is on its way
	}
	err := s.peers.Announce(one.to, payload, max(1, duration(s.deadline(ctx)-s.now())), d.ended)
	d.posted = err == nil
	if d.posted {
		if err = d.await(ctx); err == nil {
			return nil
		}
	}
	return s.deliverPatiently(ctx, d, err)
}

// delivery is a question on its way.
type delivery struct {
	*call
	payload []byte
	ended   func(error) // tells failed
	failed  chan error  // why it was not taken
	posted  bool        // it may have left
}

// await waits for the answer, which is all that is waited for: that the question was
// taken says less.
func (d *delivery) await(ctx context.Context) error {
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return nil
	case err := <-d.failed:
		return err
	}
}

// deliverPatiently goes on with a question for which there was no connection, or no
// room: a peer that has none is asked again.
func (s *Store) deliverPatiently(ctx context.Context, d *delivery, err error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.calls.stopWith(d.call, stop)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		again := errors.Is(err, fabric.ErrUnconnected) || errors.Is(err, fabric.ErrBusy) && s.pause(ctx, pause)
		if !again {
			break
		}
		err = s.peers.Post(ctx, d.to, d.payload, d.ended)
		if d.posted = err == nil; d.posted {
			if err = d.await(ctx); err == nil {
				return nil
			}
		}
	}
	s.counters.lost.Add(1)
	s.reach.note(d.to, err)
	if !d.posted || undelivered(err) {
		return fmt.Errorf("%w: %w", errUndelivered, err)
	}
	return err
}

// undelivered reports whether a message that was posted surely was not taken.
func undelivered(err error) bool {
	for _, sign := range []error{fabric.ErrBusy, fabric.ErrStalePeer, directory.ErrNotFound} {
		if errors.Is(err, sign) {
			return true
		}
	}
	var failed *fabric.Error
	return errors.As(err, &failed) && failed.Op == "connect"
}

// gone says that an agent is no more: what it was asked it will not answer.
func (s *Store) gone(m kv.Member) {
	s.calls.fail(m, s.options.Clock.Now(), fmt.Errorf("%w: %v", fabric.ErrPeerGone, m))
}
