package link

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/session"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// wire is a stream that keeps what it is given.
type wire struct {
	sent     [][]byte
	posted   []*Outbound
	expected []*Inbound
	quieted  int
	closed   bool
}

func (w *wire) Send(frames []byte) { w.sent = append(w.sent, bytes.Clone(frames)) }

func (w *wire) Post(p *Outbound) (Progress, error) {
	w.posted = append(w.posted, p)
	return Queued, nil
}

func (w *wire) Expect(p *Inbound) error {
	w.expected = append(w.expected, p)
	return nil
}

func (w *wire) Quiet(match func(Part) bool) {
	for _, p := range w.expected {
		if match(p.Part) {
			w.quieted++
			p.Release()
		}
	}
	for _, p := range w.posted {
		if match(p.Part) {
			w.quieted++
			p.Release()
		}
	}
}

func (w *wire) Close() { w.closed = true }

// deaf takes events and does nothing.
type deaf struct{ fabric.Events }

func (deaf) Notified(fabric.Notification) (fabric.NotificationHandler, error) { return nil, nil }
func (deaf) Refused(string, error)                                            {}

// memory registers a region of one page.
func memory(t *testing.T) (*fabric.Regions, *mem.Arena) {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "ends", SizeBytes: 4096, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := arena.References(); n != 0 {
			t.Errorf("%d references are left", n)
		}
		if err := arena.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	regions := new(fabric.Regions)
	if err := regions.Add(fabric.Region{ID: 1, Epoch: 1, Section: arena.Section}); err != nil {
		t.Fatal(err)
	}
	return regions, arena
}

// part is a list of some bytes of the region.
func part(t *testing.T, epoch, bytes uint64) fabric.List {
	t.Helper()
	list := fabric.List{{Region: 1, Epoch: epoch}}
	if err := list[0].Spans.Add(0, bytes); err != nil {
		t.Fatal(err)
	}
	return list
}

// hear hands a frame to an end, without what tells its length.
func hear(t *testing.T, e End, s Stream, kind mrdn.LinkFrame, frame []byte) {
	t.Helper()
	if err := e.Frame(s, kind, frame[mrdn.PrefixSize:]); err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T) (*Server, *wire) {
	t.Helper()
	regions, _ := memory(t)
	server := NewServer(ServerOptions{Peer: "b", Regions: regions, Events: deaf{}, MaxTransfers: 4, OnLost: func(error) {}})
	w := new(wire)
	server.Attach(w)
	return server, w
}

func begin(t *testing.T, id byte, epoch uint64, index, parts uint16, write bool) []byte {
	t.Helper()
	return mrdn.Begin{
		ID: kv.ID{id}, Handle: uint32(index) + 1, Part: index, Parts: parts, Write: write, Bytes: 64, List: part(t, epoch, 64).AppendTo(nil),
	}.Append(nil)
}

// What leads to nothing is forgiven a peer now and then, not without end.
func TestPeerWaitsForWhatItWasted(t *testing.T) {
	server, _ := serve(t)
	for range debtForgiven {
		server.Wasted()
	}
	if wait := server.ThrottleDelay(); wait != 0 {
		t.Errorf("an honest peer waits for %v", wait)
	}
	for range debtForgiven {
		server.Wasted()
	}
	if wait := server.ThrottleDelay(); wait != maxDelay {
		t.Errorf("it waits for %v, want %v", wait, maxDelay)
	}
}

// A refused list costs its writer as much as if it had written out what it repeats.
func TestRepeatedRunsAreOwed(t *testing.T) {
	var once fabric.Part
	for i := range uint64(100) {
		if err := once.Spans.Add(8*i, 1+i%2); err != nil {
			t.Fatal(err)
		}
	}
	list := make(fabric.List, 1000)
	for i := range list {
		list[i] = once
		list[i].Region, list[i].Epoch = uint64(100+i), 1 // which is not registered
	}
	server, w := serve(t)
	hear(t, server, w, mrdn.BeginFrame, mrdn.Begin{ID: kv.ID{1}, Handle: 1, Parts: 1, Write: true, Bytes: list.Bytes(), List: list.AppendRepeating(nil)}.Append(nil))
	if least := float64(len(list) * 100 * leastRun / listPerDebt); server.debt.owed < least {
		t.Errorf("%.0f is owed for a refused list of %d runs, want %.0f", server.debt.owed, len(list)*100, least)
	}
}

