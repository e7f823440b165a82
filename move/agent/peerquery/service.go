package peerquery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// Source is what an agent remembers. Answer may be called by several goroutines; what
// it returns is within the bounds of an answer, see Page.
type Source interface {
	Answer(ctx context.Context, q Question) (Answer, error)
}

// Options configures Open.
type Options struct {
	// Agent carries the messages. The desk listens for them until it is closed.
	Agent *agent.Agent
	// Book is what others are told from; nil tells nothing.
	Book Source
	// Directory names who can be asked; nil: Members fails.
	Directory directory.Directory
	// Find looks an agent up; default Agent.Find.
	Find   func(ctx context.Context, name string) (*agent.Peer, error)
	Logger *slog.Logger
}

// Service asks, and answers who asks. Its methods may be called from several goroutines.
type Service struct {
	options Options
	peers   *agent.Peers
	calls   *agent.Calls[Answer]
	turns   turns
	looking chan struct{} // a place for each question whose answer is looked for
	life    context.Context
	stop    context.CancelFunc
	wait    sync.WaitGroup

	unanswered atomic.Uint64
}

const (
	// lookers bounds what questions of others cost this process at a time.
	lookers = 4
	// lookTimeout is how long an answer may be looked for.
	lookTimeout = 2 * time.Second
	// replyTimeout is how long an answer may take to be delivered.
	replyTimeout = 2 * time.Second
)

// Open starts to listen.
func Open(_ context.Context, o Options) (*Service, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &Service{
		options: o, peers: agent.NewPeers(o.Agent, agent.PeersOptions{Find: o.Find}),
		calls: agent.NewCalls[Answer](nil), turns: turns{of: make(map[string][]queuedQuestion)}, looking: make(chan struct{}, lookers),
	}
	d.life, d.stop = context.WithCancel(context.Background())
	inbox, err := o.Agent.Listen(Magic, agent.InboxLimits{})
	if err != nil {
		return nil, err
	}
	d.wait.Go(func() {
		for n := range inbox {
			d.receive(n)
		}
	})
	return d, nil
}

func (d *Service) receive(n fabric.Notification) {
	number, question, answer, err := parse(n.Payload)
	from := kv.Member{Name: n.From, Incarnation: n.Incarnation}
	switch {
	case err != nil:
		d.options.Agent.Unreadable(n, err)
	case question != nil:
		q := queuedQuestion{from, number, *question}
		first, taken := d.turns.add(q)
		if !taken {
			d.unanswered.Add(1)
		}
		if first {
			d.wait.Go(func() { d.replyAll(q) })
		}
	default:
		d.calls.Answered(from, number, *answer)
	}
}

// replyAll answers a peer's questions until none waits.
func (d *Service) replyAll(q queuedQuestion) {
	for is := true; is; q, is = d.turns.next(q.by.Name) {
		if answer, looked := d.look(q.question); looked {
			d.deliver(q, answer)
		}
	}
}

// look finds an answer, when there is a place; not looked: this service ends.
func (d *Service) look(q Question) (answer Answer, looked bool) {
	if d.options.Book == nil {
		return Answer{Problem: "this agent keeps no records"}, true
	}
	select {
	case d.looking <- struct{}{}:
		defer func() { <-d.looking }()
	case <-d.life.Done():
		return answer, false
	}
	ctx, cancel := context.WithTimeout(d.life, lookTimeout)
	defer cancel()
	answer, err := d.options.Book.Answer(ctx, q)
	if err != nil {
		return Answer{Problem: err.Error()}, true
	}
	return answer, true
}

func (d *Service) deliver(q queuedQuestion, answer Answer) {
	ctx, cancel := context.WithTimeout(d.life, replyTimeout)
	defer cancel()
	if err := d.peers.Tell(ctx, q.by, appendAnswer(q.number, answer)); err != nil && d.life.Err() == nil {
		d.options.Logger.Debug("an answer about records was not delivered", "peer", q.by.Name, "error", err)
	}
}

// ErrRefused means that an agent answered that it has no answer.
var ErrRefused = errors.New("peerquery: refused")

// Ask asks one agent, and waits for a page until ctx ends.
func (d *Service) Ask(ctx context.Context, to kv.Member, q Question) (Answer, error) {
	q.Most = cmp.Or(q.Most, MaxRecords)
	if q.Most < 0 || q.Most > MaxRecords || len(q.Beginning) > maxBeginning {
		return Answer{}, fmt.Errorf("peerquery: %d records that begin with %d bytes; at most %d and %d", q.Most, len(q.Beginning), MaxRecords, maxBeginning)
	}
	if to.Name == d.options.Agent.Name() {
		return d.askSelf(ctx, q)
	}
	number, answer, end := d.calls.Begin(to)
	defer end()
	if err := d.peers.Tell(ctx, to, appendQuestion(number, q)); err != nil {
		return Answer{}, err
	}
	select {
	case a := <-answer:
		if a.Problem != "" {
			return Answer{}, fmt.Errorf("%w by %s: %s", ErrRefused, to.Name, a.Problem)
		}
		return a, nil
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("peerquery: %s does not answer: %w", to.Name, ctx.Err())
	case <-d.life.Done():
		return Answer{}, fabric.ErrClosed
	}
}

func (d *Service) askSelf(ctx context.Context, q Question) (Answer, error) {
	if d.options.Book == nil {
		return Answer{}, fmt.Errorf("%w: this agent keeps no records", ErrRefused)
	}
	a, err := d.options.Book.Answer(ctx, q)
	for i := range a.Records {
		a.Records[i] = bytes.Clone(a.Records[i])
	}
	return a, err
}

// Close stops listening and waits for what is being answered. It comes before the
// agent's own Close.
func (d *Service) Close(ctx context.Context) error {
	d.stop()
	d.options.Agent.Unlisten(Magic)
	return join.Within(ctx, "peerquery: closing", d.wait.Wait)
}
