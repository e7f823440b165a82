package fabrictest

import (
	"slices"
	"sync"

	"meridian/fabric"
	"meridian/mrdn"
)

// events is where a fabric under test tells what happened.
type events struct {
	mu       sync.Mutex // protects the rest
	notified []fabric.Notification
	lost     []fabric.Peer
	// hear, where set, looks at a notification in the callback and may refuse it.
	hear func(fabric.Notification) error
	// over: the fabric is closed and must be silent.
	over bool
	late int
}

func (e *events) Notified(n fabric.Notification) error {
	e.mu.Lock()
	hear := e.hear
	if e.over {
		e.late++
	}
	e.mu.Unlock()
	if hear != nil {
		if err := hear(n); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n.Payload = slices.Clone(n.Payload)
	e.notified = append(e.notified, n)
	return nil
}

func (e *events) LinkLost(p fabric.Peer, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = append(e.lost, p)
}

func (e *events) onNotified(hear func(fabric.Notification) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hear = hear
}

// of lists what came for one transfer, in order.
func (e *events) of(id mrdn.ID) []fabric.Notification {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.notified), func(n fabric.Notification) bool { return n.Transfer != id })
}

func (e *events) all() []fabric.Notification {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.notified)
}

func (e *events) hasLost(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.lost, func(p fabric.Peer) bool { return p.Name == name })
}

func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

func (e *events) lateCalls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.late
}
