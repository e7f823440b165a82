package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/fabric"
)

// event lets the machines take something. The authority is how long this process
// surely is the master.
type event func(now, authority kv.Instant) []protocol.Effect

// step lets the machines take an event, and does what they ask for.
func (s *Store) step(e event) {
	s.mu.Lock()
	s.noticeSleep()
	now := s.now()
	todo := s.advance(now, e(now, s.authority()))
	s.mu.Unlock()
	for _, do := range todo {
		do()
	}
}

// advance takes effects on, as long as they lead to events here. What it returns is
// done without mu, which is held.
func (s *Store) advance(now kv.Instant, effects []protocol.Effect) (todo []func()) {
	for _, e := range s.settle(now, effects) {
		if do := s.execute(e); do != nil {
			todo = append(todo, do)
		}
	}
	return todo
}

// settle has this process hear what its machines tell it, and returns what is left to
// do, in order. mu is held.
func (s *Store) settle(now kv.Instant, effects []protocol.Effect) (left []protocol.Effect) {
	for i := 0; i < len(effects); i++ {
		if send, is := effects[i].(protocol.Send); is && send.To == s.self {
			effects = append(effects, s.receive(now, s.self, send.Request, send.Message)...)
			continue
		}
		left = append(left, effects[i])
	}
	return left
}

// receive hands a message to the machine, or to the caller, that it is for. mu is
// held.
func (s *Store) receive(now kv.Instant, from kv.Member, request uint64, m protocol.Message) []protocol.Effect {
	switch m := m.(type) {
	case *protocol.Where, *protocol.Forget, *protocol.Renew, *protocol.Keys, *protocol.Claim, *protocol.Dropped:
		if s.led == nil {
			return new(protocol.Coordinator).Receive(now, 0, from, request, m) // "another term"
		}
		if _, renews := m.(*protocol.Renew); renews && !s.led.Knows(from) && !s.view.knows(from) {
			return nil // no owner that the directory names; one that has just come asks again
		}
		return s.led.Receive(now, s.authority(), from, request, m)
	case *protocol.Answer, *protocol.Claimed, *protocol.DroppedAck:
		if s.server != nil {
			return s.server.Receive(now, from, request, m)
		}
	case *protocol.Cold:
		return []protocol.Effect{protocol.Send{To: from, Request: request, Message: &protocol.Present{Is: s.cold.has(m.Names)}}}
	case *protocol.DescribeTiers:
		return []protocol.Effect{protocol.Send{To: from, Request: request, Message: s.cold.describe()}}
	case *protocol.Put, *protocol.PutFrom, *protocol.Open, *protocol.Commit, *protocol.Get, *protocol.Remove, *protocol.Locate, *protocol.Has, *protocol.List,
		*protocol.Describe, *protocol.Evict, *protocol.Inspect, *protocol.Pin:
		var refusal error
		switch {
		case s.server == nil:
			refusal = fmt.Errorf("%w: %s keeps no objects", protocol.ErrRefused, s.self.Name)
		case s.closed: // before it is neither master nor owner any more
			refusal = fmt.Errorf("%w: %s is closing", master.ErrSilent, s.self.Name)
		}
		if refusal != nil {
			return []protocol.Effect{protocol.Send{To: from, Request: request, Message: protocol.Refuse(refusal)}}
		}
		if remove, is := m.(*protocol.Remove); is && remove.Checksum == 0 {
			s.cold.drop(remove.Name)
		}
		effects := s.server.Receive(now, from, request, s.admitted(m))
		if see, is := m.(*protocol.Inspect); is {
			s.cold.see(see.Names, effects)
		}
		return effects
	default:
		s.calls.answer(from, request, m)
	}
	return nil
}

// onNotification takes a message from another agent, on the goroutine that brought it: a
// peer is read no further until what it asked for is under way.
func (s *Store) onNotification(n fabric.Notification) {
	request, m, err := protocol.ParseMessage(n.Payload)
	if err != nil {
		s.counters.malformed.Add(1)
		s.options.Agent.Unreadable(n, err)
		return
	}
	s.counters.heard.Add(1)
	from := kv.Member{Name: n.From, Incarnation: n.Incarnation}
	var lent *protocol.Put
	switch whole := m.(type) { // what is kept of m must not be a part of the payload
	case *protocol.Get, *protocol.Reply, *protocol.Value:
	case *protocol.Put:
		whole.Name = bytes.Clone(whole.Name)
		if lent = whole; len(whole.Value) > sealedAtOnce {
			lent, whole.Value = nil, bytes.Clone(whole.Value)
		}
	default:
		_, m, _ = protocol.ParseMessage(bytes.Clone(n.Payload))
	}
	if protocol.Answers(m) { // its caller waits, and no machine is asked
		s.calls.answer(from, request, m)
		return
	}
	s.step(func(now, _ kv.Instant) []protocol.Effect {
		effects := s.receive(now, from, request, m)
		if lent != nil && s.server != nil {
			effects = s.settle(now, effects)
			s.server.Keep(lent)
		}
		return effects
	})
}

