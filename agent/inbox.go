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
	// Share is for how many peers there is room: one agent has this part of Count and of
	// Bytes at most; default 1.
	Share int
}

func (l InboxLimits) withDefaults() InboxLimits {
	return InboxLimits{Count: cmp.Or(l.Count, 1024), Bytes: cmp.Or(l.Bytes, 16<<20), Share: cmp.Or(l.Share, 1)}
}

func (l InboxLimits) validate() error {
	if l.Count < 0 || l.Bytes < 0 || l.Share < 0 {
		return fmt.Errorf("agent: room for %d notifications of %d bytes, shared by %d; none can be negative", l.Count, l.Bytes, l.Share)
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
	waiting []waiting // oldest first, and maybe some that were taken before
	all     load      // the sum of waiting
	by      map[string]load
}

// waiting is a notification in an inbox: who sent it, and how long it is.
type waiting struct {
	from  string
	bytes int
}

// load is notifications that wait.
type load struct{ count, bytes int }

func newInbox(l InboxLimits) *inbox {
	return &inbox{limits: l, channel: make(chan fabric.Notification, l.Count), by: make(map[string]load)}
}

// put adds a notification, or says why there is no room. One caller at a time.
func (i *inbox) put(n fabric.Notification) error {
	for len(i.waiting) > len(i.channel) {
		i.note(i.waiting[0], -1)
		i.waiting = i.waiting[1:]
	}
	one, own := waiting{n.From, len(n.Payload)}, i.by[n.From]
	switch {
	case i.all.count == i.limits.Count:
		return fmt.Errorf("%w: %d notifications wait to be taken", fabric.ErrBusy, i.all.count)
	case i.all.bytes+one.bytes > i.limits.Bytes:
		return fmt.Errorf("%w: %d bytes of notifications wait to be taken", fabric.ErrBusy, i.all.bytes)
	case own.count > 0 && (own.count >= i.limits.Count/i.limits.Share || own.bytes+one.bytes > i.limits.Bytes/i.limits.Share):
		return fmt.Errorf("%w: %d notifications of %s, of %d bytes, wait to be taken", fabric.ErrBusy, own.count, n.From, own.bytes)
	}
	i.channel <- n // has room, and only this caller fills it
	i.waiting = append(i.waiting, one)
	i.note(one, 1)
	return nil
}

// note counts one more that waits, or one less.
func (i *inbox) note(w waiting, more int) {
	own := i.by[w.from]
	own.count, own.bytes = own.count+more, own.bytes+more*w.bytes
	i.all.count, i.all.bytes = i.all.count+more, i.all.bytes+more*w.bytes
	if i.by[w.from] = own; own.count == 0 {
		delete(i.by, w.from)
	}
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
