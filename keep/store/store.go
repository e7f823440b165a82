// Package store is the object cache of a cell: keys with values that never change,
// kept in the memory of owners. It is the shell around the machines of package
// protocol: it brings them messages and time, and does what they answer with an
// agent and the directory.
//
//	Put, Get … ─► Operation ─┐                        ┌─ arena: copies, sums
//	                         ├─ one lock ─ effects ───┼─ agent: messages, grants, writes
//	other agents ════════════┤  Server                └─ directory: marks
//	election, clock ─────────┘  Coordinator
//
// An event is taken by the machines under one lock, on the goroutine that brought
// it. What they ask for is done outside of it: what is short on that goroutine,
// the rest on goroutines that Close waits for.
//
// In the directory:
//
//	store/owners/NAME   an owner, under its lease
//	store/roster/NAME   the same until it leaves: whom a new master must hear
//	store/ranks         the number of each owner's name
//	store/away/NAME     an owner that a master gave up (package master)
//	store/master/…      who is the master (package election)
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"meridian/internal/join"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/directory/election"
	"meridian/move/agent"
)

// Options configures Open.
type Options struct {
	// Agent moves bytes and carries messages. The store listens for those of the
	// object cache until it is closed.
	Agent *agent.Agent
	// Directory is where owners and masters are found.
	Directory directory.Directory
	// Find looks an agent up; default Agent.Find.
	Find func(ctx context.Context, name string) (*agent.Peer, error)
	// Owner is what is kept here; nil keeps nothing.
	Owner *OwnerOptions
	// Candidate says that this process may become the master.
	Candidate bool
	// Tenant is whose keys are meant where a call names no other.
	Tenant string
	// Timeout is the deadline of a call whose context has none; default 5 s.
	Timeout time.Duration
	// MasterTTL is how long a master that fell silent is in the way; default
	// directory.DefaultTTL. Lease is the longest that an owner may answer without a word
	// from it; default 3 s.
	MasterTTL, Lease time.Duration
	// Landing is the memory through which large values come and go that are not in
	// a Buffer; default 64 MiB.
	Landing uint64
	// MaxOperations bounds what this client asks at a time; more wait; default 256.
	MaxOperations int
	// Clock is the one of Directory; default directory.WallClock.
	Clock  directory.Clock
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Agent == nil || o.Directory == nil:
		return o, errors.New("store: Options needs an Agent and a Directory")
	case o.Timeout < 0 || o.MasterTTL < 0 || o.Lease < 0 || o.MaxOperations < 0:
		return o, errors.New("store: a span or a bound in Options is negative")
	case o.Lease > duration(protocol.MaxLease):
		return o, fmt.Errorf("store: leases of %v: owners believe in none above %v", o.Lease, duration(protocol.MaxLease))
	}
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Lease = cmp.Or(o.Lease, 3*time.Second)
	o.Landing = max(cmp.Or(o.Landing, 64<<20), 1<<20)
	o.MaxOperations = cmp.Or(o.MaxOperations, 256)
	o.Clock = cmp.Or[directory.Clock](o.Clock, directory.WallClock{})
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Owner != nil {
		own, err := o.Owner.withDefaults()
		if err != nil {
			return o, err
		}
		o.Owner = &own
	}
	return o, nil
}

// Store is an open store: a client, and where Options say so an owner and a
// candidate. Its methods may be called from several goroutines.
type Store struct {
	options  Options
	self     kv.Member
	start    time.Time
	peers    *agent.Peers
	calls    *calls
	reach    *suspects
	outbox   *outbox
	landing  *stagingBuffer
	owned    *localOwner // nil: nothing is kept here
	cold     *cold       // nil: it has no tiers
	election *election.Election
	view     *view
	ranked   ranked
	counters counters
	places   chan struct{}  // a place for each operation
	running  sync.WaitGroup // operations of callers
	wait     sync.WaitGroup // everything else that runs here
	// ctx is that of what runs here; ending, of what callers wait for, ends before it.
	ctx, ending context.Context
	cancel, end context.CancelFunc
	number      atomic.Uint64

	closing sync.Mutex // held by Close; protects stage
	stage   int        // of Close: how far it came

	mu      sync.Mutex    // protects the rest
	closed  bool          // nothing new begins
	ahead   time.Duration // of the wall clock before the monotonic one, since start
	server  *protocol.Server
	led     *masterTerm // nil: this process is not the master
	buffers map[*Buffer]struct{}
}

// Open joins the cell. It waits for the directory's first answer.
func Open(ctx context.Context, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: o, self: kv.Member{Name: o.Agent.Name(), Incarnation: o.Agent.Incarnation()},
		calls: newCalls(), reach: newSuspects(), outbox: newOutbox(), places: make(chan struct{}, o.MaxOperations), buffers: make(map[*Buffer]struct{}),
	}
	s.start = o.Clock.Now().Add(-time.Second) // the first instant is not zero
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(s.ctx)
	s.peers = agent.NewPeers(o.Agent, agent.PeersOptions{Find: o.Find, Gone: s.gone, MaxInFlight: maxInFlight})
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// maxInFlight bounds the messages on their way to one agent.
const maxInFlight = 4096

