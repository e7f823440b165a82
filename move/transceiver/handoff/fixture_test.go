package handoff

import (
	"fmt"
	"slices"
	"testing"

	"meridian/kv"
	"meridian/move/reshard"
)

// fixture is one hand-off between two homes, with a follower at each, played step by step:
// messages wait until they are delivered, work is done when it is asked for.
type fixture struct {
	t           fataler
	now         Instant
	source      *SourceHome
	destination *DestinationHome
	followers   map[kv.Member]*Follower
	post        []queuedMessage // on its way
	said        []queuedMessage // all that was ever sent
	events      []Event
	records     []*Record
	grants      map[place]int // that are open
	moves       map[place][]Move
	move        func(Move) (Movement, bool) // false: it does not end yet
	ids         byte
	hostile     bool // orders may be made up: what they ask for may be impossible
	transfer    kv.ID
	ticket      []byte
	layers      int
}

type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

// place is a session at one follower.
type place struct {
	at kv.Member
	SessionID
}

type queuedMessage struct {
	from, to kv.Member
	transfer kv.ID
	message  Message
}

var (
	memberP = kv.Member{Name: "p", Incarnation: kv.ID{1}}
	memberD = kv.Member{Name: "d", Incarnation: kv.ID{2}}
	memberX = kv.Member{Name: "x", Incarnation: kv.ID{3}}
)

// oneRank is an engine of so many tensor ranks on one agent.
func oneRank(id string, tp int, at ...kv.Member) *Engine {
	g := kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 2}, kv.Int8)
	layout, _ := kv.ParseLayout("LBHNC")
	e := &Engine{ID: id, Side: reshard.Side{Geometry: g, Parallelism: kv.Split(2, tp, 1), Layout: layout, BlockTokens: 2, Blocks: 8}}
	for rank := range tp {
		size, err := e.Side.MemoryBytes(rank)
		if err != nil {
			panic(err)
		}
		e.Ranks = append(e.Ranks, Rank{Agent: at[rank%len(at)], Memory: Memory{{Region: uint64(rank), Epoch: 1, Length: uint64(size)}}})
	}
	return e
}

var testContent = Content{Scope: kv.Scope{Model: "m"}, Tokens: []uint32{1, 2, 3, 4, 5, 6}}

func newStage(t fataler) *fixture {
	s := &fixture{
		t: t, now: Second, followers: make(map[kv.Member]*Follower), grants: make(map[place]int), moves: make(map[place][]Move), transfer: kv.ID{42}, layers: 2,
	}
	s.source = NewSourceHome(SourceOptions{Self: memberP, Key: testKey, MaxHeldFraction: 1})
	s.destination = NewDestinationHome(DestinationOptions{Self: memberD, Key: testKey})
	for _, m := range []kv.Member{memberP, memberD, memberX} {
		s.followers[m] = NewFollower(Timing{})
	}
	s.move = func(m Move) (Movement, bool) { return s.done(m), true }
	s.join(oneRank("prefill", 2, memberP), oneRank("decode", 1, memberD))
	return s
}

func (s *fixture) join(src, dst *Engine) {
	for _, e := range []*Engine{src, dst} {
		if err := e.Validate(); err != nil {
			s.t.Fatalf("%v", err)
		}
	}
	s.source.Join(src)
	s.destination.Join(dst)
	for _, h := range s.followers {
		h.Join("prefill", "p")
		h.Join("decode", "d")
	}
}

// done is the good end of a movement.
func (s *fixture) done(m Move) Movement {
	plan := m.Order.Terms.KnownPlan()
	if plan == nil {
		shape, err := reshard.Prepare(m.Order.Terms.Src.Engine.Side, m.Order.Terms.Dst.Engine.Side)
		if err == nil {
			plan, err = shape.Plan(m.Order.Terms.Request())
		}
		if err != nil {
			if !s.hostile {
				s.t.Fatalf("%v", err)
			}
			return Movement{Flow: m.FlowGrant.Flow, Err: err}
		}
	}
	for _, f := range plan.Flows() {
		if f.Src == m.FlowGrant.Src && f.Dst == m.FlowGrant.Dst {
			end := Movement{Flow: m.FlowGrant.Flow, Fabric: "stage"}
			parts, err := m.Flows(f)
			if err != nil {
				s.t.Fatalf("%v", err)
			}
			for _, part := range parts {
				end.Bytes += uint64(part.Bytes())
			}
			return end
		}
	}
	if !s.hostile {
		s.t.Fatalf("%v is not in the plan", m.FlowGrant.Flow)
	}
	return Movement{Flow: m.FlowGrant.Flow, Err: ErrTerms}
}

func (s *fixture) offer(layers int) {
	s.t.Helper()
	ticket, effects, err := s.source.Offer(s.now, Offer{
		Transfer: s.transfer, Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey), Tokens: 6,
		Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}, Computed: Computed{Layers: layers}, Keep: Minute,
	})
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	s.ticket = ticket
	s.do(memberP, effects)
}

func (s *fixture) accept(push bool) {
	s.t.Helper()
	if err := s.tryAccept(push); err != nil {
		s.t.Fatalf("%v", err)
	}
}

// opened is the ticket, as the agent of the decode engine opens it.
func (s *fixture) opened() Ticket {
	s.t.Helper()
	ticket, err := OpenTicket(s.ticket, testKey)
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	return ticket
}

func (s *fixture) tryAccept(push bool) error {
	effects, err := s.destination.Accept(s.now, Accept{
		Ticket: s.opened(), Engine: "decode", Holding: reshard.Holding{Tables: [][]uint32{{5, 3, 1}}},
		Tokens: kv.TokenRange{End: 6}, Push: push, Deadline: s.now + 20*Second,
	})
	s.do(memberD, effects)
	return err
}

