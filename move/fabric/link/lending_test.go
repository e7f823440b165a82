package link

import (
	"errors"
	"slices"
	"testing"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/session"
	"meridian/move/mrdn"
)

// lenders are the two ends' shells: they keep what they are asked for. Flags of
// one are looked at by the other.
type lenders struct {
	other   *lenders
	turn    uint64
	flying  []Flag
	lowered int
	sent    [][]byte
	started []*Taking
	lend    func() error // where set, Lend fails with it
	gone    error
	closed  bool
}

func (l *lenders) Send(frames []byte) { l.sent = append(l.sent, frames) }

func (l *lenders) Lend(_ *fabric.Bound, frames []byte) error {
	if l.lend != nil {
		return l.lend()
	}
	l.Send(frames)
	return nil
}

func (l *lenders) Raise() (Flag, error) {
	l.turn++
	f := Flag{Cell: uint32(l.turn), Turn: l.turn}
	l.flying = append(l.flying, f)
	return f, nil
}

func (l *lenders) Lower(down []Flag) {
	l.lowered += len(down)
	l.flying = slices.DeleteFunc(l.flying, func(f Flag) bool { return slices.Contains(down, f) })
}

func (l *lenders) Take(t *Taking)    { l.started = append(l.started, t) }
func (l *lenders) Flies(f Flag) bool { return slices.Contains(l.other.flying, f) }
func (l *lenders) Lives() error      { return l.gone }
func (l *lenders) Close()            { l.closed = true }

// lentLink is a link whose two ends lend to each other, in one process.
type lentLink struct {
	t                 *testing.T
	poster            *Poster
	server            *Server
	near, far         *lenders
	nearSide, farSide *Lending
}

func newLentLink(t *testing.T) *lentLink {
	t.Helper()
	nearRegions, _ := memory(t)
	farRegions, _ := memory(t)
	l := &lentLink{t: t, near: &lenders{}, far: &lenders{turn: 1000}}
	l.near.other, l.far.other = l.far, l.near
	l.poster = NewPoster(PosterOptions{Regions: nearRegions, Clock: fabric.SystemClock, MaxTransfers: 4, OnLost: func(error) {}})
	l.server = NewServer(ServerOptions{Peer: "b", Regions: farRegions, Events: deaf{}, MaxTransfers: 4, OnLost: func(error) {}})
	l.nearSide, l.farSide = NewLending(l.near, l.poster, false), NewLending(l.far, l.server, true)
	l.poster.Attach(l.nearSide)
	l.server.Attach(l.farSide)
	return l
}

// deliver lets each end hear what the other has sent.
func (l *lentLink) deliver() {
	l.t.Helper()
	for len(l.near.sent)+len(l.far.sent) > 0 {
		toFar, toNear := l.near.sent, l.far.sent
		l.near.sent, l.far.sent = nil, nil
		for _, frames := range toFar {
			l.hear(l.farSide, frames)
		}
		for _, frames := range toNear {
			l.hear(l.nearSide, frames)
		}
	}
}

func (l *lentLink) hear(side *Lending, frames []byte) {
	l.t.Helper()
	for len(frames) > 0 {
		kind, length, err := mrdn.ParsePrefix(frames)
		if err != nil {
			l.t.Fatal(err)
		}
		size := mrdn.PrefixSize + int(length)
		if err := side.Frame(kind, frames[mrdn.PrefixSize:size]); err != nil {
			l.t.Fatal(err)
		}
		frames = frames[size:]
	}
}

