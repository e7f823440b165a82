package storesim

import (
	"fmt"
	"strings"

	"meridian/internal/seeded"
	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/kv"
)

// host is a machine: a name, under which one process lives after the other.
type host struct {
	world       *world
	name        string
	owns, leads bool
	births      int
	process     *process
	cut         map[string]int // names of hosts that cannot be reached
	tier        map[*key]*kept
	bad         kv.Instant // until when calls of the tier fail
}

// process is one start of an agent: perhaps an owner, perhaps the master, and
// clients.
type process struct {
	world *world
	host  *host
	birth int
	peer  kv.Member
	skew  kv.Instant // of its clock
	dead  bool
	still kv.Instant // until when it stands still
	view  view

	server     *protocol.Server // nil: it is no owner
	below      *below
	objects    *owner.Owner
	heap       *arena.Heap
	memory     []byte
	grants     map[kv.ID]*grant
	deliveries map[owner.LeaseID]*delivery
	holds      map[owner.LeaseID]protocol.Held
	found      map[*key]*value // what can be found, as the world last saw it
	seen       [2]uint64       // Ready and BytesIn, then
	evictions  uint64          // as the world last saw them
	leased     int64           // point of history since which it has a lease; 0 for none
	lastLeased int64           // last point at which it had one
	words      []arena.Word    // of the headers, then
	cause      cause           // of what goes away in this event

	coordinator *protocol.Coordinator // nil: it was never elected
	master      *master.Master
	term        uint64
	authority   kv.Instant // by the world's clock

	asks map[uint64]*call
	lent map[kv.ID]*call // memory of clients: landings and sources
}

// The pace of owners is quicker than theirs, so that all ends within a world.
const (
	writeTimeout = 3 * kv.Second
	readTimeout  = 2 * kv.Second
)

func (h *host) start() {
	h.births++
	w := h.world
	p := &process{
		world: w, host: h, birth: h.births, peer: kv.Member{Name: h.name, Incarnation: w.ID()}, asks: make(map[uint64]*call), lent: make(map[kv.ID]*call),
		skew: kv.Instant(w.Draw.Int64N(int64(1000 * kv.Second))), // clocks of hosts have nothing to do with one another
	}
	h.process = p
	w.Note("%v starts", p)
	if h.owns {
		p.own()
	}
	w.After(w.Span(0, 50*kv.Millisecond), p, p.look)
	if h.owns || h.leads {
		w.After(w.Span(0, 50*kv.Millisecond), p, p.tick)
	}
}

// own gives the process an empty arena.
func (p *process) own() {
	w := p.world
	p.memory = make([]byte, w.plan.arena)
	p.grants, p.deliveries, p.found = make(map[kv.ID]*grant), make(map[owner.LeaseID]*delivery), make(map[*key]*value)
	p.holds = make(map[owner.LeaseID]protocol.Held)
	p.below = newBelow(p)
	var err error
	if p.heap, err = arena.Format(p.memory, arena.Options{Headers: w.plan.headers, Ring: 8, Epoch: uint32(p.birth)}); err != nil {
		panic(err)
	}
	p.objects, err = owner.New(p.heap, owner.Options{Policy: owner.Policy(w.plan.policy), WriteTimeout: writeTimeout, Offers: w.plan.offers, Part: protocol.PartOf, Copy: protocol.IsCopy, Batch: 2})
	if err != nil {
		panic(err)
	}
	p.server = protocol.NewServer(protocol.ServerOptions{Self: p.peer, WriteTimeout: writeTimeout, ReadTimeout: readTimeout}, p.objects)
}

// crash ends a process without a word, and with it its memory. Another comes
// after a while.
func (h *host) crash() {
	w, p := h.world, h.process
	if p == nil {
		return
	}
	w.Note("%v dies", p)
	w.tally.Crashes++
	p.Before()
	p.dead, h.process = true, nil
	for _, k := range w.keys {
		if v := p.found[k]; v != nil {
			k.lost(w, p, v, true)
		}
	}
	for _, c := range w.calls {
		if c.on == p {
			c.abandon()
		}
	}
	w.After(w.Span(100*kv.Millisecond, 5*kv.Second), nil, func() {
		if h.process == nil {
			h.start()
		}
	})
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.host.name, p.birth) }

// Dead says that nothing happens on it any more.
func (p *process) Dead() bool { return p.dead }

// Still is until when the process stands still.
func (p *process) Still() kv.Instant { return p.still }

func (p *process) clock() kv.Instant { return p.world.Now + p.skew }

// tick lets time pass for the machines of the process.
func (p *process) tick() {
	w := p.world
	if p.server != nil {
		if w.Chance.IntN(6) == 0 {
			p.do(p.server.Scan(p.clock()))
		} else {
			p.do(p.server.Tick(p.clock()))
		}
	}
	if p.coordinator != nil {
		p.do(p.coordinator.Tick(p.clock(), p.standing()))
	}
	w.After(w.Span(10*kv.Millisecond, 60*kv.Millisecond)+w.calmly(40*kv.Millisecond), p, p.tick)
}

// calmly is how much longer a round takes when there is no trouble left to find.
func (w *world) calmly(d kv.Instant) kv.Instant {
	if w.Calm {
		return d
	}
	return 0
}

// do carries out what a machine wants.
func (p *process) do(effects []protocol.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case protocol.Send:
			p.send(e)
		case protocol.Grant:
			p.grant(e)
		case protocol.Revoke:
			p.revoke(e)
		case protocol.Seal:
			p.seal(e)
		case protocol.Fetch:
			p.fetch(e)
		case protocol.Deliver:
			p.deliverObject(e)
		case protocol.Verify:
			p.lookAt(e)
		case protocol.Mark:
			p.mark(e)
		case protocol.Continue:
			w := p.world
			w.After(w.Span(0, 5*kv.Millisecond), p, func() { p.do(p.server.Continue(p.clock())) })
		}
	}
}

