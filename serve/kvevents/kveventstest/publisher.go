// Package kveventstest is a publisher of cache events for tests: vLLM's, with
// its numbers, its replay and its ways to lose something, over ZMTP by hand.
package kveventstest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// Publisher publishes at two local ports. Its batches are numbered from 0 and
// kept for replays, at most Keep of them.
type Publisher struct {
	t             testing.TB
	events, past  net.Listener
	Keep          int
	mu            sync.Mutex
	next          uint64
	kept          []kept
	subscribers   map[net.Conn]bool
	connections   map[net.Conn]bool
	arrived       *sync.Cond
	replays       int
	skipInReplay  map[uint64]bool // each once
	active        sync.WaitGroup
	topicInReplay bool
}

type kept struct {
	sequence uint64
	payload  []byte
}

// New starts a publisher; at, where given, is where an earlier one was, whose
// successor it is.
func New(t testing.TB, at ...string) *Publisher {
	t.Helper()
	p := &Publisher{t: t, Keep: 10_000, subscribers: make(map[net.Conn]bool), connections: make(map[net.Conn]bool), topicInReplay: true, skipInReplay: make(map[uint64]bool)}
	p.arrived = sync.NewCond(&p.mu)
	at = append(at, "127.0.0.1:0", "127.0.0.1:0")
	p.events, p.past = listen(t, at[0]), listen(t, at[1])
	p.active.Go(func() { p.accept(p.events, p.subscribed) })
	p.active.Go(func() { p.accept(p.past, p.asked) })
	t.Cleanup(p.Close)
	return p
}

func listen(t testing.TB, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Addresses are host:port of events and of replays.
func (p *Publisher) Addresses() (events, replay string) {
	return p.events.Addr().String(), p.past.Addr().String()
}

// Close ends all connections, as the death of an engine does.
func (p *Publisher) Close() {
	_, _ = p.events.Close(), p.past.Close()
	p.Break()
	p.active.Wait()
}

// Break ends all connections; the publisher lives on.
func (p *Publisher) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.connections {
		_ = c.Close()
	}
	clear(p.subscribers)
}

// AwaitSubscriber waits for a subscriber.
func (p *Publisher) AwaitSubscriber() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.subscribers) == 0 {
		p.arrived.Wait()
	}
}

// Replays is how many replays were asked for.
func (p *Publisher) Replays() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replays
}

// OldReplays makes replays as older releases do: without a topic.
func (p *Publisher) OldReplays() { p.topicInReplay = false }

// SkipInReplay drops a batch from the next replay, as a full queue does.
func (p *Publisher) SkipInReplay(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipInReplay[sequence] = true
}

// Publish numbers a batch, keeps it, and sends it to the subscribers.
func (p *Publisher) Publish(payload []byte) { p.publish(payload, true) }

// Lose numbers a batch and keeps it, but no subscriber gets it.
func (p *Publisher) Lose(payload []byte) { p.publish(payload, false) }

func (p *Publisher) publish(payload []byte, send bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, kept{p.next, payload})
	if len(p.kept) > p.Keep {
		p.kept = p.kept[len(p.kept)-p.Keep:]
	}
	if send {
		for c := range p.subscribers {
			_ = p.send(c, nil, number(p.next), payload)
		}
	}
	p.next++
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (p *Publisher) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.connections[c] = true
		p.mu.Unlock()
		p.active.Go(func() {
			serve(c)
			p.mu.Lock()
			delete(p.connections, c)
			delete(p.subscribers, c)
			p.mu.Unlock()
			_ = c.Close()
		})
	}
}

func (p *Publisher) subscribed(c net.Conn) {
	if !p.shake(c, "PUB") {
		return
	}
	frame, _, err := receive(c)
	if err != nil || len(frame) == 0 || frame[0] != 1 {
		p.t.Errorf("a subscriber began with % x (%v)", frame, err)
		return
	}
	p.mu.Lock()
	// A PING, as libzmq sends it where it is told to.
	_, _ = c.Write([]byte("\x04\x09\x04PING\x00\x0aab"))
	p.subscribers[c] = true
	p.arrived.Broadcast()
	p.mu.Unlock()
	pong, _, err := receive(c)
	if err == nil && string(pong) != "\x04PONGab" {
		p.t.Errorf("a PING was answered with %q", pong)
	}
	_, _ = io.Copy(io.Discard, c) // until it ends
}

func (p *Publisher) asked(c net.Conn) {
	if !p.shake(c, "ROUTER") {
		return
	}
	empty, more, err := receive(c)
	if err != nil {
		return
	}
	start, _, err := receive(c)
	if err != nil || !more || len(empty) != 0 || len(start) != 8 {
		p.t.Errorf("a replay was asked for with % x, % x (%v)", empty, start, err)
		return
	}
	p.replay(c, binary.BigEndian.Uint64(start))
	_, _ = io.Copy(io.Discard, c)
}

func (p *Publisher) replay(c net.Conn, from uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replays++
	for _, k := range p.kept {
		switch {
		case k.sequence < from:
		case p.skipInReplay[k.sequence]:
			delete(p.skipInReplay, k.sequence)
		case p.topicInReplay:
			_ = p.send(c, nil, nil, number(k.sequence), k.payload)
		default:
			_ = p.send(c, nil, number(k.sequence), k.payload)
		}
	}
	_ = p.send(c, nil, nil, number(^uint64(0)), nil)
}

func (p *Publisher) shake(c net.Conn, kind string) bool {
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10], hello[11] = 0xff, 0x7f, 3, 1
	copy(hello[12:], "NULL")
	body := "\x05READY\x0bSocket-Type" + string(binary.BigEndian.AppendUint32(nil, uint32(len(kind)))) + kind
	if _, err := c.Write(append(hello, append([]byte{4, byte(len(body))}, body...)...)); err != nil {
		return false
	}
	if _, err := io.ReadFull(c, hello); err != nil {
		return false
	}
	_, _, err := receive(c)
	return err == nil
}

// receive reads a frame that is short, as all are that subscribers send.
func receive(c net.Conn) (body []byte, more bool, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, false, err
	}
	body = make([]byte, head[1])
	_, err = io.ReadFull(c, body)
	return body, head[0]&1 != 0, err
}

func (p *Publisher) send(c net.Conn, frames ...[]byte) error {
	var message []byte
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = 1
		}
		if len(f) > 255 {
			message = binary.BigEndian.AppendUint64(append(message, flags|2), uint64(len(f)))
		} else {
			message = append(message, flags, byte(len(f)))
		}
		message = append(message, f...)
	}
	_, err := c.Write(message)
	return err
}
