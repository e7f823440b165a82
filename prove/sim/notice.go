package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
)

// notice is a notification by itself.
type notice struct {
	serial int
	from   *process
	to     *process
	heard  int
}

func (n *notice) String() string { return fmt.Sprintf("N%d", n.serial) }

// notify sends a bare notification to a peer and waits for it to be taken.
func (p *process) notify(peer *agent.Peer) {
	w := p.world
	n := &notice{serial: len(w.notices), from: p, to: w.processOf(peer.Incarnation)}
	w.notices = append(w.notices, n)
	w.note(p, nil, "notifies %s of %v", peer.Name, n)
	deadline := between(w.work, time.Millisecond, 2*time.Second)
	limit := w.now + deadline + localWork
	ctx := p.within(deadline)
	p.spawn(func() {
		notify := peer.Notify
		if w.swarm.attends { // those whose rooms attend are those that post
			notify = p.postTo(peer)
		}
		err := notify(ctx, []byte(n.String()))
		if p.dead {
			return
		}
		w.note(p, nil, "%v: %v", n, err)
		switch {
		case err == nil && n.heard == 0:
			w.violate("a notification is delivered once", nil, "%v was taken, says %v, and was not", n, p)
		case errors.Is(err, fabric.ErrBusy) && n.heard > 0:
			w.violate("a notification is delivered once", nil, "%v was refused, says %v, and was delivered", n, p)
		case w.now > max(limit, p.pausedUntil+localWork):
			w.violate("nothing waits past its deadline", nil, "%v of %v ended %v after its deadline", n, p, w.now-limit)
		}
		w.tally.notified(err)
	})
}

// postTo posts a notification and waits for what becomes of it.
func (p *process) postTo(peer *agent.Peer) func(context.Context, []byte) error {
	return func(ctx context.Context, payload []byte) (answer error) {
		answered := false
		if err := peer.PostNotification(ctx, payload, func(err error) { answer, answered = err, true }); err != nil {
			return err
		}
		p.await(func() bool { return answered })
		return answer
	}
}

// delivered is told of every notification that a process is handed, and whether
// it took it.
func (w *world) delivered(to *process, n fabric.Notification, err error) {
	text := string(n.Payload)
	if len(text) < 2 {
		w.violate("only what was posted moves", nil, "%v hears %q, which was not sent", to, text)
		return
	}
	serial, _ := strconv.Atoi(text[1:])
	if text[0] == 'N' {
		w.deliveredBare(to, w.notices[serial], n, err)
		return
	}
	t := w.posted[serial]
	w.note(to, t, "hears the notification: %v", err)
	if err != nil {
		w.tally.NotificationsRefused++
		return
	}
	to.inbox = append(to.inbox, text)
	t.heard++
	at := -1
	if !t.over || t.doubtful() && !t.frozen { // else the memory has another use by now
		at, _ = t.compare(false)
	}
	t.checkSender(n, to)
	switch {
	case t.heard > 1:
		w.violate("a notification is delivered once", t, "that of %v was delivered %d times", t, t.heard)
	case !t.notify:
		w.violate("only what was posted moves", t, "%v has no notification", t)
	case t.forbidden != nil && t.mayStillNotify: // it is that of an earlier life
	case t.forbidden != nil:
		w.violate("what is forbidden does not happen", t, "%v notified, and must not: %v", t, t.forbidden)
	case at >= 0:
		w.violate("a notification comes after the data", t, "byte %d of %d of %v is not in place", at, total(t.source), t)
	}
}

func (t *transfer) checkSender(n fabric.Notification, to *process) {
	if n.From != t.from.host.name || n.Incarnation != t.from.incarnation() || n.Transfer != t.id || to != t.to {
		t.world().violate("notifications say who sent them", t, "%v hears it from %s (%v)", to, n.From, n.Incarnation)
	}
}

func (w *world) deliveredBare(to *process, n *notice, said fabric.Notification, err error) {
	w.note(to, nil, "hears %v: %v", n, err)
	if err != nil {
		w.tally.NotificationsRefused++
		return
	}
	to.inbox = append(to.inbox, n.String())
	if n.heard++; n.heard > 1 {
		w.violate("a notification is delivered once", nil, "%v was delivered %d times", n, n.heard)
	}
	if said.From != n.from.host.name || said.Incarnation != n.from.incarnation() || to != n.to {
		w.violate("notifications say who sent them", nil, "%v hears %v from %s", to, n, said.From)
	}
}

// drain takes notifications: some of them, or all.
func (p *process) drain(all bool) {
	w := p.world
	for all || w.work.IntN(3) > 0 {
		select {
		case n, open := <-p.agent.Notifications():
			if !open {
				all = false
			} else if len(p.inbox) == 0 || p.inbox[0] != string(n.Payload) {
				w.violate("a notification is delivered once", nil, "%v finds %q in its inbox, where %v is due", p, n.Payload, p.inbox)
				return
			} else {
				p.inbox = p.inbox[1:]
				w.tally.Heard++
				continue
			}
		default:
		}
		if len(p.inbox) > 0 {
			w.violate("a notification is delivered once", nil, "%v took %v, and its inbox is empty", p, p.inbox)
		}
		return
	}
}
