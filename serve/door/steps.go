package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door/doorpb"
)

// StepsOptions configures OpenSteps.
type StepsOptions struct {
	// Socket is the agent's door, and Engine the engine's id.
	Socket, Engine string
	// About is what the engine is and can do.
	About *doorpb.Steps
	// AgentMayBeAway has OpenSteps return also where no agent answers: the engine is
	// governed when there is one. What an agent refuses is an error all the same.
	AgentMayBeAway bool
	// Software is what the engine is, for the agent's log; default "meridian".
	Software string
	Logger   *slog.Logger
}

func (o StepsOptions) withDefaults() (StepsOptions, error) {
	if o.Socket == "" || o.Engine == "" {
		return o, errors.New("door: StepsOptions needs a Socket and an Engine")
	}
	about := &doorpb.Steps{}
	if o.About != nil {
		about = proto.Clone(o.About).(*doorpb.Steps)
	}
	o.About = about
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Software = cmp.Or(o.Software, "meridian")
	return o, nil
}

// Steps tells an agent of an engine's steps, and hears what is decided. An agent that is
// lost is dialled again; meanwhile the engine goes on alone.
//
//	each step:  if Renewed() { everything alive is told as Begun }
//	            Send(what happened) ── false: no agent is there, go on alone
//	            Take(how long to wait) ── what has come; apply it, plan the next
//
// Its methods may be called from several goroutines; Send and Take are each for one at a
// time, and others wait.
type Steps struct {
	options StepsOptions
	life    context.Context
	stop    context.CancelFunc
	done    chan struct{} // closed when nothing runs any more

	sending sync.Mutex // held around one Step
	out     []byte     // under sending: the last one's frame
	taking  sync.Mutex // held around Take

	mu     sync.Mutex // protects the rest; taken last
	link   *stepsLink // nil while there is none
	terms  *doorpb.GovernorTerms
	broken chan struct{} // closed when the link is lost, and made anew with the next
}

// OpenSteps dials the agent, and keeps a connection for steps until Close.
func OpenSteps(ctx context.Context, o StepsOptions) (*Steps, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Steps{options: o, done: make(chan struct{}), broken: make(chan struct{})}
	s.life, s.stop = context.WithCancel(context.Background())
	err = s.connect(ctx)
	if err != nil && (!o.AgentMayBeAway || !isAway(err) || ctx.Err() != nil) {
		s.stop()
		return nil, err
	}
	if err != nil {
		o.Logger.Warn("the agent is away; the engine is governed when it is there", "engine", o.Engine, "error", err)
		close(s.broken)
	}
	go s.keep()
	return s, nil
}

// connect makes a connection. After an error nothing of it is left.
func (s *Steps) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	fail := func(err error) error {
		return fmt.Errorf("door: a connection for steps of engine %s at %s: %w", s.options.Engine, s.options.Socket, err)
	}
	l, err := dial(ctx, s.options.Socket)
	if err != nil {
		return fail(err)
	}
	welcome, err := l.greet(ctx, &doorpb.Hello{
		Engine: s.options.Engine, Software: s.options.Software, As: &doorpb.Hello_Steps{Steps: s.options.About},
	})
	if err == nil && !slices.Contains(l.features, FeatureSteps) {
		err = &Problem{Code: CodeUnsupported, Message: "the agent governs no engines"}
	}
	var made *stepsLink
	if err == nil {
		made, err = newStepsLink(l.conn, welcome)
	}
	if err != nil {
		return errors.Join(fail(err), l.conn.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.broken = made, make(chan struct{})
	s.terms = cmp.Or(welcome.GetGovernor(), &doorpb.GovernorTerms{})
	return nil
}

// keep dials again whenever the agent was lost, until Close.
func (s *Steps) keep() {
	defer close(s.done)
	for s.life.Err() == nil {
		s.mu.Lock()
		broken := s.broken
		s.mu.Unlock()
		select {
		case <-broken:
			s.connectAgain()
		case <-s.life.Done():
		}
	}
	if l := s.current(); l != nil {
		s.drop(l, ErrClosed)
	}
}

// connectAgain tries until it succeeds, or until Close.
func (s *Steps) connectAgain() {
	told := ""
	for pause := firstBackoff; ; pause = min(2*pause, lastBackoff) {
		select {
		case <-time.After(pause/2 + rand.N(pause)): // so that engines do not all come at once
		case <-s.life.Done():
			return
		}
		err := s.connect(s.life)
		if err == nil {
			s.options.Logger.Info("the engine is governed", "engine", s.options.Engine, "socket", s.options.Socket)
			return
		}
		if told != err.Error() && s.life.Err() == nil { // an agent that stays away is told of once
			told = err.Error()
			s.options.Logger.Warn("the engine is not governed; trying again", "engine", s.options.Engine, "error", err)
		}
	}
}

func (s *Steps) current() *stepsLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// drop ends a connection, once.
func (s *Steps) drop(l *stepsLink, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return
	}
	s.link = nil
	close(s.broken)
	_ = l.conn.Close()
	s.options.Logger.Debug("a connection for steps has ended", "engine", s.options.Engine, "error", why)
}

