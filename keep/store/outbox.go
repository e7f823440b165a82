package store

import (
	"sync"

	"meridian/kv"
)

// outbox counts what this process answers and tells other agents, on its way. A peer
// that asks much and takes nothing has its share of it, and is told no more than that.
type outbox struct {
	mu    sync.Mutex // protects the rest
	bytes uint64
	lanes map[kv.Member]peerQueue
}

// peerQueue is what is on its way to one peer.
type peerQueue struct {
	messages int
	bytes    uint64
}

const (
	maxOutbox   = 64 << 20      // bytes on their way
	maxLane     = maxOutbox / 4 // of them to one peer
	maxMessages = 1024          // to one peer
)

func newOutbox() *outbox { return &outbox{lanes: make(map[kv.Member]peerQueue)} }

// begin lets a message of so many bytes be sent, or reports that too much is on its way
// already. Over ends it.
func (o *outbox) begin(to kv.Member, bytes uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[to]
	if l.messages == maxMessages || l.messages > 0 && (l.bytes+bytes > maxLane || o.bytes+bytes > maxOutbox) {
		return false
	}
	o.bytes += bytes
	o.lanes[to] = peerQueue{l.messages + 1, l.bytes + bytes}
	return true
}

func (o *outbox) over(to kv.Member, bytes uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[to]
	o.bytes -= bytes
	if o.lanes[to] = (peerQueue{l.messages - 1, l.bytes - bytes}); l.messages == 1 {
		delete(o.lanes, to)
	}
}
