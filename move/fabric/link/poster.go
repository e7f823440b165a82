package link

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/session"
	"meridian/move/mrdn"
)

// PosterOptions says what a Poster works with.
type PosterOptions struct {
	Regions      *fabric.Regions
	Clock        fabric.Clock
	MaxTransfers int
	// OnLost is called once, without any lock, when the link is gone.
	OnLost func(err error)
}

// Poster is the posting side of one life of a link.
type Poster struct {
	options PosterOptions

	mu         sync.Mutex // protects the rest
	streams    []Stream
	machine    *session.Poster
	posted     map[kv.ID]*posted
	notices    map[kv.ID]announced
	held       int       // bytes that the requests of posted and the payloads of notices take on the wire
	expires    time.Time // when expire is called next; zero is never
	stopExpiry func() bool
	frame      []byte // room for a notice, which no stream keeps
	nextHandle uint32
	nextStream int
	// capabilities are the peer's.
	capabilities uint64
	gone         error
}

// posted is a transfer that runs here.
type posted struct {
	transfer *fabric.Transfer
	prepared *fabric.Prepared
	notice   []byte   // sent when a read has arrived
	handles  []uint32 // of its parts
	cost     int      // bytes of the requests for them
}

// NewPoster makes a posting side, which needs streams before its first use.
func NewPoster(o PosterOptions) *Poster {
	return &Poster{
		options: o, machine: session.NewPoster(o.MaxTransfers),
		posted: make(map[kv.ID]*posted), notices: make(map[kv.ID]announced),
	}
}

// Attach adds a stream, before the first use.
func (e *Poster) Attach(s Stream) { e.streams = append(e.streams, s) }

// Capable says what the peer is capable of, by its Welcome, before the first use.
func (e *Poster) Capable(capabilities uint64) { e.capabilities = capabilities }

// Post starts a request that Cut has cut.
func (e *Poster) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if running, again := e.posted[o.ID]; again {
		return running.transfer, nil
	}
	if e.gone != nil {
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, e.gone)
	}
	cuts := p.Plan.(Cuts)
	if e.capabilities&mrdn.RepeatedSpans == 0 {
		var err error
		if cuts, err = cuts.plain(); err != nil {
			return nil, err
		}
	}
	cost := len(o.Notification) + cuts.listBytes()
	if e.held+cost > maxHeld && e.held > 0 {
		return nil, fmt.Errorf("%w: requests that run on this link take %d bytes, at most %d", fabric.ErrBusy, e.held, maxHeld)
	}
	follow := p.Op == fabric.Read && o.Notify
	if err := e.machine.Post(o.ID, p.Op, uint16(len(cuts)), follow); err != nil {
		return nil, err
	}
	t, err := fabric.NewTransfer(ctx, e.options.Clock, p, o.ID, func(cause error) { e.Stop(o.ID, cause) })
	if err != nil {
		e.carryOut(e.machine.Failed(o.ID, err))
		return nil, err
	}
	e.posted[o.ID] = &posted{transfer: t, prepared: p, notice: o.Notification, cost: cost}
	e.held += cost
	// Under mu, so that a fence either sees this transfer or is seen by it.
	if err := e.options.Regions.Current(p.Local); err != nil {
		e.carryOut(e.machine.Failed(o.ID, err))
	}
	for i := range cuts {
		if !e.machine.Running(o.ID) {
			break // an earlier part failed
		}
		e.postPart(p, &cuts[i], uint16(i), uint16(len(cuts)), o)
	}
	return t, nil
}

// beginRoom is what a Begin takes besides its list and its notification.
const beginRoom = 128

func (e *Poster) postPart(p *fabric.Prepared, cut *Cut, index, count uint16, o fabric.PostOptions) {
	e.nextHandle++
	e.posted[o.ID].handles = append(e.posted[o.ID].handles, e.nextHandle)
	s := e.streams[e.nextStream%len(e.streams)]
	e.nextStream++
	begin := mrdn.Begin{
		Handle: e.nextHandle, ID: o.ID, Grant: o.Grant, Write: p.Op == fabric.Write,
		Part: index, Parts: count, Bytes: cut.bytes, List: cut.list,
	}
	if p.Op == fabric.Write && o.Notify && index == 0 {
		begin.Notify, begin.Notification = true, o.Notification
	}
	part := Part{ID: o.ID, Index: index, Bound: p.Local}
	if p.Op == fabric.Read {
		effects, _ := e.machine.Leaving(o.ID)
		e.carryOut(effects)
		if cut.bytes == 0 {
			// Nothing will come: there is nothing to ask for.
			e.carryOut(append(e.machine.Left(o.ID), e.machine.Arrived(o.ID)...))
			return
		}
		if err := s.Expect(&Inbound{Part: part, Handle: begin.Handle, Walk: cut.local, From: cut.remote, Sums: o.Sums}); err != nil {
			e.carryOut(e.machine.Failed(o.ID, err))
			return
		}
		s.Send(begin.Append(nil))
		e.carryOut(e.machine.Left(o.ID))
		return
	}
	head := make([]byte, 0, beginRoom+len(begin.List)+len(begin.Notification)) // in one piece: a notification may be long
	out := &Outbound{Part: part, Handle: begin.Handle, Walk: cut.local, Begin: begin.Append(head), Source: cut.source, Sums: o.Sums}
	progress, err := s.Post(out)
	if err != nil {
		e.carryOut(e.machine.Failed(o.ID, err))
		return
	}
	if progress != Queued {
		effects, _ := e.machine.Leaving(o.ID)
		e.carryOut(effects)
	}
	if progress == Sent {
		e.carryOut(e.machine.Left(o.ID))
	}
}

