package link

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/session"
	"meridian/move/mrdn"
)

// ServerOptions says what a Server works with.
type ServerOptions struct {
	// Peer and Incarnation are who posts, as it has proven.
	Peer        string
	Incarnation kv.ID
	Regions     *fabric.Regions
	// Guard decides what the peer may touch; nil opens all that is registered.
	Guard        fabric.Guard
	Events       fabric.Events
	Clock        fabric.Clock // default the machine's
	MaxTransfers int
	// Remember is how many ends are remembered; default 8192.
	Remember int
	// OnLost is called once, without any lock, when the link is gone.
	OnLost func(err error)
}

// Server is the serving side of one life of a link.
type Server struct {
	options ServerOptions

	mu      sync.Mutex // protects the rest
	streams []Stream
	machine *session.Server
	// parts holds where each part of a transfer is to be answered: on the stream
	// on which it came.
	parts map[kv.ID]map[uint16]reply
	held  int // bytes that they cost; what a transfer costs is the machine's to know
	// hearing is where a notice came that is being answered, attending who attends to
	// what was delivered under mu: one event delivers one notification at most.
	hearing   Stream
	attending attending
	receipts  receipts
	gone      bool
	debt      throttle
}

// attending is a notification that was taken, and who attends to it, if not nil.
type attending struct {
	to fabric.NotificationHandler
	n  fabric.Notification
}

// release unlocks mu, and then lets who attends to what was delivered under it.
func (e *Server) release() {
	due := e.attending
	e.attending = attending{}
	e.mu.Unlock()
	if due.to != nil {
		due.to.Handle(due.n)
	}
}

// remembered is more than can be in flight.
const remembered = 8192

// NewServer makes a serving side.
func NewServer(o ServerOptions) *Server {
	o.Remember = cmp.Or(o.Remember, remembered)
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	return &Server{options: o, machine: session.NewServer(o.MaxTransfers, o.Remember), parts: make(map[kv.ID]map[uint16]reply)}
}

// Held is how many transfers run here and how many parts wait to be answered.
func (e *Server) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Len() + len(e.parts)
}

// Attach adds a stream; false when the link is gone.
func (e *Server) Attach(s Stream) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.gone {
		e.streams = append(e.streams, s)
	}
	return !e.gone
}

// Frame hears the peer's requests.
func (e *Server) Frame(s Stream, f mrdn.LinkFrame, body []byte) error {
	switch f {
	case mrdn.BeginFrame:
		begin, err := mrdn.ParseBegin(body)
		if err != nil {
			return err
		}
		return e.begin(s, begin)
	case mrdn.CancelFrame:
		cancel, err := mrdn.ParseCancel(body)
		if err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.gone {
			return fabric.ErrClosed
		}
		effects := e.machine.Cancelled(cancel.ID)
		if len(effects) == 0 {
			e.debt.add(1, e.options.Clock.Now())
		}
		e.carryOut(effects)
		return nil
	case mrdn.NoticeFrame:
		notice, err := mrdn.ParseNotice(body)
		if err != nil {
			return err
		}
		e.mu.Lock()
		defer e.release()
		if e.gone {
			return fabric.ErrClosed
		}
		e.hearing = s
		e.carryOut(e.machine.Noticed(notice))
		return nil
	}
	return fmt.Errorf("%w: type %d from the posting side", mrdn.ErrLinkFrame, f)
}

