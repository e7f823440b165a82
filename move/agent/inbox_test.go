package agent_test

import (
	"errors"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
)

// sender is an agent that notifies another.
func sender(t *testing.T, limits agent.InboxLimits) (to *agent.Peer, at *side) {
	t.Helper()
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b", Inbox: limits})
	p, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	return p, b
}

func listen(t *testing.T, a *side, magic string, limits agent.InboxLimits) <-chan fabric.Notification {
	t.Helper()
	inbox, err := a.Listen(magic, limits)
	if err != nil {
		t.Fatal(err)
	}
	return inbox
}

func TestNotificationsInOrderUntilFull(t *testing.T) {
	p, b := sender(t, agent.InboxLimits{Count: 2})
	for i := range byte(2) {
		if err := p.Notify(soon(t), []byte{i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Notify(soon(t), nil); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("a full inbox took a notification: %v", err)
	}
	for i := range byte(2) {
		if n := <-b.Notifications(); n.Payload[0] != i {
			t.Errorf("out of order: %+v", n)
		}
	}
}

func TestInboxBytes(t *testing.T) {
	const half = 512
	p, b := sender(t, agent.InboxLimits{Bytes: 2 * half})
	send := func(bytes int) error { return p.Notify(soon(t), make([]byte, bytes)) }
	for i := range 2 {
		if err := send(half); err != nil {
			t.Fatalf("half of it beside %d: %v", i, err)
		}
	}
	if err := send(1); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("a byte beyond the bound: %v", err)
	}
	<-b.Notifications()
	if err := send(half + 1); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("more than the room that one left: %v", err)
	}
	if err := send(half); err != nil {
		t.Errorf("no room after one was taken: %v", err)
	}
	<-b.Notifications()
	<-b.Notifications()
	if err := send(2 * half); err != nil {
		t.Errorf("all of it into an empty inbox: %v", err)
	}
	if m := b.Metrics(); m.Notified != 4 || m.NotificationsRefused != 2 {
		t.Errorf("counted %+v", m)
	}
}

// A room that does not read is the only one whose senders are refused.
func TestRoomsHaveInboxesOfTheirOwn(t *testing.T) {
	p, b := sender(t, agent.InboxLimits{Count: 1})
	slow, quick := listen(t, b, "SLOW", agent.InboxLimits{Count: 1}), listen(t, b, "QUIC", agent.InboxLimits{Bytes: 8})
	send := func(text string, want error) {
		t.Helper()
		if err := p.NotifyUnordered(soon(t), []byte(text)); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
	}
	took := func(from <-chan fabric.Notification, want string) {
		t.Helper()
		if n := <-from; string(n.Payload) != want || n.From != "a" {
			t.Errorf("took %q of %s, want %q", n.Payload, n.From, want)
		}
	}
	send("SLOW1", nil)
	send("SLOW2", fabric.ErrBusy)
	send("QUIC1", nil)
	send("QUIC too long", fabric.ErrBusy)
	send("SLO", nil) // too short to be anything's
	send("else", fabric.ErrBusy)
	send("QUI", fabric.ErrBusy)
	took(b.Notifications(), "SLO")
	took(quick, "QUIC1")
	send("QUIC2345", nil)
	took(quick, "QUIC2345")
	took(slow, "SLOW1")
	send("SLOW3", nil)

	b.Unlisten("SLOW")
	b.Unlisten("SLOW") // twice is once
	took(slow, "SLOW3")
	if _, open := <-slow; open {
		t.Error("open after Unlisten")
	}
	send("SLOW4", nil)
	took(b.Notifications(), "SLOW4")
	again := listen(t, b, "SLOW", agent.InboxLimits{})
	send("SLOW5", nil)
	took(again, "SLOW5")

	if err := b.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, inbox := range []<-chan fabric.Notification{again, quick, b.Notifications()} {
		if _, open := <-inbox; open {
			t.Error("an inbox is open, its agent is closed")
		}
	}
	b.Unlisten("SLOW")
	if _, err := b.Listen("SLOW", agent.InboxLimits{}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("listening at a closed agent: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	a := start(t, agent.Options{Name: "a"})
	listen(t, a, "ROOM", agent.InboxLimits{})
	for magic, limits := range map[string]agent.InboxLimits{"ROOM": {}, "ROO": {}, "ROOMS": {}, "": {}, "FEWR": {Count: -1}, "LESS": {Bytes: -1}} {
		if _, err := a.Listen(magic, limits); err == nil {
			t.Errorf("listening for %q within %+v", magic, limits)
		}
	}
}

// A room that attends hears as it is told, and nothing after Unlisten.
func TestAttend(t *testing.T) {
	p, b := sender(t, agent.InboxLimits{})
	heard := make(chan string, 2)
	if err := b.Handle("ROOM", func(n fabric.Notification) { heard <- n.From + " " + string(n.Payload) }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Listen("ROOM", agent.InboxLimits{}); err == nil {
		t.Error("two rooms listen for one magic")
	}
	ended := make(chan error, 2)
	for _, payload := range []string{"ROOM1", "ROOM2"} {
		if err := p.PostNotification(soon(t), []byte(payload), func(err error) { ended <- err }); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		if got := <-heard; got != "a "+payload {
			t.Errorf("heard %q, want %q", got, payload)
		}
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a receipt says %v", err)
		}
	}
	b.Unlisten("ROOM")
	if err := p.NotifyUnordered(soon(t), []byte("ROOM3")); err != nil {
		t.Fatal(err)
	}
	if n := <-b.Notifications(); string(n.Payload) != "ROOM3" || len(heard) != 0 {
		t.Errorf("after Unlisten %q is left, and %d were heard", n.Payload, len(heard))
	}
}

// Unlisten returns when what the room hears is over.
func TestUnlistenWaitsForAnAttendant(t *testing.T) {
	p, b := sender(t, agent.InboxLimits{})
	hears, goOn := make(chan struct{}), make(chan struct{})
	if err := b.Handle("ROOM", func(fabric.Notification) { close(hears); <-goOn }); err != nil {
		t.Fatal(err)
	}
	if err := p.PostNotification(soon(t), []byte("ROOM"), func(error) {}); err != nil {
		t.Fatal(err)
	}
	<-hears
	over := make(chan struct{})
	go func() { b.Unlisten("ROOM"); close(over) }()
	select {
	case <-over:
		t.Error("it returned while the room heard")
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	<-over
}

// Announce does not wait for a connection.
func TestAnnounceNeedsAConnection(t *testing.T) {
	p, b := sender(t, agent.InboxLimits{})
	if err := p.Announce([]byte("a word"), time.Second, nil); !errors.Is(err, fabric.ErrUnconnected) {
		t.Fatalf("before any connection: %v", err)
	}
	if err := p.Notify(soon(t), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	if err := p.Announce([]byte("a word"), time.Second, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("its receipt says %v", err)
	}
	for _, want := range []string{"hello", "a word"} {
		if n := <-b.Notifications(); string(n.Payload) != want {
			t.Errorf("%q came, want %q", n.Payload, want)
		}
	}
}
