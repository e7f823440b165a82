package tcp

import (
	"fmt"
	"net"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/fabric/session"
	"meridian/mrdn"
)

// service is the serving side of one connection of a peer's link.
type service struct {
	fabric *Fabric
	hello  mrdn.Hello
	timer  *time.Timer

	mu      sync.Mutex // protects the rest
	machine *session.Incoming
	streams []*stream
	// answer is the stream on which each part of a transfer came, and so the
	// one to answer it on.
	parts map[mrdn.ID]map[uint16]*stream
	live  int
	gone  bool
}

// remembered is how many ends a service remembers: more than can be in flight.
const remembered = 8192

// join adds a stream to the service of its link, which the first one makes.
func (f *Fabric) join(conn *net.TCPConn, hello mrdn.Hello) (*service, *stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, fabric.ErrClosed
	}
	v := f.services[hello.Link]
	if v == nil {
		v = &service{
			fabric: f, hello: hello,
			machine: session.NewIncoming(f.options.MaxTransfers, remembered),
			parts:   make(map[mrdn.ID]map[uint16]*stream),
		}
		f.services[hello.Link] = v
		v.tick()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone || v.hello.Agent != hello.Agent || v.hello.Incarnation != hello.Incarnation || v.live >= int(v.hello.Streams) {
		return nil, nil, fmt.Errorf("%w: the stream does not fit its link", fabric.ErrRefused)
	}
	s, err := newStream(conn, &f.options, v)
	if err != nil {
		return nil, nil, err
	}
	v.streams = append(v.streams, s)
	v.live++
	return v, s, nil
}

// leave is called when a stream has stopped running.
func (v *service) leave() {
	v.lost(fabric.ErrPeerGone)
}

// tick watches for silent streams until the service is gone.
func (v *service) tick() {
	v.timer = time.AfterFunc(v.fabric.options.KeepAlive, func() {
		v.mu.Lock()
		if v.gone {
			v.mu.Unlock()
			return
		}
		streams := append([]*stream(nil), v.streams...)
		v.timer.Reset(v.fabric.options.KeepAlive)
		v.mu.Unlock()
		for _, s := range streams {
			if s.keepAlive(time.Now()) {
				v.lost(fmt.Errorf("no answer for %v", 3*s.options.KeepAlive))
			}
		}
	})
}

// frame hears the peer's requests.
func (v *service) frame(s *stream, f mrdn.LinkFrame, body []byte) error {
	switch f {
	case mrdn.BeginFrame:
		begin, err := mrdn.ParseBegin(body)
		if err != nil {
			return err
		}
		return v.begin(s, begin)
	case mrdn.CancelFrame:
		cancel, err := mrdn.ParseCancel(body)
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.carryOut(v.machine.Cancelled(cancel.ID))
		return nil
	case mrdn.NoticeFrame:
		notice, err := mrdn.ParseNotice(body)
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.answerOn(notice.ID, mrdn.NoticeAck, s)
		v.carryOut(v.machine.Noticed(notice))
		return nil
	}
	return fmt.Errorf("%w: type %d from the posting side", mrdn.ErrLinkFrame, f)
}