// However a transfer ends, the serving side keeps nothing of it: a peer that
// begins and cancels without end must not fill its memory.
func TestServerKeepsNothingOfWhatEnded(t *testing.T) {
	cancel := mrdn.Cancel{ID: kv.ID{7}}.Append(nil)
	for name, play := range map[string]func(*Server, *wire){
		"cancelled write": func(s *Server, w *wire) {
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 0, 2, true))
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 1, 2, true))
			hear(t, s, w, mrdn.CancelFrame, cancel)
		},
		"cancelled read": func(s *Server, w *wire) {
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 0, 2, false))
			hear(t, s, w, mrdn.CancelFrame, cancel)
		},
		"broken in one of two parts": func(s *Server, w *wire) {
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 0, 2, true))
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 1, 2, true))
			w.expected[0].Release()
			s.Arrived(w.expected[0], fabric.ErrChecksum)
		},
		"fenced": func(s *Server, w *wire) {
			hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 1, 0, 1, true))
			s.Fence(1, fabric.ErrUnknownRegion)
			hear(t, s, w, mrdn.CancelFrame, cancel)
		},
	} {
		s, w := serve(t)
		play(s, w)
		if n := s.Held(); n != 0 {
			t.Errorf("%s: it still holds %d", name, n)
		}
		if w.quieted == 0 {
			t.Errorf("%s: nothing was stopped", name)
		}
	}
}

