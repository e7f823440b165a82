package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"

	"meridian/move/fabric"
)

// InboxLimits bounds notifications that arrived and were not taken. One that
// does not fit is refused with ErrBusy, which its sender hears.
type InboxLimits struct {
	Count int // default 1024
	Bytes int // of their payloads; default 16 MiB
}

func (l InboxLimits) withDefaults() InboxLimits {
	return InboxLimits{Count: cmp.Or(l.Count, 1024), Bytes: cmp.Or(l.Bytes, 16<<20)}
}

func (l InboxLimits) validate() error {
	if l.Count < 0 || l.Bytes < 0 {
		return fmt.Errorf("agent: room for %d notifications of %d bytes; neither can be negative", l.Count, l.Bytes)
	}
	return nil
}

// inbox is where notifications wait for the room that they are for. The reader
// that takes one does not tell; but they are taken in order, so the length of
// the channel tells which are left.
type inbox struct {
	limits  InboxLimits
	channel chan fabric.Notification
	waiting []int // their lengths, oldest first, and maybe some that were taken before
	bytes   int   // the sum of waiting
}

func newInbox(l InboxLimits) *inbox {
	return &inbox{limits: l, channel: make(chan fabric.Notification, l.Count)}
}

// put adds a notification, or says why there is no room. One caller at a time.
func (i *inbox) put(n fabric.Notification) error {
	for len(i.waiting) > len(i.channel) {
		i.bytes -= i.waiting[0]
		i.waiting = i.waiting[1:]
	}
	switch {
	case len(i.waiting) == i.limits.Count:
		return fmt.Errorf("%w: %d notifications wait to be taken", fabric.ErrBusy, len(i.waiting))
	case i.bytes+len(n.Payload) > i.limits.Bytes:
		return fmt.Errorf("%w: %d bytes of notifications wait to be taken", fabric.ErrBusy, i.bytes)
	}
	n.Payload = bytes.Clone(n.Payload)
	i.channel <- n // has room, and only this caller fills it
	i.waiting = append(i.waiting, len(n.Payload))
	i.bytes += len(n.Payload)
	return nil
}

// magicBytes is how many bytes at the front of a payload say which room it is for.
const magicBytes = 4

// Listen returns where peers' notifications arrive, each once, whose payload
// begins with magic. It has bounds of its own, so that a room that is slow is
// the only one that refuses. Unlisten and Close close it.
func (a *Agent) Listen(magic string, limits InboxLimits) (<-chan fabric.Notification, error) {
	limits = limits.withDefaults()
	if err := limits.validate(); err != nil {
		return nil, err
	}
	i := newInbox(limits)
	if err := a.open(magic, subscription{inbox: i}); err != nil {
		return nil, err
	}
	return i.channel, nil
}

// Handle has a room hear peers' notifications whose payload begins with magic as they
// come, each once, on the goroutine that brought it, until Unlisten: nothing waits here,
// and no goroutine is woken. While hear runs, no more is read from where the
// notification came from. So hear is short and waits for no peer. It may be called by
// several goroutines at a time. The payload is not hear's to keep.
func (a *Agent) Handle(magic string, hear func(fabric.Notification)) error {
	return a.open(magic, subscription{handler: &handlerSubscription{hear: hear}})
}

// subscription is who listens for a magic: one of the two.
type subscription struct {
	inbox   *inbox
	handler *handlerSubscription
}

// handlerSubscription is a room that hears at once.
type handlerSubscription struct {
	hear func(fabric.Notification)

	mu   sync.RWMutex // read-held while it hears; protects over
	over bool
}

// Handle hears a notification, unless nothing is to be heard any more.
func (t *handlerSubscription) Handle(n fabric.Notification) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.over {
		t.hear(n)
	}
}

// end returns when nothing is heard, and nothing will be.
func (t *handlerSubscription) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

func (a *Agent) open(magic string, r subscription) error {
	if len(magic) != magicBytes {
		return fmt.Errorf("agent: listening for %q; a magic has %d bytes", magic, magicBytes)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, taken := a.rooms[magic]; {
	case a.closed:
		return fabric.ErrClosed
	case taken:
		return fmt.Errorf("agent: another room of %s listens for %q already", a.options.Name, magic)
	}
	a.rooms[magic] = r
	return nil
}

// Unlisten ends what Listen or Attend began: what waits can still be taken, and what
// arrives from now on is for Notifications. An handler hears nothing any more when it
// returns.
func (a *Agent) Unlisten(magic string) {
	a.mu.Lock()
	r := a.rooms[magic]
	delete(a.rooms, magic)
	if r.inbox != nil {
		close(r.inbox.channel)
	}
	a.mu.Unlock()
	if r.handler != nil {
		r.handler.end()
	}
}

// Notifications is where peers' notifications arrive, each once, that no room
// listens for. It is closed by Close.
func (a *Agent) Notifications() <-chan fabric.Notification { return a.others.channel }

// take puts a notification into its inbox, if there is room, or names who attends to it.
func (a *Agent) take(n fabric.Notification) (fabric.NotificationHandler, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fabric.ErrClosed
	}
	into := a.others
	if len(n.Payload) >= magicBytes {
		switch r := a.rooms[string(n.Payload[:magicBytes])]; {
		case r.handler != nil:
			a.metrics.Notified++
			return r.handler, nil
		case r.inbox != nil:
			into = r.inbox
		}
	}
	if err := into.put(n); err != nil {
		a.metrics.NotificationsRefused++
		return nil, fmt.Errorf("%w at %s", err, a.options.Name)
	}
	a.metrics.Notified++
	return nil, nil
}

// closeInboxes needs mu.
func (a *Agent) closeInboxes() {
	close(a.others.channel)
	for _, r := range a.rooms {
		if r.inbox != nil {
			close(r.inbox.channel)
		}
	}
	clear(a.rooms)
}
