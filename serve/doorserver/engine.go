package doorserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// state is where an engine stands.
type state uint8

const (
	gathering state = iota + 1
	serving
	fencing
)

// engine is one registration of an engine. All of it is under the server's mu.
type engine struct {
	id          string
	uid         uint32
	incarnation kv.ID
	state       state
	control     *conn
	controlInfo *doorpb.Control
	ranks       map[int]*rank
	size        int // how many ranks there are, as the first of them said
	regions     int // lent, or about to be
	lentBytes   uint64
	side        *reshard.Side
	scope       kv.Scope
	offers      map[kv.ID]*offered
	accepts     map[kv.ID]*found
	keeps       map[kv.ID]bool
	found       []*found         // not used yet, the oldest first
	parts       map[kv.ID]*found // hand-offs that are part of an accept and not quiet
	finds       int              // that are being looked for
	joined      bool             // the transceiver knows it

	// Of engines whose ranks are at several agents.
	members       *directory.View      // what their agents say, once that matters
	homePublished bool                 // this agent has said that it is the home
	remoteRanks   map[int]handoff.Rank // at the home: ranks at other agents
	cacheTokens   int                  // of a piece of a prefix, where it keeps and finds them
	older         string               // one of those agents, if its build knows no object caches
	home          string               // not at the home: who speaks for the engine …
	registration  string               // … under which registration …
	followed      int                  // … for how many ranks from here

	life    context.Context // until it is lost
	endLife context.CancelFunc
	fenced  chan struct{} // closed when nothing of it is left

	running    int           // requests that are being done
	idle       chan struct{} // closed when none is, once fencing waits for it
	answering  bool          // control is being answered
	heldEvents []door.Event  // that come after the answer
}

// offered is an offer that stands, and how much of it each rank says that it has
// computed.
type offered struct {
	*transceiver.OfferHandle
	layers   int // of the model
	tokens   int
	computed map[int]handoff.Computed
}

// computedBy notes what a rank has computed of an offer, and tells what all have. Of
// ranks at other agents nothing is heard here, so that only control tells.
func (e *engine) computedBy(rank int, o *offered, layers, tokens int) handoff.Computed {
	o.computed[rank] = o.computed[rank].And(layers, tokens, o.layers, o.tokens)
	if len(e.remoteRanks) > 0 {
		return handoff.Computed{}
	}
	both := o.computed[rank]
	for index := range e.size {
		both = both.Both(o.computed[index], o.layers, o.tokens)
	}
	return both
}

// rank is one rank's memory: what it has lent so far.
type rank struct {
	conn     *conn
	lent     []loan
	memory   handoff.Memory
	complete bool
	told     bool // to the home, at another agent
}

// register makes a connection part of its engine, or says why not, and welcomes it.
// An engine that comes back waits for the fence of what it was.
func (s *Server) register(c *conn, hello *doorpb.Hello) *door.Problem {
	id := hello.GetEngine()
	if p := checkEngineID(id); p != nil {
		return p
	}
	deadline := time.Now().Add(s.options.FenceWait)
	for {
		wait, p := s.tryRegister(c, hello)
		if wait == nil {
			return p
		}
		left := time.Until(deadline)
		if p != nil { // another process has this place, and may be dying just now
			left = min(left, time.Second)
		}
		select {
		case <-wait:
		case <-time.After(left):
			if p == nil {
				p = problem(door.CodeFenced, "engine %s was lost, and is still being fenced", id)
			}
			return p
		case <-s.life.Done():
			return problem(door.CodeFenced, "the agent stops")
		}
	}
}

func checkEngineID(id string) *door.Problem {
	if id == "" || len(id) > 255 || directory.CheckKey(directory.EnginePrefix+id) != nil || !oneSegment(id) {
		return problem(door.CodeTerms, "%.80q is no id for an engine: 1 to 255 letters, digits and -._~:@%%+=", id)
	}
	if strings.HasPrefix(id, handoff.StorePrefix) {
		return problem(door.CodeTerms, "%.80q is an id of an object cache: those of engines do not begin with %s", id, handoff.StorePrefix)
	}
	return nil
}

func oneSegment(id string) bool {
	for _, r := range id {
		if r == '/' {
			return false
		}
	}
	return true
}

