package transceiver

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"meridian/fabric"
	"meridian/transceiver/handoff"
)

// mailroom sorts an agent's notifications: messages of hand-offs go to their
// transceiver, the rest to whoever else listens.
type mailroom struct {
	rest    chan fabric.Notification
	sizes   []int // of what is in rest, oldest first, and maybe of some taken before
	bytes   int   // the sum of sizes
	dropped atomic.Uint64
	stop    chan struct{}
	once    sync.Once
	done    chan struct{}
}

// These bound what nobody else has taken. A sender was told that its
// notification arrived, so losing one is bad; but hand-offs that stand still
// because nobody reads the rest are worse.
const (
	maxRest      = 4096
	maxRestBytes = 16 << 20
)

func openMailroom(in <-chan fabric.Notification, ours func(fabric.Notification), logger *slog.Logger) *mailroom {
	m := &mailroom{rest: make(chan fabric.Notification, maxRest), stop: make(chan struct{}), done: make(chan struct{})}
	go m.sort(in, ours, logger)
	return m
}

func (m *mailroom) sort(in <-chan fabric.Notification, ours func(fabric.Notification), logger *slog.Logger) {
	defer close(m.done)
	for {
		select {
		case <-m.stop:
			return
		case n, open := <-in:
			if !open {
				return
			}
			if handoff.IsMessage(n.Payload) {
				ours(n)
				continue
			}
			if !m.keep(n) && m.dropped.Add(1) == 1 {
				logger.Warn("notifications that are not of hand-offs are lost: nobody takes them", "waiting", len(m.rest), "bytes", m.bytes)
			}
		}
	}
}

// keep puts a notification with the rest, if there is room. What was taken from
// there was taken in order, so the length tells what is left.
func (m *mailroom) keep(n fabric.Notification) bool {
	for len(m.sizes) > len(m.rest) {
		m.bytes -= m.sizes[0]
		m.sizes = m.sizes[1:]
	}
	if len(m.rest) == maxRest || m.bytes+len(n.Payload) > maxRestBytes {
		return false
	}
	m.rest <- n // only this goroutine adds to it
	m.sizes, m.bytes = append(m.sizes, len(n.Payload)), m.bytes+len(n.Payload)
	return true
}

// close stops the sorting and waits for it.
func (m *mailroom) close() {
	m.once.Do(func() { close(m.stop) })
	<-m.done
}
