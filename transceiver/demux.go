package transceiver

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"meridian/fabric"
	"meridian/transceiver/handoff"
)

// demux sorts an agent's notifications: messages of hand-offs go to their
// transceiver, others wait for the reader of Transceiver.OtherNotifications.
type demux struct {
	other   chan fabric.Notification
	sizes   []int // of what is in other, oldest first, and maybe of some taken before
	bytes   int   // the sum of sizes
	dropped atomic.Uint64
	stop    chan struct{}
	once    sync.Once
	done    chan struct{}
}

// These bound the notifications that wait for their reader. A sender was told
// that its notification arrived, so losing one is bad; but hand-offs that stand
// still because of a reader that does not read are worse.
const (
	maxOther      = 4096
	maxOtherBytes = 16 << 20
)

func openDemux(in <-chan fabric.Notification, ours func(fabric.Notification), logger *slog.Logger) *demux {
	m := &demux{other: make(chan fabric.Notification, maxOther), stop: make(chan struct{}), done: make(chan struct{})}
	go m.run(in, ours, logger)
	return m
}

func (m *demux) run(in <-chan fabric.Notification, ours func(fabric.Notification), logger *slog.Logger) {
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
			if !m.keepOther(n) && m.dropped.Add(1) == 1 {
				logger.Warn("notifications that are not of hand-offs are lost: they are not read", "waiting", len(m.other), "bytes", m.bytes)
			}
		}
	}
}

// keepOther puts a notification before its reader, if there is room. What was
// taken from there was taken in order, so the length tells what is left.
func (m *demux) keepOther(n fabric.Notification) bool {
	for len(m.sizes) > len(m.other) {
		m.bytes -= m.sizes[0]
		m.sizes = m.sizes[1:]
	}
	if len(m.other) == maxOther || m.bytes+len(n.Payload) > maxOtherBytes {
		return false
	}
	m.other <- n // only this goroutine adds to it
	m.sizes, m.bytes = append(m.sizes, len(n.Payload)), m.bytes+len(n.Payload)
	return true
}

// close stops the sorting and waits for it.
func (m *demux) close() {
	m.once.Do(func() { close(m.stop) })
	<-m.done
}
