package handoffsim

import (
	"fmt"
	"strings"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

var cellKey = handoff.Key{1, 2, 3}

// pace is quicker than that of agents, so that leases end within a world.
var pace = handoff.Timing{
	Lease: 3 * handoff.Second, FollowerLease: 2 * handoff.Second, FirstRetry: 20 * handoff.Millisecond, LastRetry: 500 * handoff.Millisecond,
}

// host is a machine: a name, under which one process lives after the other.
type host struct {
	world   *world
	name    string
	older   bool // its build knows of layers alone
	births  int
	process *process
	cut     map[*host]int // hosts that cannot be reached
}

func (h *host) start() {
	h.births++
	p := &process{world: h.world, host: h, birth: h.births, self: kv.Member{Name: h.name, Incarnation: h.world.ID()}}
	// Clocks of hosts have nothing to do with one another.
	p.skew = handoff.Instant(h.world.Draw.Int64N(int64(1000 * handoff.Second)))
	p.source = handoff.NewSourceHome(handoff.SourceOptions{Self: p.self, Key: cellKey, Timing: pace, MaxHeldFraction: 0.8})
	p.destination = handoff.NewDestinationHome(handoff.DestinationOptions{Self: p.self, Key: cellKey, Timing: pace, Capabilities: h.capabilities()})
	p.follower = handoff.NewFollower(pace)
	p.grants, p.sessions = make(map[kv.ID]*grant), make(map[handoff.SessionID]*work)
	p.alarm = handoff.Never
	h.process = p
	h.world.Note("%v starts", p)
}

// capabilities are those of the host's build.
func (h *host) capabilities() uint64 {
	if h.older {
		return handoff.CanLayers | handoff.CanPlaces
	}
	return handoff.AllCapabilities
}

// olderForm is the last form of messages that a build reads that knows of layers alone.
const olderForm = 2

// crash ends a process without a word. The engines it belonged to are lost; it,
// and they, come back after a while.
func (h *host) crash() {
	w := h.world
	p := h.process
	if p == nil {
		return
	}
	w.Note("%v dies", p)
	w.tally.Crashes++
	p.dead, h.process = true, nil
	for _, e := range w.engines {
		if e.livesOn(p) {
			e.fall(p)
		}
	}
	w.After(w.Span(100*handoff.Millisecond, 5*handoff.Second), nil, func() {
		if h.process == nil {
			h.start()
			for _, e := range w.engines {
				e.rise()
			}
		}
	})
}

func (h *host) cutOff(other *host, off bool) {
	if h == other || h.world.Calm {
		return
	}
	for _, pair := range [][2]*host{{h, other}, {other, h}} {
		if pair[0].cut == nil {
			pair[0].cut = make(map[*host]int)
		}
		if off {
			pair[0].cut[pair[1]]++
		} else {
			pair[0].cut[pair[1]]--
		}
	}
}

func (h *host) reaches(other *host) bool { return h.cut[other] <= 0 }

// process is one start of an agent, with its machines and what they work on.
type process struct {
	world       *world
	host        *host
	birth       int
	self        kv.Member
	skew        handoff.Instant
	source      *handoff.SourceHome
	destination *handoff.DestinationHome
	follower    *handoff.Follower
	grants      map[kv.ID]*grant
	sessions    map[handoff.SessionID]*work
	alarm       handoff.Instant // when Tick is due, by the world's clock
	dead        bool
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.host.name, p.birth) }

// Dead says that nothing happens on it any more.
func (p *process) Dead() bool { return p.dead }

// Still is never: no process stands still here.
func (p *process) Still() kv.Instant { return 0 }

// Before has nothing to do.
func (p *process) Before() {}

// After an event, machines may want to be called at another time.
func (p *process) After() { p.rearm() }

// clock is the process's own.
func (p *process) clock() handoff.Instant { return p.world.Now + p.skew }

// rearm sees to it that Tick is called when the machines want it.
func (p *process) rearm() {
	next := min(p.source.Wake(), p.destination.Wake(), p.follower.Wake())
	if p.dead || next == handoff.Never {
		return
	}
	at := max(next-p.skew, p.world.Now)
	if at >= p.alarm && p.alarm > p.world.Now {
		return
	}
	p.alarm = at
	p.world.After(at-p.world.Now, p, func() {
		if p.alarm > p.world.Now {
			return
		}
		p.alarm = handoff.Never
		p.do(p.source.Tick(p.clock()))
		p.do(p.destination.Tick(p.clock()))
		p.do(p.follower.Tick(p.clock()))
	})
}