// tryRegister lets a connection in, or returns what to wait for, or a problem, or
// both: then the problem holds unless what to wait for happens soon.
func (s *Server) tryRegister(c *conn, hello *doorpb.Hello) (wait <-chan struct{}, p *door.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[hello.GetEngine()]
	switch {
	case s.closing:
		return nil, problem(door.CodeFenced, "the agent stops")
	case e == nil && len(s.engines) >= s.options.MaxEngines:
		return nil, busy(fmt.Sprintf("%d engines are here, which is the limit", len(s.engines)))
	case e == nil:
		e = s.newEngine(hello.GetEngine(), c.peer.uid)
	case e.state == fencing:
		return e.fenced, nil
	}
	if e.uid != c.peer.uid {
		return nil, problem(door.CodeDenied, "engine %s belongs to user %d", e.id, e.uid)
	}
	occupied, p := e.admit(c, hello)
	if p != nil {
		if occupied {
			return e.life.Done(), p
		}
		if s.engines[e.id] == nil {
			e.endLife()
		}
		return nil, p
	}
	s.engines[e.id] = e
	c.engine = e
	s.welcome(c, hello)
	return nil, nil
}

func (s *Server) newEngine(id string, uid uint32) *engine {
	e := &engine{
		id: id, uid: uid, incarnation: agent.NewID(), state: gathering, ranks: make(map[int]*rank),
		offers: make(map[kv.ID]*offered), accepts: make(map[kv.ID]*found), keeps: make(map[kv.ID]bool), parts: make(map[kv.ID]*found),
		fenced: make(chan struct{}),
	}
	e.life, e.endLife = context.WithCancel(s.life)
	return e
}

// maxRanks is as many as a hand-off can name.
const maxRanks = 1 << 10

// admit gives a connection its place. occupied means that another has it.
func (e *engine) admit(c *conn, hello *doorpb.Hello) (occupied bool, p *door.Problem) {
	switch as := hello.GetAs().(type) {
	case *doorpb.Hello_Control:
		if e.control != nil {
			return true, present(fmt.Sprintf("engine %s has a control already, %v", e.id, e.control.peer))
		}
		switch as.Control.GetRole() {
		case "prefill", "decode", "both":
		default:
			return false, problem(door.CodeTerms, "%.80q is no role; there is prefill, decode and both", as.Control.GetRole())
		}
		e.control, e.controlInfo = c, as.Control
	case *doorpb.Hello_Rank:
		index, size := int(as.Rank.GetIndex()), int(as.Rank.GetRanks())
		if size < 1 || size > maxRanks || index >= size {
			return false, problem(door.CodeTerms, "rank %d of %d; there may be 1 to %d", index, size, maxRanks)
		}
		if e.size != 0 && e.size != size {
			return false, problem(door.CodeTerms, "this rank says that engine %s has %d ranks, others say %d", e.id, size, e.size)
		}
		if r := e.ranks[index]; r != nil {
			return true, present(fmt.Sprintf("rank %d of engine %s is there already, %v", index, e.id, r.conn.peer))
		}
		e.size, c.rank = size, index
		e.ranks[index] = &rank{conn: c}
	default:
		return false, choice(hello.ProtoReflect().GetUnknown(), "Hello says neither control nor which rank nor client nor steps")
	}
	return false, nil
}

func present(message string) *door.Problem {
	return &door.Problem{Code: door.CodePresent, Message: message, Hint: "end that process, or take another id"}
}

// conns lists the connections of an engine.
func (e *engine) conns() []*conn {
	var all []*conn
	if e.control != nil {
		all = append(all, e.control)
	}
	for _, r := range e.ranks {
		if r.conn != nil {
			all = append(all, r.conn)
		}
	}
	return all
}

// publish takes what control says of the engine.
func (c *conn) publish(m *doorpb.Publish) *door.Problem {
	if c.rank != control {
		return problem(door.CodeOrder, "a rank does not publish; control does")
	}
	publication, err := door.ParsePublication(m)
	if err != nil {
		return problem(door.CodeTerms, "%v", err)
	}
	side := &reshard.Side{
		Geometry: publication.Geometry, Parallelism: publication.Parallelism, Layout: publication.Layout, Packing: publication.Packing,
		BlockTokens: publication.BlockTokens, Blocks: publication.Blocks, InterleaveTokens: publication.InterleaveTokens,
	}
	if err := side.Validate(); err != nil {
		return problemOf(err)
	}
	s, e := c.server, c.engine
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ranks := side.Parallelism.Ranks(); {
	case e.state == fencing:
		return problem(door.CodeFenced, "engine %s is being fenced", e.id)
	case e.side != nil:
		return problem(door.CodeOrder, "engine %s has published already", e.id)
	case e.size != 0 && e.size != ranks || ranks > maxRanks:
		return problem(door.CodeTerms, "%v has %d ranks, ranks say there are %d", side.Parallelism, ranks, e.size)
	}
	e.side, e.scope, e.size = side, publication.Scope, side.Parallelism.Ranks()
	p := s.tryServe(e)
	if p != nil {
		e.side = nil
	}
	return p
}

