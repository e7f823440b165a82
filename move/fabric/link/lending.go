package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Lending is a stream on which no bytes travel. The owner of a source lends its
// memory to the other end and flies a flag for every part that may be taken; the
// other end copies:
//
//	owner                                   reader, who owns the destination
//	raises a flag, lends ──── Source ─────► looks at the flag, copies a piece, looks …
//	lowers it        ◄── Taken, or Ack ──── looks once more at the end
//
// Who wants the source quiet lowers the flag. What was copied after that is
// never reported as done, because the reader looks after its last piece; and a
// reader that finds the flag down ends nothing by itself: the owner says why.
type Lending struct {
	lender  Lender
	end     End
	serving bool

	mu      sync.Mutex // protects the rest
	lent    map[uint32]*lent
	awaited map[uint32]*Inbound // whose source was not named yet
	taking  map[uint32]*Taking
	held    int // bytes that the sources cost that the peer has named and hands still read
	closed  bool
}

var _ Stream = (*Lending)(nil)

// Lender is what a Lending stream runs on. Calls never wait for the peer, but
// for Lower, whose wait is short and bounded.
type Lender interface {
	// Send queues frames.
	Send(frames []byte)
	// Lend gives the peer the means to read the memory of a part, and then sends
	// frames.
	Lend(b *fabric.Bound, frames []byte) error
	// Raise flies a new flag.
	Raise() (Flag, error)
	// Lower takes flags down. When it returns the peer takes nothing under them
	// any more, unless it stands still in the middle of a piece.
	Lower(flags []Flag)
	// Take starts to copy, piece by piece between Enter and Leave; the taking
	// hears of the end through Over. No lock is held.
	Take(t *Taking)
	// Flies reports whether a flag of the peer's does.
	Flies(f Flag) bool
	// Lives tells why the peer is gone, or nil: flags of the dead fly for ever.
	Lives() error
	// Close breaks the stream.
	Close()
}

// Flag is one use of a cell of a flag page. Turns never come again, so that a
// cell can.
type Flag struct {
	Cell uint32
	Turn uint64
}

// lent is a part that the other end may take.
type lent struct {
	*Outbound
	flag Flag
}

// NewLending makes a stream for one end of a link: the serving one, or the
// posting one.
func NewLending(l Lender, e End, serving bool) *Lending {
	return &Lending{
		lender: l, end: e, serving: serving,
		lent: make(map[uint32]*lent), awaited: make(map[uint32]*Inbound), taking: make(map[uint32]*Taking),
	}
}

// Send queues a frame.
func (l *Lending) Send(frame []byte) { l.lender.Send(frame) }

// Post lends the memory of a part to the other end.
func (l *Lending) Post(p *Outbound) (Progress, error) {
	if p.Walk.Left() == 0 {
		if len(p.Begin) > 0 {
			l.lender.Send(p.Begin)
		}
		p.Release()
		return Sent, nil
	}
	flag, err := l.lender.Raise()
	if err != nil {
		p.Release()
		return Queued, err
	}
	if err = l.keep(&lent{p, flag}); err == nil {
		source := mrdn.Source{Handle: p.Handle, Cell: flag.Cell, Turn: flag.Turn, List: p.Source}
		if err = l.lender.Lend(p.Bound, source.Append(p.Begin)); err == nil {
			return Begun, nil
		}
		if l.forget(p.Handle) == nil {
			return Queued, err // it was made quiet meanwhile, and its flag is down
		}
	}
	l.lender.Lower([]Flag{flag})
	p.Release()
	return Queued, err
}

func (l *Lending) keep(p *lent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fabric.ErrClosed
	case l.lent[p.Handle] != nil:
		return fmt.Errorf("%w: handle %d is in use", fabric.ErrRefused, p.Handle)
	}
	l.lent[p.Handle] = p
	return nil
}

func (l *Lending) forget(handle uint32) *lent {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.lent[handle]
	delete(l.lent, handle)
	return p
}

