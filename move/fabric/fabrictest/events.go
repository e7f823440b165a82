package fabrictest

import (
	"slices"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
)

// events is where a fabric under test tells what happened.
type events struct {
	mu       sync.Mutex // protects the rest
	notified []fabric.Notification
	lost     []fabric.Peer
	// hear, where set, looks at a notification in the callback and may refuse it.
	hear func(fabric.Notification) error
	// hearing counts callbacks that are in hear right now; idle is told when
	// there are none.
	hearing int
	idle    sync.Cond
	// over: the fabric is closed and must be silent.
	over bool
	late int
}

func (e *events) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		e.late++
	}
	if e.hear != nil {
		if err := e.listen(n); err != nil {
			return nil, err
		}
	}
	n.Payload = slices.Clone(n.Payload)
	e.notified = append(e.notified, n)
	return nil, nil
}

func (e *events) LinkLost(p fabric.Peer, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = append(e.lost, p)
}

func (e *events) Refused(string, error) {}

// listen calls hear without the lock, so that it may take its time.
func (e *events) listen(n fabric.Notification) error {
	hear := e.hear
	e.hearing++
	e.mu.Unlock()
	err := hear(n)
	e.mu.Lock()
	if e.hearing--; e.hearing == 0 && e.idle.L != nil {
		e.idle.Broadcast()
	}
	return err
}

// onNotified sets hear. When it returns, no call is in the old one any more: what
// that looked at may change.
func (e *events) onNotified(hear func(fabric.Notification) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hear = hear
	e.idle.L = &e.mu
	for e.hearing > 0 {
		e.idle.Wait()
	}
}

// of lists what came for one transfer, in order.
func (e *events) of(id kv.ID) []fabric.Notification {
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
