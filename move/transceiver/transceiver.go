// Package transceiver hands the KV cache of one request from its prefill ranks
// to its decode ranks. It is the shell around the machines of package handoff:
// it brings them messages and time, and does what they answer with an agent.
//
//	Offer, Accept ─► ┌─────────── Transceiver ───────────┐
//	                 │ handoff.SourceHome .DestinationHome .Follower   │ ◄─► inbox ═══ other agents
//	Ready, Freed  ◄─ └──────┬───────────────────┬────────┘
//	                     planner       grants, reads, writes
//	                     (reshard)          (agent)
//
// An event is taken by the machines under one lock, on the goroutine that brought
// it; what they ask for is done outside of it, each on a goroutine of its own that
// Close waits for. What runs for one session ends with it: Quiesce is answered
// only when every transfer has ended and every grant is revoked.
package transceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Options configures Open.
type Options struct {
	// Agent is what moves bytes and carries messages. The transceiver listens
	// for those of hand-offs until it is closed.
	Agent *agent.Agent
	// TicketKey seals tickets: the cell's key, derived for that.
	TicketKey handoff.Key
	// PromiseKey is what gateways seal promises with: the cell's key, derived for their
	// legs. Without it none is read.
	PromiseKey [32]byte
	// Find looks an agent up; default Agent.Find.
	Find func(ctx context.Context, name string) (*agent.Peer, error)
	// Timing is how long things take and may take.
	Timing handoff.Timing
	// MaxHeldFraction is how much of an engine's blocks offers may keep from
	// it; default 0.3.
	MaxHeldFraction float64
	// MaxOffers bounds what runs; default 4096.
	MaxOffers int
	// Stores bounds what object caches take up; see JoinStore.
	Stores handoff.StoreLimits
	// Patience is the deadline of an Accept whose context has none; default one
	// minute.
	DefaultTimeout time.Duration
	// Records bounds how many ended hand-offs can be explained; default 4096.
	Records int
	// Ended, where given, is told of every hand-off that ended, with a record that
	// does not change any more. It must not block.
	Ended func(*handoff.Record)
	// Events, where given, is told what happens to this agent's engines, and
	// Passed what ranks on this agent are to know. They are called one at a
	// time, in order, and must not block.
	Events      func(handoff.Event)
	NotifyRanks func(handoff.NotifyRanks)
	Clock       fabric.Clock
	Logger      *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Agent == nil {
		return o, errors.New("transceiver: Options needs an Agent")
	}
	if o.TicketKey == (handoff.Key{}) {
		return o, errors.New("transceiver: Options needs a TicketKey; derive it from the cell's key")
	}
	for _, f := range []float64{o.MaxHeldFraction, o.Stores.MaxHeldFraction} {
		if f < 0 || f > 1 {
			return o, fmt.Errorf("transceiver: a fraction of %g of an engine's blocks", f)
		}
	}
	o.Timing = o.Timing.WithDefaults()
	o.DefaultTimeout = cmp.Or(o.DefaultTimeout, time.Minute)
	o.Records = cmp.Or(o.Records, 4096)
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

// Transceiver is an open transceiver. Its methods may be called from several
// goroutines.
type Transceiver struct {
	options Options
	self    kv.Member
	start   time.Time
	peers   *agent.Peers
	planner planner
	wait    sync.WaitGroup // everything that runs here
	ctx     context.Context
	cancel  context.CancelFunc

	mu          sync.Mutex // protects the rest
	closed      bool       // nothing new begins
	stopped     bool       // nothing happens any more
	source      *handoff.SourceHome
	destination *handoff.DestinationHome
	follower    *handoff.Follower
	engines     map[string]*ranks
	offers      map[kv.ID]*OfferHandle
	accepts     map[kv.ID]*AcceptHandle
	sessions    map[handoff.SessionID]*work
	grants      map[kv.ID]*ownGrant
	records     records
	stored      records // of what object caches gave and took
	metrics     Metrics
	disarm      func() bool
	alarm       handoff.Instant
	changed     chan struct{} // closed by the next change; nil while until has no caller
	events      []func()      // that are yet to be delivered, in order
	delivering  bool          // a goroutine is in deliverEvents
}

// Metrics is a snapshot of what a transceiver has done.
type Metrics struct {
	Offered           uint64 `metric:"meridian_handoff_offers_total,taken"`
	Declined          uint64 `metric:"meridian_handoff_offers_total,declined"`
	Freed             uint64 `metric:"meridian_handoff_offers_ended_total,freed" less:"Expired"`
	Expired           uint64 `metric:"meridian_handoff_offers_ended_total,expired"`
	Accepted          uint64 `metric:"meridian_handoff_accepts_total,taken meridian_handoff_intakes_total,taken"` // the second name for one release
	Refused           uint64 `metric:"meridian_handoff_accepts_total,refused meridian_handoff_intakes_total,refused"`
	Ready             uint64 `metric:"meridian_handoff_accepts_ended_total,ready meridian_handoff_intakes_ended_total,ready"`
	Failed            uint64 `metric:"meridian_handoff_accepts_ended_total,failed meridian_handoff_intakes_ended_total,failed"`
	BytesReady        uint64 `metric:"meridian_handoff_bytes_total"`
	MessagesSent      uint64 `metric:"meridian_handoff_messages_total,sent"`
	MessagesLost      uint64 `metric:"meridian_handoff_messages_total,lost"`
	MessagesHeard     uint64 `metric:"meridian_handoff_messages_total,heard"`
	MessagesMalformed uint64 `metric:"meridian_handoff_messages_total,malformed"`
	Offers            int    `metric:"meridian_handoff_running,offers"`
	Accepts           int    `metric:"meridian_handoff_running,accepts meridian_handoff_running,intakes"`
	Sessions          int    `metric:"meridian_handoff_running,sessions"`
	// StoreBytesHeld is how much of object caches offers keep in place.
	StoreBytesHeld int64
}

// Open starts to listen. Where messages come faster than the machines take them,
// the agent refuses them, and they are said again.
func Open(_ context.Context, o Options) (*Transceiver, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Transceiver{
		options: o, self: kv.Member{Name: o.Agent.Name(), Incarnation: o.Agent.Incarnation()},
		engines: make(map[string]*ranks), offers: make(map[kv.ID]*OfferHandle), accepts: make(map[kv.ID]*AcceptHandle),
		sessions: make(map[handoff.SessionID]*work), grants: make(map[kv.ID]*ownGrant), records: records{most: o.Records}, stored: records{most: o.Records},
		follower: handoff.NewFollower(o.Timing), planner: planner{shapes: reshard.NewShapes(64)}, alarm: handoff.Never,
	}
	// The first instant is not zero, which means never.
	t.start = o.Clock.Now().Add(-time.Second)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.peers = agent.NewPeers(o.Agent, agent.PeersOptions{Find: o.Find, Gone: t.gone, MaxInFlight: maxInFlight})
	t.source = handoff.NewSourceHome(handoff.SourceOptions{
		Self: t.self, Key: o.TicketKey, Timing: o.Timing, MaxHeldFraction: o.MaxHeldFraction, MaxOffers: o.MaxOffers, Stores: o.Stores,
	})
	t.destination = handoff.NewDestinationHome(handoff.DestinationOptions{Self: t.self, Key: o.TicketKey, Timing: o.Timing, Stores: o.Stores})
	inbox, err := o.Agent.Listen(handoff.Magic, agent.InboxLimits{})
	if err != nil {
		return nil, err
	}
	t.wait.Go(func() {
		for n := range inbox {
			t.onNotification(n)
		}
	})
	return t, nil
}

// now is the machines' clock.
func (t *Transceiver) now() handoff.Instant {
	return handoff.Instant(t.options.Clock.Now().Sub(t.start) / time.Microsecond)
}

// duration is a span of the machines' time. Instants lie as far apart as a
// message says, so it is bounded here as messages are: a longer one is waited for
// in pieces.
func duration(span handoff.Instant) time.Duration {
	return time.Duration(min(span, handoff.MaxSpan)) * time.Microsecond
}

// step lets the machines take an event, and does what they ask for.
func (t *Transceiver) step(event func(now handoff.Instant) []handoff.Effect) {
	t.mu.Lock()
	if t.stopped {
		t.mu.Unlock()
		return
	}
	now := t.now()
	var todo []func() // without mu
	for effects := event(now); len(effects) > 0; {
		e := effects[0]
		effects = effects[1:]
		if s, is := e.(handoff.Send); is && s.To == t.self {
			effects = append(effects, t.receive(now, t.self, s.Transfer, s.Message)...)
			continue
		}
		if do := t.execute(e); do != nil {
			todo = append(todo, do)
		}
	}
	t.rearm(now)
	t.signal()
	t.mu.Unlock()
	for _, do := range todo {
		do()
	}
	t.deliverEvents()
}

// deliverEvents calls Options.Events and Options.NotifyRanks, in order, without
// mu. One goroutine at a time does; the others leave their events to it.
func (t *Transceiver) deliverEvents() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.delivering {
		return
	}
	t.delivering = true
	for len(t.events) > 0 {
		tell := t.events[0]
		t.events = t.events[1:]
		t.mu.Unlock()
		tell()
		t.mu.Lock()
	}
	t.delivering = false
	t.signal()
}

