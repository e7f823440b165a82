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
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/meta"
	"meridian/mrdn"
)

// Opener makes one of the agent's fabrics. The agent gives it what every fabric
// needs to know of its owner.
type Opener func(ctx context.Context, self Self) (fabric.Fabric, error)

// Self is an agent as its fabrics see it.
type Self struct {
	Name        string
	Incarnation mrdn.ID
	Events      fabric.Events
	// Metadata is the blob of the moment, for fabrics that serve it.
	Metadata func() []byte
	Logger   *slog.Logger
}

// Options configures Open.
type Options struct {
	// Name is unique in a cell; it is the name on the agent's certificate.
	Name string
	// Fabrics in order of preference.
	Fabrics []Opener
	// Directory, where given, is where the agent publishes itself under a
	// lease and finds its peers.
	Directory meta.Directory
	// Inbox bounds notifications that nobody has taken; default 1024. Beyond
	// it a peer's notification is refused with ErrBusy.
	Inbox int
	// Records bounds how many ended transfers can be explained; default 4096.
	Records int
	Logger  *slog.Logger
}

// Agent is an open agent. Its methods may be called from several goroutines.
type Agent struct {
	options     Options
	incarnation mrdn.ID
	fabrics     []fabric.Fabric
	inbox       chan fabric.Notification
	ledger      *ledger
	lease       *meta.Lease

	mu      sync.Mutex // protects the rest
	closed  bool
	nextID  uint64
	regions map[uint64]*region
	peers   map[string]*Peer
	metrics Metrics
}

// Metrics is a snapshot of what an agent has done.
type Metrics struct {
	Posted, Done, Failed, Notified, NotificationsRefused uint64
	BytesRead, BytesWritten                              uint64
	Regions, Peers                                       int
}

// Open starts every fabric and publishes the agent.
func Open(ctx context.Context, o Options) (*Agent, error) {
	if o.Name == "" || len(o.Name) > 255 {
		return nil, errors.New("agent: a name of 1 to 255 bytes is needed")
	}
	if len(o.Fabrics) == 0 {
		return nil, errors.New("agent: no fabric to move bytes with")
	}
	if o.Inbox == 0 {
		o.Inbox = 1024
	}
	if o.Records == 0 {
		o.Records = 4096
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{
		options: o, inbox: make(chan fabric.Notification, o.Inbox), ledger: newLedger(o.Records),
		regions: make(map[uint64]*region), peers: make(map[string]*Peer),
	}
	rand.Read(a.incarnation[:])
	for _, open := range o.Fabrics {
		f, err := open(ctx, Self{
			Name: o.Name, Incarnation: a.incarnation, Events: (*events)(a), Metadata: a.MetadataBlob, Logger: o.Logger,
		})
		if err != nil {
			return nil, errors.Join(err, a.Close(ctx))
		}
		a.fabrics = append(a.fabrics, f)
	}
	if o.Directory != nil {
		if err := a.publish(ctx); err != nil {
			return nil, errors.Join(err, a.Close(ctx))
		}
	}
	return a, nil
}

// Name is what peers call this agent.
func (a *Agent) Name() string { return a.options.Name }

// Incarnation is this start of the agent.
func (a *Agent) Incarnation() mrdn.ID { return a.incarnation }

// Fabrics names what the agent can move bytes with, in order of preference.
func (a *Agent) Fabrics() []string {
	names := make([]string, len(a.fabrics))
	for i, f := range a.fabrics {
		names[i] = f.Name()
	}
	return names
}

// Notifications is where peers' notifications arrive, each once. It is closed
// by Close.
func (a *Agent) Notifications() <-chan fabric.Notification { return a.inbox }

// Metrics returns a snapshot.
func (a *Agent) Metrics() Metrics {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.metrics
	m.Regions, m.Peers = len(a.regions), len(a.peers)
	return m
}

// Close withdraws the agent from the directory, ends every transfer and waits
// for everything it started. Sections stay their owners'.
func (a *Agent) Close(ctx context.Context) error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.mu.Unlock()
	var errs []error
	if a.lease != nil {
		errs = append(errs, a.lease.Revoke(ctx))
	}
	for _, f := range slices.Backward(a.fabrics) {
		errs = append(errs, f.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	close(a.inbox)
	return nil
}

// events is the agent as its fabrics see it.
type events Agent

// Notified takes a notification if there is room.
func (e *events) Notified(n fabric.Notification) error {
	a := (*Agent)(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fabric.ErrClosed
	}
	select {
	case a.inbox <- n:
		a.metrics.Notified++
		return nil
	default:
		a.metrics.NotificationsRefused++
		return fmt.Errorf("%w: %s has %d notifications that nobody took", fabric.ErrBusy, a.options.Name, cap(a.inbox))
	}
}

// LinkLost is logged by nobody: transfers carry the error to their owners.
func (e *events) LinkLost(p fabric.Peer, err error) {
	a := (*Agent)(e)
	a.options.Logger.Debug("link lost", "peer", p.Name, "error", err)
}

// count notes the end of a transfer.
func (a *Agent) count(r *Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.State != fabric.Done {
		a.metrics.Failed++
		return
	}
	a.metrics.Done++
	if r.Op == fabric.Read {
		a.metrics.BytesRead += r.Bytes
	} else {
		a.metrics.BytesWritten += r.Bytes
	}
}

// connectTimeout bounds a first contact whose caller set no deadline.
const connectTimeout = 10 * time.Second
