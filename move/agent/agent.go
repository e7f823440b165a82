// Package agent is what engines and the rooms above hold: memory registered
// once, peers known by name and incarnation, transfers posted and awaited,
// notifications delivered. It chooses the fabric and can say why.
//
//	Register ─► MetadataBlob ──(directory, address, or by hand)──► LoadMetadata
//	                                                                   │
//	Local, Remote: lists of descriptors, prepared once ◄───────────────┘
//	      │
//	   Request ─ Post ─► Transfer ─ Await, Done, Status, Cancel, Explain
//
// An agent is its name and the incarnation of this start. What was prepared for
// one incarnation of a peer never reaches another: it fails with what was
// expected and what came.
//
// Lock order: transferLog, Transfer, Agent, Peer. None of them is held across a call
// to a fabric, since a fabric calls back with locks of its own; a region's
// changing and a request's preparing are, and no callback takes those.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/fabric"
)

// Opener makes one of the agent's fabrics. The agent gives it what every fabric
// needs to know of its owner.
type Opener func(ctx context.Context, self Self) (fabric.Fabric, error)

// Self is an agent as its fabrics see it.
type Self struct {
	Name        string
	Incarnation kv.ID
	Events      fabric.Events
	// Guard decides what a peer may touch.
	Guard fabric.Guard
	// Metadata is the blob of the moment, for fabrics that serve it.
	Metadata func() []byte
	Logger   *slog.Logger
}

// Options configures Open.
type Options struct {
	// Name is unique in a cell; it is the name on the agent's certificate.
	Name string
	// Lock names, everywhere and for ever, a lock that this process holds until
	// the agent is closed and that only agents of its name take; "" for none. A
	// record in the directory with the same lock is of one that has died, and
	// makes room at once.
	Lock string
	// Fabrics in order of preference.
	Fabrics []Opener
	// Directory, where given, is where the agent publishes itself under a
	// lease and finds its peers.
	Directory directory.Directory
	// Inbox bounds what waits in Notifications.
	Inbox InboxLimits
	// Records bounds how many ended transfers can be explained; default 4096.
	Records int
	// Ended, where given, is told of every transfer that ended. It must not block.
	Ended func(Record)
	// Grants bounds how many hold at a time; default 65536.
	Grants int
	// Clock is what deadlines are judged by; default the machine's.
	Clock fabric.Clock
	// Random is where ids come from; default the machine's. Background starts
	// work that only Close waits for; default a goroutine. A simulation
	// brings its own, so that a seed repeats.
	Random     io.Reader
	Background func(work func())
	Logger     *slog.Logger
}

// Agent is an open agent. Its methods may be called from several goroutines.
type Agent struct {
	options     Options
	incarnation kv.ID
	fabrics     []fabric.Fabric
	log         *transferLog
	grants      *grants
	audit       *audit
	lease       *directory.Lease
	wait        sync.WaitGroup  // every goroutine of the agent
	life        context.Context // of what they do
	endLife     context.CancelCauseFunc

	mu      sync.Mutex // protects the rest, and fabrics until Open is done
	closed  bool
	drained bool                    // every inbox is closed
	others  *inbox                  // what no room listens for
	rooms   map[string]subscription // by the magic that their notifications begin with
	nextID  uint64
	regions map[uint64]*region
	peers   map[string]*Peer
	metrics Metrics
}

// Metrics is a snapshot of what an agent has done.
type Metrics struct {
	Posted               uint64 `metric:"meridian_agent_transfers_posted_total"`
	Done                 uint64 `metric:"meridian_agent_transfers_ended_total,done"`
	Failed               uint64 `metric:"meridian_agent_transfers_ended_total,failed"`
	BytesRead            uint64 `metric:"meridian_agent_bytes_total,read"`
	BytesWritten         uint64 `metric:"meridian_agent_bytes_total,write"`
	Notified             uint64 `metric:"meridian_agent_notifications_total,taken"`
	NotificationsRefused uint64 `metric:"meridian_agent_notifications_total,refused"`
	Regions              int    `metric:"meridian_agent_regions"`
	Peers                int    `metric:"meridian_agent_peers"`
	Grants               int    `metric:"meridian_agent_grants"`
	Audit                Audit
}