// begin admits a part: its list must name regions of ours, in their epoch,
// within their bounds, before a byte of it is placed or given.
func (v *service) begin(s *stream, b mrdn.Begin) error {
	list, err := fabric.ParseList(b.List)
	if err == nil && list.Bytes() != b.Bytes {
		err = fmt.Errorf("%w: a list of %d bytes for a part of %d", mrdn.ErrLinkFrame, list.Bytes(), b.Bytes)
	}
	if err != nil {
		return err // the stream cannot be trusted any more
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answerOn(b.ID, b.Part, s)
	effects, refused := v.machine.Begin(b)
	v.carryOut(effects)
	var bound *fabric.Bound
	if refused == nil {
		if bound, err = v.fabric.regions.Bind(list); err != nil {
			v.carryOut(v.machine.Refused(b.ID, b.Part, err))
			refused = err
		}
	}
	of := partOf{id: b.ID, part: b.Part, bound: bound}
	switch {
	case b.Write && refused != nil:
		s.expect(&inbound{partOf: of, handle: b.Handle, walk: list.Walk(), stopped: true})
	case refused != nil:
	case b.Write && b.Bytes == 0:
		bound.Release()
		v.carryOut(v.machine.Placed(b.ID, b.Part))
	case b.Write:
		s.expect(&inbound{partOf: of, handle: b.Handle, walk: list.Walk(), owned: true})
	default:
		out := &outbound{partOf: of, handle: b.Handle, walk: list.Walk()}
		out.owned.Store(true)
		sent, err := s.post(out)
		if err != nil {
			v.carryOut(v.machine.Failed(b.ID, b.Part, err))
		} else if sent {
			v.machine.Served(b.ID)
			v.answered(b.ID, b.Part)
		}
	}
	return nil
}

func (v *service) answerOn(id mrdn.ID, part uint16, s *stream) {
	if v.parts[id] == nil {
		v.parts[id] = make(map[uint16]*stream, 1)
	}
	v.parts[id][part] = s
}

// answered forgets one part, and only that: the others may still need theirs.
func (v *service) answered(id mrdn.ID, part uint16) {
	delete(v.parts[id], part)
	if len(v.parts[id]) == 0 {
		delete(v.parts, id)
	}
}

// carryOut does what the machine asks. mu is held.
func (v *service) carryOut(effects []session.Effect) {
	for i := 0; i < len(effects); i++ {
		e := effects[i]
		switch e.Kind {
		case session.Quiet:
			for _, s := range v.streams {
				s.quiet(func(p partOf) bool { return p.id == e.ID })
			}
		case session.SendAck:
			ack := mrdn.Ack{ID: e.ID, Part: e.Part, Untouched: e.Untouched}
			ack.Code, ack.Message = fabric.ToCode(e.Err)
			if s := v.parts[e.ID][e.Part]; s != nil {
				v.answered(e.ID, e.Part)
				s.send(ack.Append(nil))
			}
		case session.Deliver:
			err := v.fabric.options.Events.Notified(fabric.Notification{
				From: v.hello.Agent, Incarnation: v.hello.Incarnation, Transfer: e.ID, Payload: e.Payload,
			})
			effects = append(effects, v.machine.Delivered(e.ID, e.Part, err)...)
		}
	}
}

func (v *service) arrived(_ *stream, p *inbound, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.carryOut(v.machine.Failed(p.id, p.part, err))
		return
	}
	v.carryOut(v.machine.Placed(p.id, p.part))
}

func (v *service) leaving(*outbound) bool { return true }

func (v *service) left(p *outbound, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.carryOut(v.machine.Failed(p.id, p.part, err))
		return
	}
	v.machine.Served(p.id)
	v.answered(p.id, p.part)
}

// fence refuses and stops everything that touches a region.
func (v *service) fence(region uint64, cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	type broken struct {
		id   mrdn.ID
		part uint16
	}
	var all []broken
	for _, s := range v.streams {
		s.quiet(func(p partOf) bool {
			if p.bound == nil || !p.bound.Touches(region) {
				return false
			}
			all = append(all, broken{p.id, p.part})
			return true
		})
	}
	for _, b := range all {
		v.carryOut(v.machine.Failed(b.id, b.part, cause))
	}
}

// lost ends the service: nothing of the peer's touches memory any more.
func (v *service) lost(error) {
	v.mu.Lock()
	if v.gone {
		v.mu.Unlock()
		return
	}
	v.gone = true
	v.timer.Stop()
	v.carryOut(v.machine.Lost())
	for _, s := range v.streams {
		s.close()
	}
	v.mu.Unlock()
	v.fabric.mu.Lock()
	delete(v.fabric.services, v.hello.Link)
	v.fabric.mu.Unlock()
}
