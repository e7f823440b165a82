package doorserver

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// Governor decides for engines that tell of their steps.
type Governor interface {
	// Govern begins to decide for an engine's scheduler, or to take what a process of it
	// measures. Of an engine one scheduler is there at a time: the next comes after Close.
	Govern(engine string, about *doorpb.Steps) (Governed, error)
}

// Governed is one connection of an engine that is governed. Step and Close are never
// called at the same time.
type Governed interface {
	Terms() *doorpb.GovernorTerms
	// Step takes what happened; nil where the connection measures. The shape of m has been
	// checked, and m is the governor's to keep. The Decision is read until the next call.
	// After an error the connection ends.
	Step(m *doorpb.Step) (*doorpb.Decision, error)
	Close()
}

// governedEngine is the connections for steps of one engine. It is under the server's mu.
type governedEngine struct {
	uid       uint32
	scheduler *conn
	measuring map[*conn]bool
}

// steps is what a connection for steps has besides.
type steps struct {
	Governed
	engine   string
	measures bool
	left     chan struct{} // closed when its place is free

	// The reader's.
	number uint64 // of the last Step
	out    []byte // the last Decision's frame

	running, waiting, freeBlocks atomic.Uint32 // as the last Step says
}

// registerSteps lets a connection for steps in. It fences nothing when it ends, so an
// engine has it whether it is registered or not.
func (s *Server) registerSteps(c *conn, hello *doorpb.Hello) *door.Problem {
	about := hello.GetSteps()
	switch {
	case s.options.Governor == nil:
		return problem(door.CodeUnsupported, "this agent governs no engines")
	case !slices.Contains(c.features, door.FeatureSteps):
		return problem(door.CodeTerms, "a connection for steps needs the feature %s, and Hello does not name it", door.FeatureSteps)
	}
	if p := checkEngineID(hello.GetEngine()); p != nil {
		return p
	}
	if p := checkSteps(about); p != nil {
		return p
	}
	c.steps = &steps{engine: hello.GetEngine(), measures: about.GetMeasures(), left: make(chan struct{})}
	// Another scheduler that has the place may be dying just now.
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for {
		occupied, p := s.admitSteps(c)
		if p == nil {
			break
		}
		if occupied == nil {
			return p
		}
		select {
		case <-occupied:
		case <-patience.C:
			return p
		case <-s.life.Done():
			return problem(door.CodeFenced, "the agent stops")
		}
	}
	var err error
	if c.steps.Governed, err = s.options.Governor.Govern(c.steps.engine, about); err != nil {
		s.leaveSteps(c)
		return orProblem(err, door.CodeTerms)
	}
	s.welcome(c, hello)
	return nil
}

// admitSteps gives a connection its place. With a problem it returns what to wait for, if
// the place may become free.
func (s *Server) admitSteps(c *conn) (occupied <-chan struct{}, p *door.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := c.steps.engine
	e := s.governed[id]
	switch registered := s.engines[id]; {
	case s.closing:
		return nil, problem(door.CodeFenced, "the agent stops")
	case registered != nil && registered.uid != c.peer.uid:
		return nil, problem(door.CodeDenied, "engine %s belongs to user %d", id, registered.uid)
	case e != nil && e.uid != c.peer.uid:
		return nil, problem(door.CodeDenied, "engine %s belongs to user %d", id, e.uid)
	case e == nil && len(s.governed) >= s.options.MaxEngines:
		return nil, busy(fmt.Sprintf("%d engines are governed here, which is the limit", len(s.governed)))
	case e == nil:
		e = &governedEngine{uid: c.peer.uid, measuring: make(map[*conn]bool)}
	case !c.steps.measures && e.scheduler != nil:
		return e.scheduler.steps.left, present(fmt.Sprintf("a scheduler of engine %s is there already, %v", id, e.scheduler.peer))
	case c.steps.measures && len(e.measuring) >= door.MaxMeasuring:
		return nil, busy(fmt.Sprintf("%d processes of engine %s measure, which is the limit", len(e.measuring), id))
	}
	s.governed[id] = e
	if c.steps.measures {
		e.measuring[c] = true
	} else {
		e.scheduler = c
	}
	c.rank = forSteps
	return nil, nil
}

