package agent

import (
	"cmp"
	"fmt"

	"meridian/fabric"
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
	first   func(fabric.Notification) (taken bool)
	channel chan fabric.Notification
	sizes   []int // of those that wait, oldest first, and maybe some taken before
	bytes   int   // the sum of sizes
}

func newInbox(l InboxLimits) *inbox {
	return &inbox{limits: l, channel: make(chan fabric.Notification, l.Count)}
}

// put adds a notification, or says why there is no room. One caller at a time.
func (i *inbox) put(n fabric.Notification) error {
	for len(i.sizes) > len(i.channel) {
		i.bytes -= i.sizes[0]
		i.sizes = i.sizes[1:]
	}
	switch {
	case len(i.sizes) == i.limits.Count:
		return fmt.Errorf("%w: %d notifications wait to be taken", fabric.ErrBusy, len(i.sizes))
	case i.bytes+len(n.Payload) > i.limits.Bytes:
		return fmt.Errorf("%w: %d bytes of notifications wait to be taken", fabric.ErrBusy, i.bytes)
	}
	i.channel <- n // has room, and only this caller fills it
	i.sizes, i.bytes = append(i.sizes, len(n.Payload)), i.bytes+len(n.Payload)
	return nil
}

// magicBytes is how many bytes at the front of a payload say which room it is for.
const magicBytes = 4

// Listen returns where peers' notifications arrive, each once, whose payload
// begins with magic. It has bounds of its own, so that a room that is slow is
// the only one that refuses. Unlisten and Close close it.
func (a *Agent) Listen(magic string, limits InboxLimits) (<-chan fabric.Notification, error) {
	return a.ListenFirst(magic, limits, func(fabric.Notification) bool { return false })
}

// ListenFirst is Listen for a room that looks at each notification as it comes, and
// keeps those from the channel that it has taken then: a goroutine waits for them.
// First is called under locks, one call at a time: it must be short and must not
// call back.
func (a *Agent) ListenFirst(magic string, limits InboxLimits, first func(fabric.Notification) (taken bool)) (<-chan fabric.Notification, error) {
	limits = limits.withDefaults()
	if len(magic) != magicBytes {
		return nil, fmt.Errorf("agent: listening for %q; a magic has %d bytes", magic, magicBytes)
	}
	if err := limits.validate(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, fabric.ErrClosed
	case a.rooms[magic] != nil:
		return nil, fmt.Errorf("agent: another room of %s listens for %q already", a.options.Name, magic)
	}
	i := newInbox(limits)
	i.first = first
	a.rooms[magic] = i
	return i.channel, nil
}

// Unlisten ends what Listen began: what waits can still be taken, and what
// arrives from now on is for Notifications.
func (a *Agent) Unlisten(magic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.rooms[magic]; i != nil {
		delete(a.rooms, magic)
		close(i.channel)
	}
}

// Notifications is where peers' notifications arrive, each once, that no room
// listens for. It is closed by Close.
func (a *Agent) Notifications() <-chan fabric.Notification { return a.others.channel }

// take puts a notification into its inbox, if there is room.
func (a *Agent) take(n fabric.Notification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fabric.ErrClosed
	}
	into := a.others
	if len(n.Payload) >= magicBytes {
		if room := a.rooms[string(n.Payload[:magicBytes])]; room != nil {
			into = room
			if room.first(n) {
				a.metrics.Notified++
				return nil
			}
		}
	}
	if err := into.put(n); err != nil {
		a.metrics.NotificationsRefused++
		return fmt.Errorf("%w at %s", err, a.options.Name)
	}
	a.metrics.Notified++
	return nil
}

// closeInboxes needs mu.
func (a *Agent) closeInboxes() {
	close(a.others.channel)
	for _, room := range a.rooms {
		close(room.channel)
	}
	clear(a.rooms)
}