// do carries effects out.
func (p *process) do(effects []handoff.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case handoff.Send:
			p.send(e)
		case handoff.MakePlan:
			p.makePlan(e)
		case handoff.Grant:
			p.grant(e)
		case handoff.Move:
			p.move(e)
		case handoff.Quiesce:
			p.quiet(e)
		case handoff.TellEngine:
			p.tell(e.Event)
		case handoff.NotifyRanks:
			p.passTo(e)
		case handoff.KeepRecord:
			p.keep(e.Record)
		}
	}
}

// send puts a message on its way: encoded, perhaps lost, late, or twice.
func (p *process) send(e handoff.Send) {
	w := p.world
	wire := handoff.AppendMessage(nil, e.Transfer, e.Message)
	if len(wire) > handoff.MaxMessageBytes {
		w.Violate("messages fit", "%T has %d bytes", e.Message, len(wire))
	}
	w.tally.Messages++
	if e.To == p.self {
		w.After(0, p, func() { p.deliver(p.self, wire) })
		return
	}
	to := w.host(e.To.Name)
	copies := 1
	if w.plan.twice && !w.Calm && w.Chance.IntN(6) == 0 {
		copies = 2
		w.tally.Twice++
	}
	for range copies {
		if w.plan.loss && !w.Calm && w.Chance.IntN(8) == 0 {
			w.Note("%v to %s: %.4s %s is lost", p, e.To.Name, e.Transfer, summary{e.Message})
			w.tally.Lost++
			continue
		}
		delay := w.Span(10, 2*handoff.Millisecond)
		if w.plan.slow && !w.Calm && w.Chance.IntN(5) == 0 {
			w.tally.Late++
			delay = w.Span(handoff.Millisecond, 6*handoff.Second)
		}
		w.After(delay, nil, func() { p.arrive(to, e, wire) })
	}
}

// arrive is the other end of the wire.
func (p *process) arrive(to *host, e handoff.Send, wire []byte) {
	w := p.world
	switch {
	case to.process == nil || !p.host.reaches(to):
		w.tally.Lost++
	case to.process.self != e.To:
		// Another start answers: the sender learns that this one is gone.
		if !p.dead {
			p.do(p.source.Gone(p.clock(), e.To))
			p.do(p.destination.Gone(p.clock(), e.To))
			p.rearm()
		}
	default:
		to.process.deliver(p.self, wire)
		to.process.rearm()
	}
}

func (p *process) deliver(from kv.Member, wire []byte) {
	w := p.world
	transfer, m, err := handoff.ParseMessage(wire)
	if form := wire[len(handoff.Magic)]; err == nil && p.host.older && form > olderForm {
		err = fmt.Errorf("%s has form %d, of which the build of %v knows nothing", summary{m}, form, p)
	}
	if err != nil {
		w.Violate("messages are understood", "%v", err)
		return
	}
	w.Note("%v hears from %s: %.4s %s", p, from.Name, transfer, summary{m})
	now := p.clock()
	if o, is := m.(*handoff.Order); is {
		p.do(p.follower.Receive(now, from, transfer, o))
		return
	}
	p.do(p.source.Receive(now, from, transfer, m))
	p.do(p.destination.Receive(now, from, transfer, m))
}

// summary is a message in a few words.
type summary struct{ handoff.Message }

func (g summary) String() string {
	switch m := g.Message.(type) {
	case *handoff.Ask:
		return fmt.Sprintf("Ask session %d", m.Session)
	case *handoff.Answer:
		return fmt.Sprintf("Answer session %d, %d flowGrants, %v", m.Session, len(m.Grants), m.Computed)
	case *handoff.Order:
		return fmt.Sprintf("Order %d.%d as %v: %v, %d flows, %v", m.Session, m.Number, m.As, m.Kind, len(m.Flows), m.Computed)
	case *handoff.Progress:
		return fmt.Sprintf("Progress %d: %v", m.Session, m.Computed)
	case *handoff.Report:
		return fmt.Sprintf("Report %d.%d: phase %d %s", m.Session, m.Number, m.Phase, m.Problem.Text)
	case *handoff.End:
		return fmt.Sprintf("End %d final=%t %s", m.Session, m.Final, m.Problem.Text)
	case *handoff.Ended:
		return fmt.Sprintf("Ended %d %s", m.Session, m.Problem.Text)
	case *handoff.Refusal:
		return fmt.Sprintf("Refusal %d %s", m.Session, m.Problem.Text)
	case *handoff.Pushed:
		return fmt.Sprintf("Pushed %d %s", m.Session, m.Problem.Text)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", g.Message), "*handoff.")
}

func (w *world) host(name string) *host { return w.hosts[name[0]-'a'] }