// Expect makes the stream ready for the source of a part.
func (l *Lending) Expect(p *Inbound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		p.Release() // the end learns of it through Lost
	case l.awaited[p.Handle] != nil || l.taking[p.Handle] != nil:
		return fmt.Errorf("%w: handle %d is in use", mrdn.ErrLinkFrame, p.Handle)
	default:
		l.awaited[p.Handle] = p
	}
	return nil
}

// Frame hears what the other end says of lent memory; the rest is the end's.
func (l *Lending) Frame(f mrdn.LinkFrame, body []byte) error {
	switch {
	case f == mrdn.SourceFrame:
		source, err := mrdn.ParseSource(body)
		if err != nil {
			return err
		}
		return l.hearSource(source)
	case f == mrdn.TakenFrame && l.serving:
		taken, err := mrdn.ParseTaken(body)
		if err == nil {
			l.returned(taken.Handle)
		}
		return err
	case f == mrdn.AckFrame && !l.serving:
		if ack, err := mrdn.ParseAck(body); err == nil && ack.Code == mrdn.OK && ack.Part != mrdn.NoticeAck {
			l.returned(ack.Handle)
		}
	}
	return l.end.Frame(l, f, body)
}

// returned ends a part that the other end has taken.
func (l *Lending) returned(handle uint32) {
	p := l.forget(handle)
	if p == nil {
		return // it was made quiet meanwhile
	}
	l.lender.Lower([]Flag{p.flag})
	p.Release()
	l.end.Left(p.Outbound, nil)
}

// hearSource starts to take a part whose bytes are ready.
func (l *Lending) hearSource(s mrdn.Source) error {
	from, cost, err := fabric.List(nil), 0, error(nil)
	if l.serving {
		if from, err = fabric.ParseList(s.List); err != nil {
			return err
		}
		cost = costOf(from)
	}
	l.mu.Lock()
	in := l.awaited[s.Handle]
	running := l.taking[s.Handle] != nil
	if in == nil {
		l.mu.Unlock()
		if !l.serving && !running {
			l.lender.Send(mrdn.Taken{Handle: s.Handle}.Append(nil)) // no transfer wants it
		}
		return nil
	}
	if !l.serving {
		from = in.From
	}
	if from.Bytes() != in.Walk.Left() {
		l.mu.Unlock()
		return fmt.Errorf("%w: a source of %d bytes for a part of %d", mrdn.ErrLinkFrame, from.Bytes(), in.Walk.Left())
	}
	delete(l.awaited, s.Handle)
	if held := l.held + cost; held > maxHeld {
		l.mu.Unlock()
		in.Release()
		l.end.Unreached(in, fmt.Errorf("%w: the sources that this peer has named hold %d bytes, at most %d; end some of it first", fabric.ErrBusy, held, maxHeld))
		return nil
	}
	t := &Taking{In: in, From: from, Flag: Flag{s.Cell, s.Turn}, lending: l, cost: cost}
	l.held += cost
	l.taking[s.Handle] = t
	l.mu.Unlock()
	l.lender.Take(t)
	return nil
}

// Quiet stops every part that match selects, in both directions.
func (l *Lending) Quiet(match func(Part) bool) {
	l.mu.Lock()
	var back []*lent
	var down []Flag
	for _, handle := range slices.Sorted(maps.Keys(l.lent)) {
		if p := l.lent[handle]; match(p.Part) {
			delete(l.lent, handle)
			back, down = append(back, p), append(down, p.flag)
		}
	}
	for _, handle := range slices.Sorted(maps.Keys(l.awaited)) {
		if p := l.awaited[handle]; match(p.Part) {
			delete(l.awaited, handle)
			p.Release()
		}
	}
	var stopped []*Taking
	for _, handle := range slices.Sorted(maps.Keys(l.taking)) {
		if t := l.taking[handle]; match(t.In.Part) {
			delete(l.taking, handle)
			stopped = append(stopped, t)
		}
	}
	l.mu.Unlock()
	if len(down) > 0 {
		l.lender.Lower(down)
	}
	for _, p := range back {
		p.Release()
	}
	for _, t := range stopped {
		t.stop()
		t.In.Release()
	}
}

