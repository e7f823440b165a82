package link

import (
	"errors"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// byHand is a clock that goes on when it is told to.
type byHand struct {
	now    time.Time
	timers []*timer
}

type timer struct {
	at time.Time
	f  func()
}

func (c *byHand) Now() time.Time { return c.now }

func (c *byHand) AfterFunc(d time.Duration, f func()) func() bool {
	t := &timer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return func() bool {
		pending := t.f != nil
		t.f = nil
		return pending
	}
}

func (c *byHand) pass(d time.Duration) {
	c.now = c.now.Add(d)
	due := c.timers
	c.timers = nil
	for _, t := range due {
		switch {
		case t.f == nil:
		case t.at.After(c.now):
			c.timers = append(c.timers, t)
		default:
			t.f()
		}
	}
}

// busyRoom attends to what it is told, and has no room for a word that says so.
type busyRoom struct {
	deaf
	server *Server
	heard  []string
}

func (r *busyRoom) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	if string(n.Payload) == "refuse" {
		return nil, fabric.ErrBusy
	}
	return r, nil
}

// Handle calls back, which needs the server's lock to be free.
func (r *busyRoom) Handle(n fabric.Notification) {
	r.server.Owes()
	r.heard = append(r.heard, string(n.Payload))
}

// acks takes what was sent apart.
func acks(t *testing.T, frames []byte) (all []mrdn.Ack) {
	t.Helper()
	for len(frames) > 0 {
		kind, length, err := mrdn.ParsePrefix(frames)
		if err != nil || kind != mrdn.AckFrame {
			t.Fatalf("frame %d: %v", kind, err)
		}
		ack, err := mrdn.ParseAck(frames[mrdn.PrefixSize : mrdn.PrefixSize+int(length)])
		if err != nil {
			t.Fatal(err)
		}
		all, frames = append(all, ack), frames[mrdn.PrefixSize+int(length):]
	}
	return all
}

func attended(t *testing.T) (*Server, *wire, *busyRoom, *byHand) {
	t.Helper()
	regions, _ := memory(t)
	r, clock := new(busyRoom), new(byHand)
	r.server = NewServer(ServerOptions{Peer: "b", Regions: regions, Events: r, Clock: clock, MaxTransfers: 4, OnLost: func(error) {}})
	w := new(wire)
	r.server.Attach(w)
	return r.server, w, r, clock
}

func notice(id int, text string) []byte {
	return mrdn.Notice{ID: kv.ID{byte(id), byte(id >> 8)}, Payload: []byte(text)}.Append(nil)
}

// What a room attends to it hears at once; receipts wait for one another, refusals do not.
func TestReceiptsWaitForOneAnother(t *testing.T) {
	server, w, room, clock := attended(t)
	hear(t, server, w, mrdn.NoticeFrame, notice(1, "one"))
	hear(t, server, w, mrdn.NoticeFrame, notice(2, "two"))
	if len(room.heard) != 2 || len(w.sent) != 0 || !server.Owes() {
		t.Fatalf("heard %q, and sent %d frames", room.heard, len(w.sent))
	}
	hear(t, server, w, mrdn.NoticeFrame, notice(3, "refuse"))
	if len(w.sent) != 1 || acks(t, w.sent[0])[0].Code != mrdn.CodeBusy {
		t.Fatalf("a refusal waits: %d were sent", len(w.sent))
	}
	hear(t, server, w, mrdn.NoticeFrame, notice(1, "one")) // again, which Events is not told of
	if len(room.heard) != 2 || len(w.sent) != 2 || acks(t, w.sent[1])[0].Code != mrdn.OK {
		t.Fatalf("a repeated notice: heard %q, sent %d", room.heard, len(w.sent))
	}
	clock.pass(receiptPause)
	if len(w.sent) != 3 || len(acks(t, w.sent[2])) != 2 || server.Owes() {
		t.Fatalf("%d were sent after the pause", len(w.sent))
	}
	clock.pass(time.Second)
	if len(w.sent) != 3 {
		t.Error("receipts are sent twice")
	}
}

// Many do not wait, and none is sent when the link is gone.
func TestReceiptsAreBounded(t *testing.T) {
	server, w, _, clock := attended(t)
	for i := range 200 {
		hear(t, server, w, mrdn.NoticeFrame, notice(i, "x"))
		if waits := len(server.receipts.frames); waits >= maxReceipts {
			t.Fatalf("%d bytes of receipts wait", waits)
		}
	}
	if len(w.sent) == 0 || !server.Owes() {
		t.Fatalf("%d were sent", len(w.sent))
	}
	before := len(w.sent)
	server.Lost(errors.New("gone"))
	clock.pass(time.Second)
	if len(w.sent) != before || server.Owes() {
		t.Error("receipts are sent on a link that is gone")
	}
}

// An announcement whose receipt does not come ends by its time, with one timer for all.
func TestAnnouncementsExpire(t *testing.T) {
	regions, _ := memory(t)
	clock := new(byHand)
	p := NewPoster(PosterOptions{Regions: regions, Clock: clock, MaxTransfers: 8, OnLost: func(error) {}})
	p.Attach(new(wire))
	ended := map[byte]error{}
	for id, within := range map[byte]time.Duration{1: 3 * time.Second, 2: time.Second, 3: 2 * time.Second, 4: 0} {
		if err := p.Announce(kv.ID{id}, make([]byte, 100), within, func(err error) { ended[id] = err }); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{1, 2, 3, 3} {
		clock.pass(time.Second)
		if len(ended) != want {
			t.Fatalf("after %d s %d have ended", i+1, len(ended))
		}
	}
	if !errors.Is(ended[1], fabric.ErrDeadline) || p.Held() != 1 || p.held != 100 || len(clock.timers) != 0 {
		t.Errorf("%v; it holds %d, of %d bytes, under %d timers", ended[1], p.Held(), p.held, len(clock.timers))
	}
	p.Lost(errors.New("gone"))
	if !errors.Is(ended[4], fabric.ErrPeerGone) || p.held != 0 {
		t.Errorf("%v; it holds %d bytes", ended[4], p.held)
	}
}

// What waits on a link for its receipts is bounded in bytes, but for one.
func TestAnnouncementsAreBounded(t *testing.T) {
	regions, _ := memory(t)
	p := NewPoster(PosterOptions{Regions: regions, Clock: new(byHand), MaxTransfers: 8, OnLost: func(error) {}})
	p.Attach(new(wire))
	if err := p.Announce(kv.ID{1}, make([]byte, maxHeld), 0, func(error) {}); err != nil {
		t.Fatal(err)
	}
	if err := p.Announce(kv.ID{2}, make([]byte, 1), 0, func(error) {}); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("beyond the bound: %v", err)
	}
	p.Withdraw(kv.ID{1})
	if err := p.Announce(kv.ID{2}, make([]byte, 1), 0, func(error) {}); err != nil {
		t.Errorf("after it was withdrawn: %v", err)
	}
}