// Terms is what the agent asks of the engine, as the last connection has it; nil where
// there was none yet. It is not to be changed.
func (s *Steps) Terms() *doorpb.GovernorTerms {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

// Connected reports whether an agent is there now.
func (s *Steps) Connected() bool { return s.current() != nil }

// Renewed reports, once for each connection, that it is a new one: the agent knows nothing
// of this engine, and the next Step tells of everything alive as Begun. Until it was called
// nothing is sent on a connection, so that none is missed.
func (s *Steps) Renewed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.known {
		return false
	}
	s.link.known = true
	return true
}

// sendMoment bounds Send: an agent that hangs has all that the socket holds unread before
// it is noticed.
const sendMoment = 50 * time.Millisecond

// Send tells of a step. It does not wait, but a moment for an agent that hangs. False
// means that it was not told: the agent is away, or the connection is one that Renewed has
// not told of yet.
func (s *Steps) Send(m *doorpb.Step) bool {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	l := s.link
	ready := l != nil && l.known
	s.mu.Unlock()
	if !ready {
		return false
	}
	wire, err := AppendFrame(s.out[:0], doorpb.FrameType_FRAME_TYPE_STEP, m)
	if err == nil && len(wire)-4 > l.maxBytes {
		err = fmt.Errorf("%w: a Step of %d bytes, at most %d: tell of it in several", ErrFrame, len(wire)-4, l.maxBytes)
	}
	if err != nil {
		// The agent would know less than it must.
		s.options.Logger.Warn("a step cannot be told", "engine", s.options.Engine, "error", err)
		s.drop(l, err)
		return false
	}
	s.out = wire
	l.sent.Store(m.GetNumber())
	_ = l.conn.Socket().SetWriteDeadline(time.Now().Add(sendMoment))
	if err := l.conn.Write(wire, nil); err != nil {
		s.drop(l, err)
		return false
	}
	return true
}

// Take returns what was decided and has come, in order, and waits at most so long for the
// Decision of the last Step that was sent; 0: what is there. On a connection that measures
// nothing comes.
func (s *Steps) Take(wait time.Duration) []*doorpb.Decision {
	s.taking.Lock()
	defer s.taking.Unlock()
	l := s.current()
	if l == nil {
		return nil
	}
	if s.options.About.GetMeasures() {
		wait = 0
	}
	come, err := l.take(wait)
	if err != nil {
		var p *Problem
		if errors.As(err, &p) {
			s.options.Logger.Warn("the agent does not govern the engine any more", "engine", s.options.Engine, "error", err)
		}
		s.drop(l, err)
	}
	return come
}

// Close ends the connection. What waits in Take returns.
func (s *Steps) Close() {
	s.stop()
	if l := s.current(); l != nil {
		s.drop(l, ErrClosed)
	}
	<-s.done
}