// begin admits a part: its list must name regions of ours, in their epoch,
// within their bounds, under a grant, before a byte of it is placed or given.
func (e *Server) begin(s Stream, b mrdn.Begin) error {
	list, err := fabric.ParseList(b.List)
	switch {
	case err != nil:
	case b.Bytes == 0 && b.Parts > 1:
		err = fmt.Errorf("%w: part %d of %d is empty", mrdn.ErrLinkFrame, b.Part, b.Parts)
	case list.Bytes() != b.Bytes:
		err = fmt.Errorf("%w: a list of %d bytes for a part of %d", mrdn.ErrLinkFrame, list.Bytes(), b.Bytes)
	}
	if err != nil {
		return err // the stream cannot be trusted any more
	}
	e.mu.Lock()
	defer e.release()
	if e.gone { // nothing would stop it: of what is lost, a fence hears nothing
		return fabric.ErrClosed
	}
	e.answerOn(b.ID, b.Part, reply{s, b.Handle, costOf(list)})
	effects, refused := e.machine.Begin(b)
	e.carryOut(effects)
	part := Part{ID: b.ID, Index: b.Part, Grant: b.Grant}
	if refused == nil {
		if part.Bound, refused = e.admit(b, list); refused != nil {
			e.carryOut(e.machine.Refused(b.ID, b.Part, refused))
		}
	}
	switch {
	case refused != nil: // no stream expects bytes of it that come
		e.debt.add(1+max(len(b.List), leastRun*list.Runs())/listPerDebt, e.options.Clock.Now())
	case b.Write && b.Bytes == 0:
		part.Bound.Release()
		e.carryOut(e.machine.Placed(b.ID, b.Part))
	case b.Write:
		in := &Inbound{Part: part, Handle: b.Handle, Walk: list.Walk()}
		if summer, is := e.options.Guard.(fabric.Summer); is {
			in.Sums = summer.SumsOf(b.Grant)
		}
		in.owned.Store(true)
		if err := s.Expect(in); err != nil {
			in.Release()
			return err
		}
	default:
		e.give(s, part, b.Handle, list)
	}
	return nil
}

// maxHeld bounds what the parts that a peer has begun may cost here until they
// end, which is up to the peer: enough for 4096 transfers of eight parts each,
// or for half a million pieces without a pattern.
const maxHeld = 16 << 20

// costOf is about what a part costs here until it ends, in bytes.
func costOf(list fabric.List) int {
	const part, region, run = 256, 64, 32
	return part + region*len(list) + run*list.Runs()
}

// admit asks the guard before the table of regions: a peer without a grant learns
// nothing of what is registered.
func (e *Server) admit(b mrdn.Begin, list fabric.List) (*fabric.Bound, error) {
	if held := e.held + e.machine.Cost(); held > maxHeld {
		return nil, fmt.Errorf("%w: what this peer has begun holds %d bytes, at most %d; end some of it first", fabric.ErrBusy, held, maxHeld)
	}
	op := fabric.Read
	if b.Write {
		op = fabric.Write
	}
	if e.options.Guard != nil {
		err := e.options.Guard.Admit(fabric.Access{
			Peer: e.options.Peer, Incarnation: e.options.Incarnation, Grant: b.Grant, Op: op, List: list,
		})
		if err != nil {
			return nil, err
		}
	}
	return e.options.Regions.BindAs(list, b.Write)
}

// give starts the bytes of a read on their way.
func (e *Server) give(s Stream, part Part, handle uint32, list fabric.List) {
	out := &Outbound{Part: part, Handle: handle, Walk: list.Walk()}
	out.owned.Store(true)
	progress, err := s.Post(out)
	if err != nil {
		e.carryOut(e.machine.Failed(part.ID, part.Index, err))
	} else if progress == Sent {
		e.machine.Served(part.ID)
		e.answered(part.ID, part.Index)
	}
}

// reply says where an answer goes, what it answers, and what it costs to wait
// for it.
type reply struct {
	stream Stream
	handle uint32
	cost   int
}

func (e *Server) answerOn(id kv.ID, part uint16, r reply) {
	if e.parts[id] == nil {
		e.parts[id] = make(map[uint16]reply, 1)
	}
	e.held += r.cost - e.parts[id][part].cost
	e.parts[id][part] = r
}

// answered forgets one part, and only that: the others may still need theirs.
func (e *Server) answered(id kv.ID, part uint16) {
	e.held -= e.parts[id][part].cost
	delete(e.parts[id], part)
	if len(e.parts[id]) == 0 {
		delete(e.parts, id)
	}
}

