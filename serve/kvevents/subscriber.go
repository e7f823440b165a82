package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Options configures Open.
type Options struct {
	// Events is where the publisher listens, Replay where it can be asked for
	// what was missed; zero where it cannot.
	Events, Replay Endpoint
	// Apply takes in a batch; Reset forgets everything before what comes next,
	// and is told why. Both are called one at a time.
	Apply func(Batch)
	Reset func(why string)
	// Retry is how long to wait before the first new attempt, up to RetryMost for
	// later ones; 100 ms and 5 s where they are 0.
	Retry, RetryMost time.Duration
	// MessageBytes bounds a message, whose memory is kept for the next; 64 MiB where it is 0 or
	// more.
	MessageBytes int
	Logger       *slog.Logger
}

// Status is how a subscription stands.
type Status struct {
	Connected  bool
	Sequence   uint64 // the number of the last batch
	Batches    uint64
	Gaps       uint64 // numbers were missing
	Resets     uint64
	Replayed   uint64 // batches
	Reconnects uint64
	LastBatch  time.Time // when it came, here
	Problem    string    // why it is not connected
}

// Subscriber follows one publisher. It owns one goroutine, which Close waits
// for.
type Subscriber struct {
	options Options
	stop    context.CancelFunc
	done    chan struct{}
	order   order // of the goroutine

	mu     sync.Mutex // protects status
	status Status
}

// Open starts to follow a publisher, which need not be there yet.
func Open(o Options) (*Subscriber, error) {
	if o.Events.IsZero() || o.Apply == nil || o.Reset == nil {
		return nil, errors.New("kvevents: a subscriber needs an endpoint, and Apply and Reset, which take what comes")
	}
	if o.Retry <= 0 {
		o.Retry = 100 * time.Millisecond
	}
	if o.RetryMost <= 0 {
		o.RetryMost = 5 * time.Second
	}
	if o.MessageBytes = min(o.MessageBytes, maxMessageBytes); o.MessageBytes <= 0 {
		o.MessageBytes = maxMessageBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Subscriber{options: o, stop: stop, done: make(chan struct{})}
	go s.run(ctx)
	return s, nil
}

// Close ends the subscription and waits for it.
func (s *Subscriber) Close() {
	s.stop()
	<-s.done
}

// Status may be asked for at any time.
func (s *Subscriber) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Subscriber) note(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// run connects, and connects again.
func (s *Subscriber) run(ctx context.Context) {
	defer close(s.done)
	wait := s.options.Retry
	for ctx.Err() == nil {
		began := time.Now()
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		news := false
		s.note(func(st *Status) {
			news = st.Problem == ""
			st.Connected, st.Problem = false, err.Error()
			st.Reconnects++
		})
		if news {
			s.options.Logger.Info("an engine's cache events do not come", "endpoint", s.options.Events.String(), "error", err)
		}
		if time.Since(began) > s.options.RetryMost {
			wait = s.options.Retry // it held for a while
		}
		pause := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		wait = min(2*wait, s.options.RetryMost)
	}
}

// follow lives as long as a connection.
func (s *Subscriber) follow(ctx context.Context) error {
	c, err := s.dial(ctx, s.options.Events, subscriber)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.wire.subscribe(); err != nil {
		return err
	}
	// From here on nothing is missed: what is published while the past is asked
	// for waits in the connection.
	if err := s.lookBack(ctx); err != nil {
		return err
	}
	s.note(func(st *Status) { st.Connected, st.Problem = true, "" })
	s.options.Logger.Info("an engine's cache events come", "endpoint", s.options.Events.String())
	for {
		frames, err := c.wire.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("kvevents: the publisher closed the connection")
			}
			return err
		}
		sequence, payload, ok := numbered(frames)
		if !ok {
			return fmt.Errorf("%w: an event of %d frames", ErrProtocol, len(frames))
		}
		if err := s.live(ctx, sequence, payload); err != nil {
			return err
		}
	}
}

// live takes in a batch as it is published.
func (s *Subscriber) live(ctx context.Context, sequence uint64, payload []byte) error {
	v := s.order.judge(sequence)
	if v == gap {
		s.note(func(st *Status) { st.Gaps++ })
		kept := append([]byte(nil), payload...)
		if err := s.lookBack(ctx); err != nil {
			return err
		}
		payload, v = kept, s.order.judge(sequence)
	}
	switch v {
	case seenBefore:
		return nil
	case gap: // a replay that does not reach to here
		s.reset("batches are missing, and cannot be had again")
	}
	s.apply(sequence, payload)
	return nil
}

// lookBack brings the state up to what the publisher remembers.
func (s *Subscriber) lookBack(ctx context.Context) error {
	if s.options.Replay.IsZero() {
		if s.order.known {
			s.reset("what was published in between cannot be had: there is no replay endpoint")
		}
		return nil
	}
	if s.order.known {
		same, err := s.goOn(ctx)
		if same || err != nil {
			return err
		}
		s.reset("the publisher is another one, or has forgotten too much")
	}
	return s.replay(ctx, 0, s.replayed)
}

var errStranger = errors.New("kvevents: a replay does not continue what is known")

// goOn replays what came after the last batch that is known. It is false where
// that batch is not the publisher's any more.
func (s *Subscriber) goOn(ctx context.Context) (same bool, err error) {
	first := true
	err = s.replay(ctx, s.order.since(), func(sequence uint64, payload []byte) error {
		if !first {
			return s.replayed(sequence, payload)
		}
		first = false
		if !s.order.continues(sequence, payload) {
			return errStranger
		}
		return nil
	})
	if errors.Is(err, errStranger) {
		return false, nil
	}
	return !first, err // a replay of nothing has not even the last one
}

func (s *Subscriber) replayed(sequence uint64, payload []byte) error {
	s.note(func(st *Status) { st.Replayed++ })
	s.apply(sequence, payload)
	return nil
}

func (s *Subscriber) apply(sequence uint64, payload []byte) {
	s.order.took(sequence, payload)
	batch, err := DecodeBatch(payload)
	s.note(func(st *Status) {
		st.Sequence, st.LastBatch = sequence, time.Now()
		st.Batches++
	})
	if err != nil {
		s.options.Logger.Warn("an engine's cache events cannot be read", "endpoint", s.options.Events.String(), "error", err)
		s.forget(err.Error())
		return
	}
	s.options.Apply(batch)
}

// reset begins anew, with whatever number comes.
func (s *Subscriber) reset(why string) {
	s.order = order{}
	s.forget(why)
}

func (s *Subscriber) forget(why string) {
	s.note(func(st *Status) { st.Resets++ })
	s.options.Reset(why)
}

// connection is one that ends with its context.
type connection struct {
	socket net.Conn
	wire   *wire
	unhook func() bool
}

const handshakeTimeout = 5 * time.Second

// dialer notices within half a minute that the other host is gone, without a
// word of the protocol.
var dialer = net.Dialer{
	Timeout:         handshakeTimeout,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4},
}

func (s *Subscriber) dial(ctx context.Context, to Endpoint, as socketType) (*connection, error) {
	socket, err := dialer.DialContext(ctx, to.network, to.address)
	if err != nil {
		return nil, err
	}
	c := &connection{socket: socket, wire: newWire(socket)}
	c.wire.most = s.options.MessageBytes
	c.unhook = context.AfterFunc(ctx, func() { _ = socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(handshakeTimeout)) // without one, the context still ends it
	if err := c.wire.shake(as); err != nil {
		c.close()
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	_ = socket.SetDeadline(time.Time{})
	return c, nil
}

func (c *connection) close() {
	c.unhook()
	_ = c.socket.Close()
}