// do carries effects of an agent out.
func (s *fixture) do(at kv.Member, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			l := queuedMessage{at, e.To, e.Transfer, e.Message}
			s.post, s.said = append(s.post, l), append(s.said, l)
		case MakePlan:
			shape, err := reshard.Prepare(e.Terms.Src.Engine.Side, e.Terms.Dst.Engine.Side)
			var plan *reshard.Plan
			if err == nil {
				plan, err = shape.Plan(e.Terms.Request())
			}
			if e.As == Source {
				s.do(at, s.source.Planned(s.now, e.Terms.Transfer, e.Session, plan, err))
			} else {
				s.do(at, s.destination.Planned(s.now, e.Terms.Transfer, e.Session, plan, err))
			}
		case Grant:
			flowGrants := slices.Clone(e.Order.Flows)
			for i := range flowGrants {
				s.ids++
				flowGrants[i].Grant = kv.ID{s.ids}
			}
			s.grants[place{at, e.Session}] += len(flowGrants)
			s.do(at, s.followers[at].Granted(s.now, e.Session, flowGrants, nil))
		case Move:
			if end, over := s.move(e); over {
				s.do(at, s.followers[at].Moved(s.now, e.Session, end))
			} else {
				s.moves[place{at, e.Session}] = append(s.moves[place{at, e.Session}], e)
			}
		case Quiesce:
			delete(s.grants, place{at, e.Session})
			delete(s.moves, place{at, e.Session})
			s.do(at, s.followers[at].Quiesced(s.now, e.Session))
		case TellEngine:
			s.told(e.Event)
		case KeepRecord:
			s.records = append(s.records, e.Record)
		}
	}
}

// told looks whether an event may come now.
func (s *fixture) told(e Event) {
	s.t.Helper()
	count := func(kind EventKind) (n int) {
		for _, was := range s.events {
			if was.As == e.As && was.Kind == kind && was.Transfer == e.Transfer {
				n++
			}
		}
		return n
	}
	defer func() { s.events = append(s.events, e) }()
	switch {
	case e.As == Source && e.Kind == Freed && count(Freed) > 0,
		e.As == Destination && (e.Kind == Ready || e.Kind == Failed) && count(Ready)+count(Failed) > 0,
		e.As == Destination && e.Kind == Freed && (count(Freed) > 0 || count(Failed) != 1):
		s.t.Fatalf("%v again: %v", e.Kind, s.story())
	case e.Kind == Freed || e.Kind == Ready:
		for session, n := range s.grants {
			if session.As == e.As && n > 0 {
				s.t.Fatalf("%v as %v with %d grants open: %v", e.Kind, e.As, n, s.story())
			}
		}
		for session, moves := range s.moves {
			if session.As == e.As && len(moves) > 0 {
				s.t.Fatalf("%v as %v while bytes move: %v", e.Kind, e.As, s.story())
			}
		}
	}
}

// deliver brings one letter.
func (s *fixture) deliver(l queuedMessage) {
	if o, is := l.message.(*Order); is {
		s.do(l.to, s.followers[l.to].Receive(s.now, l.from, l.transfer, o))
		return
	}
	switch l.to {
	case memberP:
		s.do(memberP, s.source.Receive(s.now, l.from, l.transfer, l.message))
	case memberD:
		s.do(memberD, s.destination.Receive(s.now, l.from, l.transfer, l.message))
	}
}

// play delivers everything that is on its way, and what follows from it.
func (s *fixture) play() {
	for len(s.post) > 0 {
		l := s.post[0]
		s.post = s.post[1:]
		s.deliver(l)
	}
}

// pass lets time go by, with everything that the machines do meanwhile.
func (s *fixture) pass(d Instant) {
	for end := s.now + d; ; {
		s.play()
		next := min(s.source.Wake(), s.destination.Wake())
		for _, h := range s.followers {
			next = min(next, h.Wake())
		}
		if next > end {
			s.now = end
			return
		}
		s.now = max(s.now, next)
		s.tick()
	}
}

func (s *fixture) tick() {
	s.do(memberP, s.source.Tick(s.now))
	s.do(memberD, s.destination.Tick(s.now))
	for _, m := range []kv.Member{memberP, memberD, memberX} {
		s.do(m, s.followers[m].Tick(s.now))
	}
}

func (s *fixture) story() string {
	text := ""
	for _, e := range s.events {
		text += fmt.Sprintf("%v as %v (%s); ", e.Kind, e.As, e.Problem.Text)
	}
	return text
}

// ended demands these ends, in this order on each side.
func (s *fixture) ended(want ...string) {
	s.t.Helper()
	var got []string
	for _, as := range []Role{Source, Destination} {
		for _, e := range s.events {
			if e.As == as {
				got = append(got, fmt.Sprintf("%v %v", as, e.Kind))
			}
		}
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("got %v, want %v: %s", got, want, s.story())
	}
}

// empty demands that nothing is left of the hand-off but memories of it.
func (s *fixture) empty() {
	s.t.Helper()
	if s.source.Len() != 0 || s.destination.Len() != 0 || len(s.grants) != 0 || len(s.moves) != 0 {
		s.t.Fatalf("%d offers, %d accepts, %d grants, %d moves are left", s.source.Len(), s.destination.Len(), len(s.grants), len(s.moves))
	}
	for m, h := range s.followers {
		if h.Len() != 0 {
			s.t.Fatalf("the follower of %v has %d sessions", m, h.Len())
		}
	}
}

var _ fataler = (*testing.T)(nil)