// carryOut does what the machine asks. mu is held.
func (e *Poster) carryOut(effects []session.Effect) {
	for _, f := range effects {
		switch f.Kind {
		case session.Progress:
			if p := e.posted[f.ID]; p != nil {
				p.transfer.Advance(f.State)
			}
		case session.Quiet:
			for _, s := range e.streams {
				s.Quiet(func(p Part) bool { return p.ID == f.ID })
			}
		case session.SendCancel:
			// On every stream, so that it stays behind the parts it is about.
			for _, s := range e.streams {
				s.Send(mrdn.Cancel{ID: f.ID}.Append(nil))
			}
		case session.SendNotice:
			if p := e.posted[f.ID]; p != nil {
				e.streams[0].Send(mrdn.Notice{ID: f.ID, Payload: p.notice}.Append(nil))
			}
		case session.Ended:
			if p := e.posted[f.ID]; p != nil {
				delete(e.posted, f.ID)
				e.held -= p.cost
				p.transfer.Finish(f.State, f.Err)
			}
		}
	}
}

// Stop ends a transfer for a cause of the caller's.
func (e *Poster) Stop(id kv.ID, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.carryOut(e.machine.Stop(id, cause))
}

// Fence ends everything that touches a region here.
func (e *Poster) Fence(region uint64, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range inOrder(e.posted) {
		if p := e.posted[id]; p != nil && p.prepared.Local.Touches(region) {
			e.carryOut(e.machine.Failed(id, cause))
		}
	}
}

// Running lists the transfers that have not ended.
func (e *Poster) Running() []*fabric.Transfer {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*fabric.Transfer, 0, len(e.posted))
	for _, id := range inOrder(e.posted) {
		all = append(all, e.posted[id].transfer)
	}
	return all
}

// Held is how many transfers and announcements have not ended.
func (e *Poster) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.posted) + e.machine.Len() + len(e.notices)
}

// Frame hears the peer's answers.
func (e *Poster) Frame(_ Stream, f mrdn.LinkFrame, body []byte) error {
	if f != mrdn.AckFrame {
		return fmt.Errorf("%w: type %d from the serving side", mrdn.ErrLinkFrame, f)
	}
	ack, err := mrdn.ParseAck(body)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ack.Part == mrdn.NoticeAck && e.answered(ack.ID, fabric.FromCode(ack.Code, ack.Message)) {
		return nil
	}
	if p := e.posted[ack.ID]; p != nil && int(ack.Part) < len(p.handles) && p.handles[ack.Part] != ack.Handle {
		return nil // it answers an earlier post of the same id
	}
	e.carryOut(e.machine.Acked(ack))
	return nil
}

// Arrived ends a part of a read.
func (e *Poster) Arrived(p *Inbound, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.carryOut(e.machine.Failed(p.ID, err))
		return
	}
	e.carryOut(e.machine.Arrived(p.ID))
}

// Unreached ends a read before its first byte.
func (e *Poster) Unreached(p *Inbound, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.carryOut(e.machine.Unreached(p.ID, err))
}

// Leaving starts a part of a write.
func (e *Poster) Leaving(p *Outbound) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	effects, running := e.machine.Leaving(p.ID)
	e.carryOut(effects)
	return running
}

// Left ends a part of a write on this side.
func (e *Poster) Left(p *Outbound, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.carryOut(e.machine.Failed(p.ID, err))
		return
	}
	e.carryOut(e.machine.Left(p.ID))
}

// Gone is why the link is lost, or nil. Who waited for a transfer knows of
// its end before OnLost is called, and may be back by then.
func (e *Poster) Gone() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gone
}

// Lost ends the link; the first reason counts.
func (e *Poster) Lost(err error) {
	e.mu.Lock()
	if e.gone != nil {
		e.mu.Unlock()
		return
	}
	e.gone = err
	e.carryOut(e.machine.Lost(err))
	for _, id := range inOrder(e.notices) {
		e.answered(id, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err))
	}
	if e.stopExpiry != nil {
		e.stopExpiry()
	}
	for _, s := range e.streams {
		s.Close()
	}
	e.mu.Unlock()
	e.options.OnLost(err)
}