// signal wakes the callers of until. mu is held.
func (t *Transceiver) signal() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// receive hands a message to the machine that it is for. mu is held.
func (t *Transceiver) receive(now handoff.Instant, from kv.Member, transfer kv.ID, m handoff.Message) []handoff.Effect {
	if o, is := m.(*handoff.Order); is {
		return t.follower.Receive(now, from, transfer, o)
	}
	return append(t.source.Receive(now, from, transfer, m), t.destination.Receive(now, from, transfer, m)...)
}

// onNotification takes a message from another agent.
func (t *Transceiver) onNotification(n fabric.Notification) {
	transfer, m, err := handoff.ParseMessage(n.Payload)
	if err != nil {
		t.count(func(c *Metrics) { c.MessagesMalformed++ })
		t.options.Agent.Unreadable(n, err)
		return
	}
	t.count(func(c *Metrics) { c.MessagesHeard++ })
	from := kv.Member{Name: n.From, Incarnation: n.Incarnation}
	t.step(func(now handoff.Instant) []handoff.Effect { return t.receive(now, from, transfer, m) })
}

// execute begins what an effect asks for and returns what is to be done
// without mu, which is held.
func (t *Transceiver) execute(e handoff.Effect) (do func()) {
	switch e := e.(type) {
	case handoff.Send:
		return t.begin(func() { t.send(e) })
	case handoff.MakePlan:
		return t.begin(func() { t.plan(e) })
	case handoff.Grant:
		return t.beginGrant(e)
	case handoff.Move:
		return t.beginMove(e)
	case handoff.Quiesce:
		return t.beginQuiesce(e)
	case handoff.TellEngine:
		t.events = append(t.events, t.onEvent(e.Event))
	case handoff.NotifyRanks:
		if t.options.NotifyRanks != nil {
			t.events = append(t.events, func() { t.options.NotifyRanks(e) })
		}
	case handoff.KeepRecord:
		kept := *e.Record // its hand-off may still count repeated messages
		kept.EndedUnixUs = time.Now().UnixMicro()
		if e.Record.OfStore || e.Record.ToKeep {
			t.stored.add(&kept)
		} else {
			t.records.add(&kept)
		}
		if t.options.Ended != nil {
			t.events = append(t.events, func() { t.options.Ended(&kept) })
		}
		if e.Record.As == handoff.Destination && e.Record.Problem == "" {
			t.metrics.BytesReady += e.Record.Bytes
		}
	}
	return nil
}