// leaveSteps frees a connection's place, when the governor has heard of its end.
func (s *Server) leaveSteps(c *conn) {
	if c.steps.Governed != nil {
		c.steps.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.governed[c.steps.engine]
	if delete(e.measuring, c); e.scheduler == c {
		e.scheduler = nil
	}
	if e.scheduler == nil && len(e.measuring) == 0 {
		delete(s.governed, c.steps.engine)
	}
	close(c.steps.left)
}

// addGoverned adds what the schedulers said last. mu is held.
func (s *Server) addGoverned(m *Metrics) {
	m.StepsDecided, m.StepsMeasured = s.decided.Load(), s.measured.Load()
	m.StepsRefused, m.StepsUnread = s.refused.Load(), s.unread.Load()
	for _, e := range s.governed {
		m.Measuring += len(e.measuring)
		if e.scheduler == nil {
			continue
		}
		said := e.scheduler.steps
		m.Governed++
		m.Running += uint64(said.running.Load())
		m.Waiting += uint64(said.waiting.Load())
		m.FreeBlocks += uint64(said.freeBlocks.Load())
	}
}

// runSteps is the life of a connection for steps. What it says is answered on this
// goroutine: an engine waits for it.
func (c *conn) runSteps() {
	s := c.server
	s.wait.Go(func() {
		if c.peer.waitExit() {
			_ = c.wire.Close() // a child of it may have the socket, too
		}
	})
	why := c.read()
	s.leaveSteps(c)
	s.options.Logger.Info("a connection for steps has ended", "engine", c.steps.engine, "peer", c.peer.String(), "reason", why)
}

// unreadLimit is how long what is decided may wait for an engine that does not read. A
// Decision asks for things once, so none may be left out: the connection ends instead, and
// the engine goes on alone.
const unreadLimit = time.Second

// sendNow writes a frame on a connection for steps, and ends it where it cannot. Beyond
// what the socket holds it waits.
func (c *conn) sendNow(wire []byte) bool {
	_ = c.wire.Socket().SetWriteDeadline(time.Now().Add(unreadLimit))
	if err := c.wire.Write(wire, nil); err != nil {
		_ = c.wire.Close()
		return false
	}
	return true
}

// keptFrameBytes bounds the memory that is kept for a connection's next Decision.
const keptFrameBytes = 256 << 10

// step takes a Step. A problem ends the connection.
func (c *conn) step(f *door.Frame) *door.Problem {
	p := c.decide(f)
	if p != nil {
		c.server.refused.Add(1)
	}
	return p
}

// decide has a Step decided, and answers it with a Decision where it is a scheduler's.
func (c *conn) decide(f *door.Frame) *door.Problem {
	s, told := c.server, c.steps
	m := &doorpb.Step{}
	if err := f.UnmarshalRequest(m); err != nil {
		return problemOf(err)
	}
	if m.GetNumber() <= told.number {
		return problem(door.CodeMalformed, "step %d came after step %d; their numbers rise", m.GetNumber(), told.number)
	}
	if p := checkStep(m, told.measures); p != nil {
		return p
	}
	told.number = m.GetNumber()
	told.running.Store(m.GetRunning())
	told.waiting.Store(m.GetWaiting())
	told.freeBlocks.Store(m.GetFreeBlocks())
	number := m.GetNumber()
	decision, err := told.Step(m)
	if err != nil {
		return orProblem(fmt.Errorf("step %d: %w", number, err), door.CodeRequest)
	}
	if told.measures {
		s.measured.Add(1)
		return nil
	}
	if decision == nil {
		decision = &doorpb.Decision{}
	}
	decision.Step = number
	wire, err := door.AppendFrame(told.out[:0], doorpb.FrameType_FRAME_TYPE_DECISION, decision)
	if err != nil {
		return problem(door.CodeInternal, "what was decided after step %d cannot be told: %v", number, err)
	}
	if len(wire) > door.MaxDecisionBytes {
		return problem(door.CodeInternal, "what was decided after step %d has %d bytes, at most %d", number, len(wire), door.MaxDecisionBytes)
	}
	if told.out = wire; cap(wire) > keptFrameBytes {
		told.out = nil
	}
	if c.sendNow(wire) {
		s.decided.Add(1)
	} else {
		s.unread.Add(1)
	}
	return nil
}