func (o Options) withDefaults() Options {
	o.Inbox = o.Inbox.withDefaults()
	o.Records = cmp.Or(o.Records, 4096)
	o.Grants = cmp.Or(o.Grants, 1<<16)
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	o.Random = cmp.Or(o.Random, rand.Reader)
	if o.Background == nil {
		o.Background = func(work func()) { go work() }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func (o Options) validate() error {
	switch {
	case o.Name == "" || len(o.Name) > 255:
		return errors.New("agent: a name of 1 to 255 bytes is needed")
	case len(o.Fabrics) == 0:
		return errors.New("agent: no fabric to move bytes with")
	case len(o.Fabrics) > maxFabrics:
		return fmt.Errorf("agent: %d fabrics, at most %d", len(o.Fabrics), maxFabrics)
	case o.Records < 0:
		return fmt.Errorf("agent: room for %d records; it cannot be negative", o.Records)
	}
	return o.Inbox.validate()
}

// Open starts every fabric and publishes the agent.
func Open(ctx context.Context, o Options) (*Agent, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	a := &Agent{
		options: o, others: newInbox(o.Inbox), rooms: make(map[string]subscription), log: newTransferLog(o.Records),
		grants: newGrants(o.Grants), audit: &audit{logger: o.Logger, clock: o.Clock},
		regions: make(map[uint64]*region), peers: make(map[string]*Peer),
	}
	a.incarnation = a.newID()
	a.life, a.endLife = context.WithCancelCause(context.Background()) // Close ends it, not the caller of Open
	for _, open := range o.Fabrics {
		if err := a.openFabric(ctx, open); err != nil {
			return nil, errors.Join(err, a.Close(ctx))
		}
	}
	if o.Directory != nil {
		if err := a.publish(ctx); err != nil {
			return nil, errors.Join(err, a.Close(ctx))
		}
	}
	return a, nil
}

func (a *Agent) openFabric(ctx context.Context, open Opener) error {
	f, err := open(ctx, Self{
		Name: a.options.Name, Incarnation: a.incarnation, Events: (*events)(a), Guard: (*guard)(a),
		Metadata: a.MetadataBlob, Logger: a.options.Logger,
	})
	if err != nil {
		return err
	}
	twice := a.fabric(f.Name()) != nil
	a.mu.Lock()
	a.fabrics = append(a.fabrics, f)
	a.mu.Unlock()
	if twice {
		return fmt.Errorf("agent: two fabrics are called %q", f.Name())
	}
	return nil
}

func (a *Agent) fabric(name string) fabric.Fabric {
	for _, f := range a.fabrics {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// Name is what peers call this agent.
func (a *Agent) Name() string { return a.options.Name }

// Incarnation is this start of the agent.
func (a *Agent) Incarnation() kv.ID { return a.incarnation }

// Fabrics names what the agent can move bytes with, in order of preference.
func (a *Agent) Fabrics() []string {
	names := make([]string, len(a.fabrics))
	for i, f := range a.fabrics {
		names[i] = f.Name()
	}
	return names
}

// Metrics returns a snapshot.
func (a *Agent) Metrics() Metrics {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.metrics
	m.Regions, m.Peers, m.Grants, m.Audit = len(a.regions), len(a.peers), a.grants.len(), a.audit.snapshot()
	return m
}

// Close withdraws the agent from the directory, ends every transfer and waits
// for everything it started. Sections stay their owners'. After an error it may
// be called again.
func (a *Agent) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.endLife(fabric.ErrClosed)
	var errs []error
	if a.lease != nil {
		errs = append(errs, a.lease.Revoke(ctx))
	}
	for _, f := range slices.Backward(a.fabrics) {
		errs = append(errs, f.Close(ctx))
	}
	if err := errors.Join(append(errs, join.Within(ctx, "agent: closing", a.wait.Wait))...); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.drained {
		a.drained = true
		a.closeInboxes()
	}
	return nil
}

// run does work that Close waits for; it is false once the agent is closing.
func (a *Agent) run(work func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.wait.Add(1)
		a.options.Background(func() {
			defer a.wait.Done()
			work()
		})
	}
	return !a.closed
}

// until is the context of work that ends by a deadline, where it has one, and
// with the agent.
func (a *Agent) until(deadline time.Time) (context.Context, context.CancelCauseFunc) {
	if deadline.IsZero() {
		return context.WithCancelCause(a.life)
	}
	bounded, release := context.WithDeadlineCause(a.life, deadline, fabric.ErrDeadline)
	ctx, stop := context.WithCancelCause(bounded)
	return ctx, func(cause error) {
		stop(cause)
		release()
	}
}

// events is the agent as its fabrics see it.
type events Agent

// Notified puts a notification into its inbox, if there is room.
func (e *events) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	return (*Agent)(e).take(n)
}

// LinkLost needs no answer: transfers carry the error to their owners, and a
// link connects again when it is needed.
func (e *events) LinkLost(p fabric.Peer, err error) {
	a := (*Agent)(e)
	a.options.Logger.Debug("link lost", "peer", p.Name, "error", err)
}

// Refused is for the audit.
func (e *events) Refused(from string, err error) {
	a := (*Agent)(e)
	if errors.Is(err, fabric.ErrChecksum) {
		a.audit.note(slog.LevelWarn, "checksum failed", "peer", from, "error", err.Error())
		return
	}
	a.audit.note(slog.LevelWarn, "refused", "peer", from, "error", err.Error())
}

func (a *Agent) countPosted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.metrics.Posted++
}

func (a *Agent) countEnded(op fabric.Op, bytes uint64, state fabric.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case state != fabric.Done:
		a.metrics.Failed++
		return
	case op == fabric.Read:
		a.metrics.BytesRead += bytes
	default:
		a.metrics.BytesWritten += bytes
	}
	a.metrics.Done++
}