// carryOut does what the machine asks. mu is held.
func (e *Server) carryOut(effects []session.Effect) {
	for i := 0; i < len(effects); i++ {
		f := effects[i]
		switch f.Kind {
		case session.Quiet:
			e.quiet(f.ID, effects[i+1:])
		case session.SendAck:
			if f.Err != nil {
				e.debt.add(1, e.options.Clock.Now())
			}
			ack := mrdn.Ack{ID: f.ID, Part: f.Part, Untouched: f.Untouched}
			ack.Code, ack.Message = fabric.ToCode(f.Err)
			if f.Part == mrdn.NoticeAck {
				e.answerNotice(ack)
			} else if r, due := e.parts[f.ID][f.Part]; due {
				e.answered(f.ID, f.Part)
				ack.Handle = r.handle
				r.stream.Send(ack.Append(nil))
			}
		case session.Deliver:
			effects = append(effects, e.machine.Delivered(f.ID, f.Part, e.deliver(f))...)
		}
	}
}

// quiet stops a transfer. Of its parts only those are answered that the effects
// after it name; the others stay without an answer.
func (e *Server) quiet(id kv.ID, after []session.Effect) {
	for _, s := range e.streams {
		s.Quiet(func(p Part) bool { return p.ID == id })
	}
	for part := range e.parts[id] {
		if !slices.ContainsFunc(after, func(f session.Effect) bool { return f.ID == id && f.Part == part }) {
			e.answered(id, part)
		}
	}
}

// deliver hands a notification to the agent.
func (e *Server) deliver(f session.Effect) error {
	n := fabric.Notification{From: e.options.Peer, Incarnation: e.options.Incarnation, Transfer: f.ID, Payload: f.Payload}
	to, err := e.options.Events.Notified(n)
	if err == nil {
		e.attending = attending{to, n}
	}
	return err
}

// Wasted counts a frame that leads to nothing and never reaches the server: a
// ping, a pong, a chunk that no request announced. An honest peer sends few.
func (e *Server) Wasted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.debt.add(1, e.options.Clock.Now())
}

// ThrottleDelay is how long a peer whose requests lead to nothing must wait before
// the next of them is heard.
func (e *Server) ThrottleDelay() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.debt.delay(e.options.Clock.Now())
}

// Arrived ends a part of a write.
func (e *Server) Arrived(p *Inbound, err error) {
	e.mu.Lock()
	defer e.release()
	if err != nil {
		e.carryOut(e.machine.Failed(p.ID, p.Index, err))
		if !errors.Is(err, fabric.ErrCancelled) { // by the poster, who knows
			e.options.Events.Refused(e.options.Peer, err)
		}
		return
	}
	e.carryOut(e.machine.Placed(p.ID, p.Index))
}

// Unreached refuses a write before its first byte.
func (e *Server) Unreached(p *Inbound, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.carryOut(e.machine.Refused(p.ID, p.Index, err))
}

// Leaving starts a part of a read.
func (e *Server) Leaving(*Outbound) bool { return true }

// Left ends a part of a read on this side.
func (e *Server) Left(p *Outbound, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.carryOut(e.machine.Failed(p.ID, p.Index, err))
		return
	}
	e.machine.Served(p.ID)
	e.answered(p.ID, p.Index)
}

// Fence refuses and stops everything that touches a region.
func (e *Server) Fence(region uint64, cause error) {
	e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Bound.Touches(region) })
}

// Revoke stops everything that runs under a grant.
func (e *Server) Revoke(grant kv.ID, cause error) {
	e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Grant == grant })
}

func (e *Server) fence(cause error, match func(Part) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var stopped []Part
	for _, s := range e.streams {
		s.Quiet(func(p Part) bool {
			hit := match(p)
			if hit {
				stopped = append(stopped, p)
			}
			return hit
		})
	}
	for _, p := range stopped {
		e.carryOut(e.machine.Failed(p.ID, p.Index, cause))
	}
}

// Lost ends the link: nothing of the peer's touches memory any more.
func (e *Server) Lost(err error) {
	e.mu.Lock()
	if e.gone {
		e.mu.Unlock()
		return
	}
	e.gone = true
	e.receipts.drop()
	e.carryOut(e.machine.Lost())
	for _, s := range e.streams {
		s.Close()
	}
	e.mu.Unlock()
	e.options.OnLost(err)
}