// Close breaks the stream.
func (l *Lending) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Quiet(func(Part) bool { return true })
	l.lender.Close()
}

// Held is how many parts are lent, awaited or taken.
func (l *Lending) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lent) + len(l.awaited) + len(l.taking)
}

// Taking is the copying of one part out of memory that the other end has lent.
type Taking struct {
	In   *Inbound
	From fabric.List // in the other end's memory
	Flag Flag        // of the other end

	lending *Lending
	cost    int          // of From, where the other end has named it
	placing sync.RWMutex // read-held while bytes are placed; protects In.Discard
}

// errLowered ends a taking whose source was taken back.
var errLowered = errors.New("link: the owner of the source has taken it back")

// Enter looks whether a piece may be taken and placed, and keeps the
// destination from becoming quiet until Leave.
func (t *Taking) Enter() error {
	t.placing.RLock()
	err := error(nil)
	switch {
	case t.In.Discard:
		err = fabric.ErrCancelled
	case !t.lending.lender.Flies(t.Flag):
		err = errLowered
	default:
		return nil
	}
	t.placing.RUnlock()
	return err
}

// Leave ends a piece.
func (t *Taking) Leave() { t.placing.RUnlock() }

// Hold is Enter for a piece that is placed by a device, which no lock can stop and no
// lock is held for: who wants quiet is not made to wait here, but the transfer has
// not ended before Drop. A fence or a Revoke waits for those that it has stopped by
// itself.
func (t *Taking) Hold() error {
	if err := t.Enter(); err != nil {
		return err
	}
	defer t.Leave()
	t.In.Bound.Hold()
	return nil
}

// Drop ends a piece that was held.
func (t *Taking) Drop() { t.In.Bound.Drop() }

// Differs is the error of a piece that is not what its source is: the owner may
// have taken the source back, and changed it, meanwhile.
func (t *Taking) Differs(where string) error {
	if !t.lending.lender.Flies(t.Flag) {
		return errLowered
	}
	return fmt.Errorf("%w: %s is not what its source is", fabric.ErrChecksum, where)
}

// Refuse ends a taking before its first piece: the source cannot be reached from
// here, and no byte was placed.
func (t *Taking) Refuse(err error) {
	if t.leave() {
		t.lending.end.Unreached(t.In, err)
	}
}

// leave gives the taking's memory back, and the source's where it was a read's;
// false when the taking was made quiet, and its end is known. Also then its list
// was in use until now.
func (t *Taking) leave() bool {
	l := t.lending
	l.mu.Lock()
	l.held -= t.cost
	mine := l.taking[t.In.Handle] == t
	if mine {
		delete(l.taking, t.In.Handle)
	}
	l.mu.Unlock()
	if !mine {
		return false
	}
	t.In.Release()
	if !l.serving {
		l.lender.Send(mrdn.Taken{Handle: t.In.Handle}.Append(nil))
	}
	return true
}

func (t *Taking) stop() {
	t.placing.Lock()
	t.In.Discard = true
	t.placing.Unlock()
}

// Over ends the taking: nothing more is copied. What was copied counts only if
// the flag flew to the end.
func (t *Taking) Over(err error) {
	l := t.lending
	if !l.lender.Flies(t.Flag) {
		err = errLowered
	}
	if gone := l.lender.Lives(); gone != nil {
		err = gone
	}
	if errors.Is(err, errLowered) {
		if !l.serving {
			return // its owner says why, and so it ends
		}
		err = fmt.Errorf("%w: by the poster", fabric.ErrCancelled)
	}
	if t.leave() {
		l.end.Arrived(t.In, err)
	}
}