// post starts a transfer that its destination's end is about to take.
func (l *lentLink) post(op fabric.Op) (*fabric.Transfer, *Taking) {
	l.t.Helper()
	prepared, err := Cutter{Streams: 1, WholePart: 1, Lend: true}.Prepare(l.poster.options.Regions, op, part(l.t, 1, 64), part(l.t, 1, 64))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(prepared.Release)
	transfer, err := l.poster.Post(l.t.Context(), prepared, fabric.PostOptions{ID: kv.ID{1}, Grant: kv.ID{2}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.deliver()
	reader := l.near
	if op == fabric.Write {
		reader = l.far
	}
	if len(reader.started) != 1 {
		l.t.Fatalf("a %v: %d were started", op, len(reader.started))
	}
	return transfer, reader.started[0]
}

func (l *lentLink) ended(transfer *fabric.Transfer, want fabric.State, cause error) {
	l.t.Helper()
	l.deliver()
	if state, err := transfer.Status(); state != want || !errors.Is(err, cause) {
		l.t.Errorf("the %v is %v, %v; want %v, %v", transfer.Op, state, err, want, cause)
	}
	for name, held := range map[string]int{
		"poster": l.poster.Held(), "server": l.server.Held(), "its stream": l.nearSide.Held(), "the server's stream": l.farSide.Held(),
		"its flags": len(l.near.flying), "the server's flags": len(l.far.flying),
	} {
		if held != 0 {
			l.t.Errorf("after a %v that is %v, %s: %d are held", transfer.Op, want, name, held)
		}
	}
}

var bothOps = []fabric.Op{fabric.Read, fabric.Write}

func TestLentPartsAreTaken(t *testing.T) {
	for _, op := range bothOps {
		l := newLentLink(t)
		transfer, taking := l.post(op)
		if err := taking.Enter(); err != nil {
			t.Fatal(err)
		}
		taking.Leave()
		taking.Over(nil)
		l.ended(transfer, fabric.Done, nil)
	}
}

// Who has taken the last byte looks at the flag once more: what was revoked
// or fenced meanwhile is not done, and says why.
func TestLentPartsAreTakenBack(t *testing.T) {
	for name, stop := range map[string]struct {
		do   func(*lentLink)
		want error
	}{
		"revoked":              {func(l *lentLink) { l.server.Revoke(kv.ID{2}, fabric.ErrGrantRevoked) }, fabric.ErrGrantRevoked},
		"fenced":               {func(l *lentLink) { l.server.Fence(1, fabric.ErrUnknownRegion) }, fabric.ErrUnknownRegion},
		"fenced by the poster": {func(l *lentLink) { l.poster.Fence(1, fabric.ErrUnknownRegion) }, fabric.ErrUnknownRegion},
		"cancelled":            {func(l *lentLink) { l.poster.Stop(kv.ID{1}, fabric.ErrCancelled) }, fabric.ErrCancelled},
	} {
		for _, op := range bothOps {
			t.Run(name+"/"+op.String(), func(t *testing.T) {
				l := newLentLink(t)
				transfer, taking := l.post(op)
				if err := taking.Enter(); err != nil {
					t.Fatal(err)
				}
				taking.Leave()
				stop.do(l)
				if err := taking.Enter(); err == nil {
					t.Error("another piece may be taken")
					taking.Leave()
				}
				taking.Over(nil)
				l.ended(transfer, fabric.InDoubt, stop.want)
			})
		}
	}
}

// The flags of the dead fly for ever.
func TestLentByTheDead(t *testing.T) {
	l := newLentLink(t)
	transfer, taking := l.post(fabric.Read)
	l.near.gone = fabric.ErrPeerGone
	taking.Over(nil)
	l.ended(transfer, fabric.InDoubt, fabric.ErrPeerGone)
}

// A source that is not awaited is given back, and one that is being taken is not,
// however often it is named.
func TestSourcesThatComeTwice(t *testing.T) {
	l := newLentLink(t)
	transfer, taking := l.post(fabric.Read)
	again := mrdn.Source{Handle: taking.In.Handle, Cell: taking.Flag.Cell, Turn: taking.Flag.Turn}.Append(nil)
	l.hear(l.nearSide, again)
	l.deliver()
	if len(l.far.flying) != 1 || len(l.near.started) != 1 {
		t.Errorf("%d flags fly, %d were started", len(l.far.flying), len(l.near.started))
	}
	taking.Over(nil)
	l.ended(transfer, fabric.Done, nil)
	l.hear(l.nearSide, again)
	if len(l.near.sent) != 1 {
		t.Errorf("%d frames give it back", len(l.near.sent))
	}
	l.ended(transfer, fabric.Done, nil)
}

// What cannot be lent has one flag, which comes down once, also when the stream
// was closed meanwhile.
func TestLendFails(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := newLentLink(t)
		l.near.lend = func() error {
			if closed {
				l.nearSide.Close()
			}
			return fabric.ErrUnsupported
		}
		prepared, err := Cutter{Streams: 1, WholePart: 1, Lend: true}.Prepare(l.poster.options.Regions, fabric.Write, part(t, 1, 64), part(t, 1, 64))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.nearSide.Post(&Outbound{Part: Part{Bound: prepared.Local}, Handle: 1, Walk: prepared.Local.List.Walk()}); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("closed %v: %v", closed, err)
		}
		if l.near.lowered != 1 || l.nearSide.Held() != 0 {
			t.Errorf("closed %v: %d flags came down, %d parts are held", closed, l.near.lowered, l.nearSide.Held())
		}
		prepared.Release()
	}
}

// The lists that name sources count as long as hands may read them: a peer whose
// lists are long is refused before they fill the memory.
func TestSourcesCount(t *testing.T) {
	const bytes = 1 << 16
	var scattered fabric.List
	for range bytes / 2048 {
		scattered = append(scattered, fabric.Part{Region: 1, Epoch: 1})
		for i := range uint64(2048) {
			if err := scattered[len(scattered)-1].Spans.Add(i*3+i%2, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := newLentLink(t)
	l.server.machine = session.NewServer(1<<10, remembered)
	dense := fabric.List{}
	for range bytes / 4096 {
		dense = append(dense, part(t, 1, 4096)...)
	}
	for id := uint32(1); len(l.far.sent) == 0; id++ {
		if id > maxHeld/bytes {
			t.Fatalf("%d lists of %d pieces are held", id, bytes)
		}
		l.hear(l.farSide, mrdn.Begin{Handle: id, ID: kv.ID{byte(id), byte(id >> 8)}, Write: true, Parts: 1, Bytes: bytes, List: dense.AppendTo(nil)}.Append(nil))
		l.hear(l.farSide, mrdn.Source{Handle: id, Cell: id, Turn: 1, List: scattered.AppendTo(nil)}.Append(nil))
	}
	if ack, err := mrdn.ParseAck(l.far.sent[0][mrdn.PrefixSize:]); err != nil || ack.Code != mrdn.CodeBusy || !ack.Untouched {
		t.Errorf("%+v, %v", ack, err)
	}
	l.server.Lost(fabric.ErrPeerGone)
	if l.farSide.held == 0 {
		t.Error("what hands still read is not counted")
	}
	for _, taking := range l.far.started {
		taking.Over(nil)
	}
	if l.farSide.held != 0 {
		t.Errorf("%d bytes are held after the end", l.farSide.held)
	}
}