// reaches is the process that a peer is, if it lives and no link is cut.
func (p *process) reaches(to kv.Member) *process {
	h := p.world.hosts[to.Name[0]-'a']
	if h.process == nil || h.process.peer != to || p.host.cut[h.name] > 0 || h.cut[p.host.name] > 0 {
		return nil
	}
	return h.process
}

// delay is how long something takes to another process.
func (w *world) delay(to, from *process) kv.Instant {
	switch {
	case to == from:
		return w.Span(0, 20)
	case !w.Calm && w.plan.slow && w.Chance.IntN(12) == 0:
		w.tally.Late++
		return w.Span(100*kv.Millisecond, 6*kv.Second)
	}
	return w.Span(20, 5*kv.Millisecond)
}

// send delivers a message, late, twice or never. Twice come only those between
// owners and masters: an agent delivers a notification once, and repeats nothing by
// itself.
func (p *process) send(s protocol.Send) (lost bool) {
	w := p.world
	wire := protocol.AppendMessage(nil, s.Request, s.Message)
	to := p.reaches(s.To)
	if to == nil || to != p && !w.Calm && w.plan.loss && w.Chance.IntN(15) == 0 {
		w.tally.Lost++
		w.Note("%v to %s: %d %s is lost", p, s.To.Name, s.Request, summary{s.Message})
		return true
	}
	times := 1
	if !w.Calm && w.plan.twice && repeats(s.Message) && w.Chance.IntN(6) == 0 {
		w.tally.Twice++
		times = 2
	}
	from := p.peer
	for range times {
		w.After(w.delay(to, p), to, func() { to.receive(from, wire) })
	}
	return false
}

// repeats reports whether a message is one that its sender repeats until it is
// answered.
func repeats(m protocol.Message) bool {
	switch m.(type) {
	case *protocol.Renew, *protocol.Answer, *protocol.Keys, *protocol.Claim, *protocol.Claimed, *protocol.Dropped, *protocol.DroppedAck, *protocol.Where, *protocol.Owners:
		return true
	}
	return false
}

func (p *process) receive(from kv.Member, wire []byte) {
	w := p.world
	w.tally.Messages++
	request, m, err := protocol.ParseMessage(wire)
	if err != nil {
		w.Violate("messages are understood", "%v", err)
		return
	}
	w.Note("%v hears from %s: %d %s", p, from.Name, request, summary{m})
	switch m := m.(type) {
	case *protocol.Where, *protocol.Forget, *protocol.Renew, *protocol.Keys, *protocol.Claim, *protocol.Dropped:
		if p.coordinator != nil {
			p.do(p.coordinator.Receive(p.clock(), p.standing(), from, request, m))
		}
	case *protocol.Plan, *protocol.Value, *protocol.Location, *protocol.Present, *protocol.Listing, *protocol.Evicted, *protocol.Reply, *protocol.Owners:
		p.answered(request, m)
	default:
		if p.server != nil {
			p.cause = cause{message: m}
			p.do(p.server.Receive(p.clock(), from, request, m))
		}
	}
}

// summary is a message in a few words.
type summary struct{ protocol.Message }

func (g summary) String() string {
	switch m := g.Message.(type) {
	case *protocol.Reply:
		return fmt.Sprintf("Reply %s", m.Problem.Text)
	case *protocol.Put:
		return fmt.Sprintf("Put %s, %d bytes", m.Name[1:], len(m.Value))
	case *protocol.PutFrom:
		return fmt.Sprintf("PutFrom %s, %d bytes", m.Name[1:], m.Source.Length)
	case *protocol.Open:
		return fmt.Sprintf("Open %s, %d bytes", m.Name[1:], m.Bytes)
	case *protocol.Plan:
		return fmt.Sprintf("Plan header %d epoch %d, %d bytes at %d", m.Header, m.Epoch, m.Bytes, m.Offset)
	case *protocol.Commit:
		return fmt.Sprintf("Commit header %d epoch %d, abort: %t", m.Header, m.Epoch, m.Abort)
	case *protocol.Get:
		return fmt.Sprintf("Get %s", m.Name[1:])
	case *protocol.Remove:
		return fmt.Sprintf("Remove %s", m.Name[1:])
	case *protocol.Owners:
		return fmt.Sprintf("Owners %q", m.Names)
	case *protocol.Renew:
		return fmt.Sprintf("Renew term %d seq %d, oldest %d, dropped %d", m.Term, m.Seq, m.Oldest, m.Dropped)
	case *protocol.Answer:
		return fmt.Sprintf("Answer term %d seq %d: %v for %v, all: %t, %x", m.Term, m.Seq, m.Verdict, seeded.Duration(m.Length), m.All, m.Keys)
	case *protocol.Keys:
		return fmt.Sprintf("Keys term %d seq %d serial %d: %x", m.Term, m.Seq, m.Serial, m.Hashes)
	case *protocol.Claim:
		return fmt.Sprintf("Claim term %d serial %d oldest %d: %x", m.Term, m.Serial, m.Oldest, m.Hash)
	case *protocol.Claimed:
		return fmt.Sprintf("Claimed term %d %s", m.Term, m.Problem.Text)
	case *protocol.Dropped:
		return fmt.Sprintf("Dropped term %d oldest %d: %x", m.Term, m.Oldest, m.Drops)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", g.Message), "*protocol.")
}