// tryServe lets an engine serve that is complete. mu is held.
func (s *Server) tryServe(e *engine) *door.Problem {
	if e.state != gathering {
		return nil
	}
	if e.side == nil {
		if e.control == nil && e.complete() > 0 { // control may be at another agent
			s.findMembers(e)
			if e.members != nil && e.members.Known() {
				s.checkHome(e, e.members)
			}
		}
		return nil
	}
	joining := handoff.Engine{ID: e.id, Side: *e.side}
	for index := range e.size {
		rank, there := e.member(s, index)
		if !there {
			s.findMembers(e)
			return nil
		}
		need, err := e.side.MemoryBytes(index)
		if err != nil {
			return problemOf(err)
		}
		if have := rank.Memory.Bytes(); have < uint64(need) {
			return problem(door.CodeSize, "rank %d has lent %d bytes, its share of the cache takes %d", index, have, need)
		}
		joining.Ranks = append(joining.Ranks, rank)
	}
	if err := s.options.Transceiver.Join(joining); err != nil {
		return problemOf(err)
	}
	e.state, e.joined = serving, true
	switch err := s.joinOffload(e); {
	case err != nil:
		s.options.Logger.Info("an engine's prefixes cannot be kept", "engine", e.id, "reason", err)
	case slices.Contains(e.control.features, door.FeatureCache): // never without Offload
		e.cacheTokens = s.options.CacheTerms.BlockTokens
	}
	for _, c := range e.conns() {
		c.sendEvent(door.Event{Kind: door.Serving})
	}
	s.options.Logger.Info("an engine serves", "engine", e.id, "incarnation", e.incarnation.String(), "role", e.controlInfo.GetRole(), "cut", cutOf(e.side))
	s.announce(e)
	if len(e.remoteRanks) > 0 {
		s.publishMember(e, servingRecord, e.incarnation.String(), nil)
	}
	return nil
}

// joinOffload lets an engine that serves keep and find, if all its ranks can.
func (s *Server) joinOffload(e *engine) error {
	switch {
	case s.options.Offload == nil:
		return nil
	case e.older != "":
		return fmt.Errorf("agent %s, which has ranks of it, is of a build that knows no object cache", e.older)
	}
	return s.options.Offload.Join(e.id, *e.side)
}

// member finds a rank, here or at another agent.
func (e *engine) member(s *Server, index int) (handoff.Rank, bool) {
	if r := e.ranks[index]; r != nil {
		return handoff.Rank{Agent: s.self, Memory: r.memory}, r.complete
	}
	rank, there := e.remoteRanks[index]
	return rank, there
}

// complete is how many ranks here have lent everything.
func (e *engine) complete() (n int) {
	for _, r := range e.ranks {
		if r.complete {
			n++
		}
	}
	return n
}

// cutOf tells people how an engine cuts and keeps its cache.
func cutOf(side *reshard.Side) string {
	return fmt.Sprintf("%v,block=%d,layout=%v", side.Parallelism, side.BlockTokens, side.Layout)
}

// beginRequest holds back events for control until it has its answer.
func (e *engine) beginRequest(c *conn) {
	e.running++
	if c == e.control {
		e.answering = true
	}
}

func (e *engine) endRequest(c *conn) {
	if c == e.control {
		e.answering = false
		held := e.heldEvents
		e.heldEvents = nil
		for _, event := range held {
			e.tell(event)
		}
	}
	e.endRunning()
}

// endRunning: a request is done.
func (e *engine) endRunning() {
	if e.running--; e.running == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// waitIdle waits until no request is being done. One that came late must not
// reach the engine that takes this one's place.
func (s *Server) waitIdle(e *engine) {
	s.mu.Lock()
	idle := make(chan struct{})
	if e.running == 0 {
		close(idle)
	} else {
		e.idle = idle
	}
	s.mu.Unlock()
	<-idle
}