// begin makes work that Close waits for; mu is held.
func (t *Transceiver) begin(work func()) (do func()) {
	t.wait.Add(1)
	return func() {
		go func() {
			defer t.wait.Done()
			work()
		}()
	}
}

// rearm sets the alarm for when the machines want Tick. mu is held.
func (t *Transceiver) rearm(now handoff.Instant) {
	next := min(t.source.Wake(), t.destination.Wake(), t.follower.Wake())
	if next == t.alarm {
		return
	}
	if t.disarm != nil {
		t.disarm()
		t.disarm = nil
	}
	if t.alarm = next; next != handoff.Never {
		t.disarm = t.options.Clock.AfterFunc(duration(max(0, next-now)), t.tick)
	}
}

func (t *Transceiver) tick() {
	t.step(func(now handoff.Instant) []handoff.Effect {
		t.alarm = handoff.Never // so that it is set again
		effects := append(t.source.Tick(now), t.destination.Tick(now)...)
		return append(effects, t.follower.Tick(now)...)
	})
}

// gone tells the machines that an agent is no more.
func (t *Transceiver) gone(m kv.Member) {
	t.options.Logger.Info("an agent is gone", "peer", m.Name, "incarnation", m.Incarnation.String())
	t.step(func(now handoff.Instant) []handoff.Effect {
		return append(t.source.Gone(now, m), t.destination.Gone(now, m)...)
	})
}

func (t *Transceiver) count(change func(*Metrics)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.metrics)
}

// HomeKey seals tickets that name this agent as their home, and no others. An
// engine that has it can write its tickets itself.
func (t *Transceiver) HomeKey() handoff.Key { return t.options.TicketKey.For(t.self) }

// Metrics returns a snapshot.
func (t *Transceiver) Metrics() Metrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.metrics
	m.Offers, m.Accepts, m.Sessions = t.source.Len(), t.destination.Len(), t.follower.Len()
	m.StoreBytesHeld = t.source.StoreBytes()
	return m
}

// Close withdraws and cancels everything, waits until nothing of it touches
// memory, and stops listening. It comes before the agent's own Close. After an
// error it may be called again.
func (t *Transceiver) Close(ctx context.Context) error {
	t.step(func(now handoff.Instant) []handoff.Effect {
		t.closed = true
		return t.leaveAll(now)
	})
	if err := t.settled(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	listened := !t.stopped // else another transceiver of this agent may do so now
	t.stopped = true
	if t.disarm != nil {
		t.disarm()
	}
	t.mu.Unlock()
	t.cancel()
	if listened {
		t.options.Agent.Unlisten(handoff.Magic)
	}
	return join.Within(ctx, "transceiver: closing", t.wait.Wait)
}
