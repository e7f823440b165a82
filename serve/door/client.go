package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/mem"
)

// Options configures Open.
type Options struct {
	// Socket is the agent's door.
	Socket string
	// Engine is the engine's id, unique in the cell.
	Engine string
	// URL is where users' requests reach the engine, Role what they may be
	// (prefill, decode or both), Model the name in them.
	URL, Role, Model string
	// Publish is how the engine's cache is cut and kept.
	Publish Publication
	// Memory is each rank's, numbered as kv.Parallelism counts: memfds (arenas),
	// or borrowed memory of this process. Ranks that are nil or missing are
	// opened by other processes. The sections stay the caller's, who closes
	// them after the client.
	Memory []*mem.Section
	// RanksOnly says that the engine's scheduler is another process: this client
	// lends memory, hears events, and neither offers nor accepts.
	RanksOnly bool
	// AgentMayBeAway has Open return also where no agent answers: the engine is
	// registered when there is one. What an agent refuses is an error all the
	// same.
	AgentMayBeAway bool
	// Software is what the engine is, for the agent's log; default "meridian".
	Software string
	Logger   *slog.Logger
	// Events is told what happens, one at a time, in order. It must not block,
	// and not call the client's methods that wait.
	Events func(Event)
}

func (o Options) withDefaults() (Options, error) {
	ranks := o.Publish.Parallelism.Ranks()
	switch {
	case o.Socket == "" || o.Engine == "":
		return o, errors.New("door: Options needs a Socket and an Engine")
	case len(o.Memory) > ranks:
		return o, fmt.Errorf("door: memory of %d ranks, %v has %d", len(o.Memory), o.Publish.Parallelism, ranks)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	o.Software = cmp.Or(o.Software, "meridian")
	return o, nil
}

const (
	// handshakeTimeout is longer than an agent may take to fence an engine of
	// the same id that has just died.
	handshakeTimeout = 20 * time.Second
	// answerTimeout bounds how long a request waits for an agent that is there.
	answerTimeout = 10 * time.Second
	writeTimeout  = 5 * time.Second
	// farewell is how long an agent that refused may take to hang up.
	farewell     = 5 * time.Second
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// Client keeps an engine registered. Its methods may be called from several
// goroutines.
type Client struct {
	options Options
	life    context.Context
	stop    context.CancelFunc
	done    chan struct{} // closed when nothing runs any more

	mu      sync.Mutex // protects the rest
	session *session   // nil while there is none
	serving bool
	left    bool             // nothing more is asked in the session that is ending
	running map[handOff]bool // what blocks are out for
}

// handOff is one side of a hand-off that this engine takes part in.
type handOff struct {
	transfer [16]byte
	accepted bool
}

// Open dials the agent and registers the engine. It returns when the agent has
// answered, or is found to be away and may be; if every rank's memory was given,
// the engine serves then. From then on the client keeps the engine registered,
// until Close.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{options: o, done: make(chan struct{}), running: make(map[handOff]bool)}
	c.life, c.stop = context.WithCancel(context.Background())
	s, err := c.register(ctx)
	if err != nil && (!o.AgentMayBeAway || !isAway(err) || ctx.Err() != nil) {
		c.stop()
		return nil, err
	}
	if err != nil {
		o.Logger.Warn("the agent is away; the engine registers when it is there", "engine", o.Engine, "error", err)
	}
	go c.keep(s)
	return c, nil
}

// isAway tells an agent that does not answer from one that refuses.
func isAway(err error) bool {
	return slices.ContainsFunc([]error{
		fs.ErrNotExist, unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF, ErrLost, ErrNoAnswer, os.ErrDeadlineExceeded, context.DeadlineExceeded,
	}, func(away error) bool { return errors.Is(err, away) })
}

// Serving reports whether the engine is registered and complete now.
func (c *Client) Serving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving
}

// Has reports whether the agent that the engine is registered with has a feature.
func (c *Client) Has(feature string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil && slices.Contains(c.session.links[0].features, feature)
}

// Close takes the engine away and returns when its memory is its own again. After
// an error it may be called again.
func (c *Client) Close(ctx context.Context) error {
	c.stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("door: closing: the agent has not let go of the memory yet: %w", ctx.Err())
	}
}

// keep registers again whenever the agent was lost, until the client is closed.
// Where s is nil, it was away from the beginning.
func (c *Client) keep(s *session) {
	defer close(c.done)
	if s == nil {
		s = c.registerAgain()
	}
	for s != nil {
		select {
		case <-s.broken:
		case <-c.life.Done():
		}
		c.leave()
		s.finish()
		c.lost()
		s = c.registerAgain()
	}
}

// leave asks nothing more in a session that is to end. An agent that hangs does
// not end it: what it was asked before stays out, and nothing is added to it.
func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.serving, c.left = nil, false, true
}

// lost tells everything that the end of a session means. The readers of its
// connections, which tell all else, have ended by then.
func (c *Client) lost() {
	c.mu.Lock()
	c.session, c.serving = nil, false
	running := c.running
	c.running = make(map[handOff]bool)
	c.mu.Unlock()
	gone := &Problem{Code: CodeGone, Message: "the connection to the agent has ended"}
	for h := range running {
		if h.accepted {
			c.options.Events(Event{Kind: Failed, Transfer: h.transfer, Accepted: true, Problem: gone})
		}
		c.options.Events(Event{Kind: Freed, Transfer: h.transfer, Accepted: h.accepted, Problem: gone})
	}
	c.options.Events(Event{Kind: Fenced, Problem: gone})
}

// registerAgain tries until it succeeds; nil means that the client is closed.
func (c *Client) registerAgain() *session {
	told := ""
	for pause := firstBackoff; ; pause = min(2*pause, lastBackoff) {
		wait := pause/2 + rand.N(pause) // so that engines do not all come at once
		select {
		case <-time.After(wait):
		case <-c.life.Done():
			return nil
		}
		s, err := c.register(c.life)
		if err == nil {
			c.options.Logger.Info("the engine is registered", "engine", c.options.Engine, "socket", c.options.Socket)
			return s
		}
		if told != err.Error() { // an agent that stays away is told of once
			told = err.Error()
			c.options.Logger.Warn("the engine is not registered; trying again", "engine", c.options.Engine, "error", err)
		}
	}
}

// tell hears of an event from the agent.
func (c *Client) tell(e Event) {
	c.mu.Lock()
	switch e.Kind {
	case Serving:
		c.serving = !c.left
	case Ready, Freed:
		delete(c.running, handOff{e.Transfer, e.Accepted})
	case Fenced:
		// The end of the connection follows, and tells of it once.
		c.serving = false
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.options.Events(e)
}

// begin notes that blocks are out, before the agent may say that they are not,
// and tells whether they were not before.
func (c *Client) begin(h handOff) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = !c.running[h]
	c.running[h] = true
	return first
}

func (c *Client) end(h handOff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, h)
}

// current is the session to ask in.
func (c *Client) current(mustServe bool) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.Err() != nil:
		return nil, ErrClosed
	case c.options.RanksOnly:
		return nil, errors.New("door: this client has ranks only; the engine's scheduler asks")
	case c.session == nil || mustServe && !c.serving:
		return nil, ErrNotServing
	}
	return c.session, nil
}
