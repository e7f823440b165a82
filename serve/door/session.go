package door

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door/doorpb"
)

// session is one registration: the connections that make it, and what was asked
// and not answered on the first of them. It ends as a whole.
type session struct {
	client  *Client
	links   []*link
	readers sync.WaitGroup
	broken  chan struct{} // closed when one connection has ended
	breaks  sync.Once

	mu      sync.Mutex // protects the rest
	next    uint64
	pending map[uint64]*question
}

// question waits for its reply.
type question struct {
	on       *link
	answered chan struct{}
	reply    *doorpb.Reply             // nil: the connection ended first
	begun    func(reply *doorpb.Reply) // of a reply without problem, before anything that follows it
}

func newSession(c *Client) *session {
	return &session{client: c, broken: make(chan struct{}), pending: make(map[uint64]*question)}
}

// add takes a connection into the session and reads it from now on.
func (s *session) add(l *link) {
	first := len(s.links) == 0
	s.links = append(s.links, l)
	s.readers.Add(1)
	go func() {
		defer s.readers.Done()
		defer s.fail()
		s.read(l, first)
		s.hangUp(l)
	}()
}

// fail lets the session end.
func (s *session) fail() { s.breaks.Do(func() { close(s.broken) }) }

// finish ends the session and returns when every connection has: then the memory
// is quiet.
func (s *session) finish() {
	s.fail()
	for _, l := range s.links {
		_ = l.conn.Socket().CloseWrite() // it may have ended already
	}
	s.readers.Wait()
	for _, l := range s.links {
		_ = l.conn.Close()
	}
}

// hangUp ends what was asked on a connection that has ended: the agent has let go
// of everything.
func (s *session) hangUp(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.ended = true
	for request, q := range s.pending {
		if q.on == l {
			delete(s.pending, request)
			close(q.answered)
		}
	}
}

// abandon stops to wait for the agent.
func (s *session) abandon() {
	for _, l := range s.links {
		_ = l.conn.Socket().SetReadDeadline(time.Unix(1, 0))
	}
}

// read takes what comes until the connection ends. Events of other connections
// than the first are of the same things.
func (s *session) read(l *link, first bool) {
	for {
		f, err := l.conn.Read(MaxFrameBytes)
		if err != nil {
			s.client.options.Logger.Debug("a connection to the agent has ended", "engine", s.client.options.Engine, "error", err)
			return
		}
		f.Close() // agents lend nothing yet
		if err := s.take(&f, first); err != nil {
			s.client.options.Logger.Warn("the agent says what cannot be read", "engine", s.client.options.Engine, "error", err)
			s.fail()
		}
	}
}

func (s *session) take(f *Frame, first bool) error {
	switch f.Type {
	case doorpb.FrameType_FRAME_TYPE_REPLY:
		var m doorpb.Reply
		if err := f.Unmarshal(&m); err != nil {
			return err
		}
		s.answer(&m)
	case doorpb.FrameType_FRAME_TYPE_EVENT:
		var m doorpb.Event
		if err := f.Unmarshal(&m); err != nil || !first {
			return err
		}
		return s.happened(&m)
	default:
		if _, known := doorpb.FrameType_name[int32(f.Type)]; known {
			return fmt.Errorf("%w: an agent sends no %v", ErrFrame, f.Type)
		}
		// A newer agent's, for newer engines.
		s.client.options.Logger.Debug("the agent sends what this build does not know", "engine", s.client.options.Engine, "type", f.Type.String())
	}
	return nil
}

func (s *session) answer(m *doorpb.Reply) {
	s.mu.Lock()
	q := s.pending[m.GetRequest()]
	delete(s.pending, m.GetRequest())
	s.mu.Unlock()
	if q == nil { // it is about the connection itself, which ends then
		s.client.options.Logger.Warn("the agent refuses the connection", "engine", s.client.options.Engine, "error", problemOf(m.GetProblem()))
		return
	}
	q.reply = m
	if q.begun != nil && m.GetProblem() == nil {
		q.begun(m)
	}
	close(q.answered)
}

func (s *session) happened(m *doorpb.Event) error {
	n := len(m.GetKinds())
	if len(m.GetTransfers()) != 16*n || len(m.GetAccepted()) != n || len(m.GetProblems()) != n {
		return fmt.Errorf("%w: columns of an event have different lengths", ErrFrame)
	}
	for i, kind := range m.GetKinds() {
		if kind < doorpb.EventKind(Serving) || kind > doorpb.EventKind(Fenced) {
			continue // of a newer agent
		}
		s.client.tell(Event{
			Kind: EventKind(kind), Transfer: [16]byte(m.GetTransfers()[16*i:]), Accepted: m.GetAccepted()[i], Problem: problemOf(m.GetProblems()[i]),
		})
	}
	return nil
}

// ask asks on the first connection.
func (s *session) ask(ctx context.Context, kind doorpb.FrameType, message func(request uint64) proto.Message, begun func(*doorpb.Reply)) (*doorpb.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q := &question{on: s.links[0], answered: make(chan struct{}), begun: begun}
	return s.askOn(q, func(request uint64) error { return s.links[0].send(kind, message(request), nil) })
}

// askOn sends a request and waits for its reply. What has been sent is waited for
// also when the caller's context ends: an agent that is there answers at once,
// and what it began would else have no owner.
func (s *session) askOn(q *question, send func(request uint64) error) (*doorpb.Reply, error) {
	s.mu.Lock()
	if q.on.ended {
		s.mu.Unlock()
		return nil, ErrLost
	}
	s.next++
	request := s.next
	s.pending[request] = q
	s.mu.Unlock()
	if err := send(request); err != nil {
		s.fail() // the reply does not come; the end of the session does
	}
	patience := time.NewTimer(answerTimeout)
	defer patience.Stop()
	select {
	case <-q.answered:
	case <-patience.C:
		s.fail()
		return nil, ErrNoAnswer
	}
	if q.reply == nil {
		return nil, ErrLost
	}
	if p := problemOf(q.reply.GetProblem()); p != nil {
		return nil, p
	}
	return q.reply, nil
}

// say sends what is not answered.
func (s *session) say(kind doorpb.FrameType, m proto.Message) {
	if s.links[0].send(kind, m, nil) != nil {
		s.fail()
	}
}