func (s *Store) begin(ctx context.Context) (err error) {
	if err := s.options.Agent.Handle(protocol.Magic, s.onNotification); err != nil {
		s.stage = stageListened // another listens: there is nothing to stop
		return err
	}
	if s.landing, err = newStagingBuffer(s.options.Agent, s.options.Landing); err != nil {
		return err
	}
	if s.view, err = openView(ctx, s); err != nil {
		return err
	}
	if s.options.Owner != nil {
		if s.owned, err = openLocalOwner(ctx, s); err != nil {
			return err
		}
		if err = s.view.await(ctx, func() bool { return s.view.has(s.self) }); err != nil {
			return err
		}
		s.mu.Lock()
		s.cold = openCold(s, s.options.Owner.Tiers)
		s.server = s.owned.newServer(s.self)
		s.mu.Unlock()
	}
	candidate := kv.Member{}
	if s.options.Candidate {
		candidate = s.self
	}
	s.election, err = election.Open(ctx, election.Options{
		Directory: s.options.Directory, Key: masterKey, Self: candidate, TTL: s.options.MasterTTL, Clock: s.options.Clock, Logger: s.options.Logger,
	})
	if err != nil {
		return err
	}
	s.wait.Go(s.followElection)
	s.wait.Go(s.keepTime)
	return nil
}

// now is the machines' clock.
func (s *Store) now() kv.Instant {
	return kv.Instant(s.options.Clock.Now().Sub(s.start) / time.Microsecond)
}

// noticeSleep tells the owner that its machine was suspended. Its clock does not count
// that, the master's does: the wall clock is ahead by more than before. mu is held.
func (s *Store) noticeSleep() {
	now := s.options.Clock.Now()
	ahead := now.Round(0).Sub(s.start.Round(0)) - now.Sub(s.start)
	if ahead > s.ahead+sleepNoticed && s.server != nil {
		s.server.Slept()
	}
	if ahead > s.ahead+sleepNoticed || ahead < s.ahead {
		s.ahead = ahead
	}
}

// sleepNoticed is more than clocks drift apart between two looks, and less than a
// lease.
const sleepNoticed = 100 * time.Millisecond

func duration(span kv.Instant) time.Duration {
	return time.Duration(min(span, 24*3600*kv.Second)) * time.Microsecond
}

// pause waits, and reports whether ctx still lives.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	passed := make(chan struct{})
	stop := s.options.Clock.AfterFunc(d, func() { close(passed) })
	defer stop()
	select {
	case <-passed:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

const (
	tickPause = 50 * time.Millisecond
	scanTicks = 20 // of them between two scans
)

// keepTime lets time pass for the machines, and probes peers that owe answers.
func (s *Store) keepTime() {
	for n := 1; s.pause(s.ctx, tickPause); n++ {
		s.step(func(now, authority kv.Instant) []protocol.Effect {
			var effects []protocol.Effect
			switch {
			case s.server != nil && n%scanTicks == 0:
				effects = s.server.Scan(now)
			case s.server != nil:
				effects = s.server.Tick(now)
			}
			if s.led != nil {
				effects = append(effects, s.led.Tick(now, authority)...)
			}
			return effects
		})
		s.probe()
	}
}

// Stages of Close.
const (
	stageOpen = iota
	stageListened
	stageDone
)

// Close ends what callers wait for, withdraws this process as master and as owner,
// and returns when nothing of it runs and no peer can touch its memory. What an
// owner keeps is gone then. It comes before the agent's own Close. After an error
// it may be called again.
func (s *Store) Close(ctx context.Context) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.stage == stageDone {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.close()
	s.end()
	if err := join.Within(ctx, "store: closing", s.running.Wait); err != nil {
		return err
	}
	if s.election != nil {
		if err := s.election.Close(ctx); err != nil {
			return err
		}
	}
	if s.owned != nil {
		s.owned.withdraw(ctx, s.options.Directory)
	}
	s.cancel()
	if s.stage < stageListened {
		s.options.Agent.Unlisten(protocol.Magic)
		s.stage = stageListened
	}
	if s.view != nil {
		s.view.watch.Close()
	}
	if err := join.Within(ctx, "store: closing", s.wait.Wait); err != nil {
		return err
	}
	if err := errors.Join(s.owned.close(ctx), s.landing.close(ctx)); err != nil {
		return fmt.Errorf("store: closing: %w", err)
	}
	s.stage = stageDone
	return nil
}

// enter lets an operation of a caller begin, when there is a place for it. Its
// context has a deadline and ends with the store; leave ends it.
func (s *Store) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, ErrClosed
	}
	s.running.Add(1)
	s.mu.Unlock()
	within := s.options.Timeout
	if at, has := ctx.Deadline(); has {
		within = time.Until(at)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	stop := context.AfterFunc(s.ending, cancel)
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		cancel()
		s.running.Done()
		if len(s.places) < cap(s.places) {
			return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
		return nil, nil, fmt.Errorf("%w: %d operations run already: %w", ErrUnavailable, cap(s.places), ctx.Err())
	case <-s.calls.closed:
		cancel()
		s.running.Done()
		return nil, nil, ErrClosed
	}
	return ctx, func() {
		<-s.places
		stop()
		cancel()
		s.running.Done()
	}, nil
}