// admitted is a request as the owner in this process takes it: pages have a size.
func (s *Store) admitted(m protocol.Message) protocol.Message {
	switch m := m.(type) {
	case *protocol.Put:
		own := *m // a client in this process may ask another owner with it
		own.PageSize = cmp.Or(m.PageSize, s.options.Owner.PageSize)
		return &own
	case *protocol.PutFrom:
		own := *m
		own.PageSize = cmp.Or(m.PageSize, s.options.Owner.PageSize)
		return &own
	case *protocol.Open:
		own := *m
		own.PageSize = cmp.Or(m.PageSize, s.options.Owner.PageSize)
		return &own
	}
	return m
}

// execute begins what an effect asks for, and returns what is to be done without
// mu, which is held.
func (s *Store) execute(e protocol.Effect) (do func()) {
	switch e := e.(type) {
	case protocol.Send:
		return func() { s.send(e.To, e.Request, e.Message) }
	case protocol.Grant:
		return func() { s.grant(e) }
	case protocol.Revoke:
		return s.background(func() { s.revoke(e) })
	case protocol.Seal:
		if e.Plan.Bytes <= sealedAtOnce {
			return func() { s.seal(e) }
		}
		return s.background(func() { s.seal(e) })
	case protocol.Fetch:
		return s.background(func() { s.fetch(e) })
	case protocol.Deliver:
		return s.beginDelivery(e)
	case protocol.Verify:
		return s.beginLook(e)
	case protocol.Mark:
		return s.led.mark(e)
	case protocol.Continue:
		return s.background(func() {
			s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Continue(now) })
		})
	}
	return nil
}

// sealedAtOnce is what is copied and summed in less time than it takes to wake a
// goroutine for it.
const sealedAtOnce = 64 << 10

// background makes work that Close waits for.
func (s *Store) background(work func()) (do func()) {
	return func() { s.wait.Go(work) }
}

const (
	sendTimeout = 5 * time.Second
	sendPause   = 2 * time.Millisecond
	sendTries   = 6
)

// messages are buffers for messages: one with a value is long.
var messages = sync.Pool{New: func() any { return new([]byte) }}

// encode makes a message ready to travel, in a buffer of messages.
func encode(request uint64, m protocol.Message) *[]byte {
	b := messages.Get().(*[]byte)
	*b = protocol.AppendMessage((*b)[:0], request, m)
	return b
}

// send has a message delivered, or not: a peer that does not take what it is told is
// told no more.
func (s *Store) send(to kv.Member, request uint64, m protocol.Message) {
	payload := encode(request, m)
	over := func() {}
	if !protocol.TellsMaster(m) {
		size := uint64(len(*payload))
		if !s.outbox.begin(to, size) {
			messages.Put(payload)
			s.counters.lost.Add(1)
			return
		}
		over = func() { s.outbox.over(to, size) }
	}
	s.sendPayload(to, payload, over)
}

// sendPayload delivers what encode has made, or not, gives the buffer back, and calls
// over. It does not wait: where there is no connection, or no room, a goroutine does. A
// message that a peer has no room for, or whose link broke, is tried again: what answers
// a request is not asked for twice.
func (s *Store) sendPayload(to kv.Member, payload *[]byte, over func()) {
	ended := func(err error) {
		if err == nil {
			s.counters.sent.Add(1)
			messages.Put(payload)
			over()
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed { // so that Close waits for it
			s.wait.Go(func() { s.resend(to, payload, err, over) })
		}
	}
	err := s.peers.Announce(to, *payload, sendTimeout, ended)
	if err == nil {
		return
	}
	s.wait.Go(func() {
		if errors.Is(err, fabric.ErrUnconnected) {
			ctx, cancel := context.WithTimeout(s.ctx, sendTimeout)
			defer cancel()
			err = s.peers.Post(ctx, to, *payload, ended)
		}
		if err != nil {
			s.resend(to, payload, err, over)
		}
	})
}

// resend goes on with a message that was not delivered at once.
func (s *Store) resend(to kv.Member, payload *[]byte, err error, over func()) {
	defer over()
	defer messages.Put(payload)
	ctx, cancel := context.WithTimeout(s.ctx, sendTimeout)
	defer cancel()
	for try := range sendTries {
		if !errors.Is(err, fabric.ErrBusy) && !errors.Is(err, fabric.ErrPeerGone) || !s.pause(ctx, sendPause<<(2*try)) {
			break
		}
		if err = s.peers.Tell(ctx, to, *payload); err == nil {
			s.counters.sent.Add(1)
			return
		}
	}
	s.counters.lost.Add(1)
	s.options.Logger.Debug("a message of the object cache was not delivered", "peer", to.Name, "error", err)
}