// What a peer begins and never ends is bounded in bytes too, whatever it is
// that is large about it, and the room is there again once it has ended.
func TestServerHoldsSoMuch(t *testing.T) {
	var scattered fabric.List
	for range 4 {
		scattered = append(scattered, fabric.Part{Region: 1, Epoch: 1})
		for i := range uint64(1200) {
			if err := scattered[len(scattered)-1].Spans.Add(i*3+i%2, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, large := range map[string]mrdn.Begin{
		"pieces": {Bytes: scattered.Bytes(), List: scattered.AppendTo(nil)},
		"many":   {Bytes: 64, List: part(t, 1, 64).AppendTo(nil)},
	} {
		s, w := serve(t)
		large.Write, large.ID, large.Parts = true, kv.ID{7}, 1<<16-1
		for ; len(w.sent) == 0 && large.Part < large.Parts-1; large.Part++ {
			hear(t, s, w, mrdn.BeginFrame, large.Append(nil))
		}
		if len(w.sent) == 0 {
			t.Fatalf("%s: %d parts are held", name, large.Part)
		}
		if ack, err := mrdn.ParseAck(w.sent[0][mrdn.PrefixSize:]); err != nil || ack.Code != mrdn.CodeBusy {
			t.Errorf("%s: %+v, %v", name, ack, err)
		}
		if held := s.held + s.machine.Cost(); held != 0 || w.quieted == 0 {
			t.Errorf("%s: %d bytes are held after the refusal, %d parts were stopped", name, held, w.quieted)
		}
		hear(t, s, w, mrdn.BeginFrame, begin(t, 8, 1, 0, 1, true))
		if len(w.sent) != 1 {
			t.Errorf("%s: the next one is refused", name)
		}
		s.Fence(1, fabric.ErrUnknownRegion)
	}
}

// A notification stays until the last part of its write has come, and counts as
// long: its own part may have arrived, and been answered, long before.
func TestServerHoldsSoManyNotifications(t *testing.T) {
	s, w := serve(t)
	s.machine = session.NewServer(1<<10, remembered)
	large := mrdn.Begin{Write: true, Parts: 2, Bytes: 64, List: part(t, 1, 64).AppendTo(nil), Notify: true, Notification: make([]byte, 1<<20)}
	busy := false
	for id := byte(1); id < 32 && !busy; id++ {
		large.ID, large.Handle = kv.ID{id}, uint32(id)
		hear(t, s, w, mrdn.BeginFrame, large.Append(nil))
		if len(w.expected) == int(id) {
			w.expected[id-1].Release()
			s.Arrived(w.expected[id-1], nil)
		}
		ack, err := mrdn.ParseAck(w.sent[len(w.sent)-1][mrdn.PrefixSize:])
		if err != nil {
			t.Fatal(err)
		}
		busy = ack.Code == mrdn.CodeBusy
	}
	if !busy {
		t.Error("31 MiB of notifications are held")
	}
	empty := mrdn.Begin{ID: kv.ID{99}, Write: true, Parts: 2, List: fabric.List(nil).AppendTo(nil)}
	if err := s.Frame(w, mrdn.BeginFrame, empty.Append(nil)[mrdn.PrefixSize:]); !errors.Is(err, mrdn.ErrLinkFrame) {
		t.Errorf("an empty part of two: %v", err)
	}
	s.Lost(fabric.ErrPeerGone)
	if s.machine.Cost() != 0 || s.held != 0 {
		t.Errorf("%d and %d bytes are held after the end", s.machine.Cost(), s.held)
	}
}

// What a stream had read when the link was lost begins nothing: nothing would
// stop it, because no fence hears of a lost link.
func TestLostServerBeginsNothing(t *testing.T) {
	s, w := serve(t)
	s.Lost(fabric.ErrPeerGone)
	for kind, frame := range map[mrdn.LinkFrame][]byte{
		mrdn.BeginFrame:  begin(t, 7, 1, 0, 1, true),
		mrdn.CancelFrame: mrdn.Cancel{ID: kv.ID{7}}.Append(nil),
		mrdn.NoticeFrame: mrdn.Notice{ID: kv.ID{8}}.Append(nil),
	} {
		if err := s.Frame(w, kind, frame[mrdn.PrefixSize:]); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("frame %d: %v", kind, err)
		}
	}
	if len(w.expected) != 0 || len(w.sent) != 0 || s.Held() != 0 {
		t.Errorf("%d parts are expected, %d answers sent, %d held", len(w.expected), len(w.sent), s.Held())
	}
}

// A stream need not remember what the server does not want: of a write that is refused the
// rest may never come.
func TestRefusedWritesAreNotExpected(t *testing.T) {
	s, w := serve(t)
	hear(t, s, w, mrdn.BeginFrame, begin(t, 7, 9, 0, 1, true))
	if len(w.expected) != 0 || s.Held() != 0 {
		t.Errorf("%d parts are expected, %d held", len(w.expected), s.Held())
	}
	if len(w.sent) != 1 {
		t.Fatalf("%d answers", len(w.sent))
	}
	ack, err := mrdn.ParseAck(w.sent[0][mrdn.PrefixSize:])
	if err != nil || ack.Code != mrdn.CodeStaleEpoch || !ack.Untouched {
		t.Errorf("%+v, %v", ack, err)
	}
}

// An announcement that was withdrawn is over; its answer finds no transfer.
func TestWithdraw(t *testing.T) {
	regions, _ := memory(t)
	p := NewPoster(PosterOptions{Regions: regions, Clock: fabric.SystemClock, MaxTransfers: 1, OnLost: func(error) {}})
	w := new(wire)
	p.Attach(w)
	answered := 0
	if err := p.Announce(kv.ID{1}, nil, 0, func(error) { answered++ }); err != nil {
		t.Fatal(err)
	}
	if err := p.Announce(kv.ID{2}, nil, 0, func(error) {}); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("beyond the bound: %v", err)
	}
	if p.Held() != 1 {
		t.Errorf("it holds %d", p.Held())
	}
	p.Withdraw(kv.ID{1})
	hear(t, p, w, mrdn.AckFrame, mrdn.Ack{ID: kv.ID{1}, Part: mrdn.NoticeAck}.Append(nil))
	if answered != 0 || p.Held() != 0 {
		t.Errorf("answered %d times, and it holds %d", answered, p.Held())
	}
}

// A cutter cuts for its streams, but not below what is worth one.
func TestCutter(t *testing.T) {
	regions, _ := memory(t)
	for _, c := range []struct {
		cutter Cutter
		bytes  uint64
		want   int
	}{{Cutter{Streams: 4, WholePart: 64}, 63, 1}, {Cutter{Streams: 4, WholePart: 64}, 128, 2}, {Cutter{Streams: 4, WholePart: 64}, 4096, 4}, {Cutter{Streams: 1, WholePart: 64}, 4096, 1}} {
		p, err := c.cutter.Prepare(regions, fabric.Write, part(t, 1, c.bytes), part(t, 1, c.bytes))
		if err != nil {
			t.Fatal(err)
		}
		if cuts := p.Plan.(Cuts); len(cuts) != c.want {
			t.Errorf("%+v: %d bytes in %d parts, want %d", c.cutter, c.bytes, len(cuts), c.want)
		}
		p.Release()
	}
}

// An answer to an earlier post of an id does not end a later one.
func TestLateAnswer(t *testing.T) {
	regions, _ := memory(t)
	p := NewPoster(PosterOptions{Regions: regions, Clock: fabric.SystemClock, MaxTransfers: 1, OnLost: func(error) {}})
	w := new(wire)
	p.Attach(w)
	prepared, err := Cutter{Streams: 1, WholePart: wholePart}.Prepare(regions, fabric.Write, part(t, 1, 4096), part(t, 1, 4096))
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Release()
	post := func() *fabric.Transfer {
		transfer, err := p.Post(t.Context(), prepared, fabric.PostOptions{ID: kv.ID{1}})
		if err != nil {
			t.Fatal(err)
		}
		return transfer
	}
	first := post()
	p.Leaving(w.posted[0])
	p.Stop(kv.ID{1}, fabric.ErrCancelled)
	if state, _ := first.Status(); state != fabric.InDoubt {
		t.Fatalf("the first is %v", state)
	}
	second := post()
	p.Leaving(w.posted[1])
	late := mrdn.Ack{ID: kv.ID{1}, Handle: w.posted[0].Handle, Code: mrdn.CodeBusy, Untouched: true}
	hear(t, p, w, mrdn.AckFrame, late.Append(nil))
	if state, err := second.Status(); state.Ended() {
		t.Fatalf("a late answer ended the second: %v, %v", state, err)
	}
	hear(t, p, w, mrdn.AckFrame, mrdn.Ack{ID: kv.ID{1}, Handle: w.posted[1].Handle}.Append(nil))
	if state, err := second.Status(); state != fabric.Done {
		t.Fatalf("the second is %v, %v", state, err)
	}
}
