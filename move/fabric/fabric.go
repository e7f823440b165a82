// Package fabric is the contract of everything that can move bytes from memory
// to memory, and the suite that every implementation passes (fabrictest). The
// implementations are alcoves: inproc, tcp, host, file.
//
//	Fabric   one way to move bytes, opened once per agent
//	Region   memory registered with it, under an epoch
//	Link     a fabric's connection to one incarnation of one peer
//	List     which bytes of which regions, on either side
//	Transfer one posted operation:
//
//	Admitted ─► Submitting ─► Submitted ─► Done
//	    │            │            │
//	    ▼            ▼            ▼
//	NotSubmitted   InDoubt ◄──────┘
//
// Done: every byte is in place and its checksum was right. NotSubmitted: no byte
// left or arrived. InDoubt: some may have; neither side can say which. In every end
// state the caller's own memory is quiet: nothing reads or writes it any more.
// A timeout alone never ends a transfer; it cancels, and the cancel ends it.
package fabric

import (
	"context"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/move/mem"
)

// Op is the direction of a transfer, seen from who posts it.
type Op uint8

// The operations.
const (
	// Read brings the peer's bytes into local memory.
	Read Op = iota + 1
	// Write takes local bytes to the peer's memory.
	Write
)

func (o Op) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return "op(?)"
}

// MarshalText writes o as String does.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (o *Op) UnmarshalText(text []byte) error {
	for _, op := range []Op{Read, Write} {
		if op.String() == string(text) {
			*o = op
			return nil
		}
	}
	return fmt.Errorf("fabric: unknown operation %q", text)
}

// Capabilities says what a fabric can do; a choice among several rests on it.
type Capabilities struct {
	// Local: both sides may be in this process.
	Local               bool
	Read, Write, Notify bool
	// Kinds of memory it can reach on its own side.
	Kinds []mem.Kind
}

// Region is local memory registered with a fabric. A peer names it by ID and
// Epoch; after a fence the epoch is another and old names are refused.
type Region struct {
	ID      uint64
	Epoch   uint64
	Section *mem.Section
}

// Peer is one incarnation of an agent, and what this fabric needs to reach it.
// A zero Incarnation takes whichever answers.
type Peer struct {
	Name        string
	Incarnation kv.ID
	Address     []byte
}

// Fabric moves bytes between this agent and its peers. Methods may be called
// from several goroutines.
type Fabric interface {
	// Name is what configuration and telemetry call it.
	Name() string
	Capabilities() Capabilities
	// Register makes a region reachable. The region's section stays the
	// caller's; the fabric holds references while it moves bytes.
	Register(r Region) error
	// Deregister fences a region: new requests for it are refused, running ones
	// are stopped, and when it returns nothing of this fabric touches the
	// memory. It is bounded by local work, not by any peer.
	Deregister(ctx context.Context, id uint64) error
	// Address is what a peer needs to connect here; nil when it cannot.
	Address() []byte
	// Connect reaches a peer, or fails by ctx's deadline.
	Connect(ctx context.Context, p Peer) (Link, error)
	// Close ends every link and waits for everything the fabric started.
	Close(ctx context.Context) error
}

// Fetcher is a fabric that can ask the agent that listens at an address of its kind
// for its agent's metadata, before anything else is known of it.
type Fetcher interface {
	Fetch(ctx context.Context, address []byte) ([]byte, error)
}

// Link is a connection to one incarnation of one peer.
type Link interface {
	Peer() Peer
	// Prepare checks a request once, so that it can be posted many times: both
	// lists have the same bytes, local spans are within their regions, and no
	// destination byte is named twice. It takes references on local memory
	// until Release.
	Prepare(op Op, local, remote List) (*Prepared, error)
	// Post starts a prepared request and returns at once. The context's
	// deadline is the transfer's: past it the transfer is cancelled. Posting an
	// ID that is running returns the running transfer; one that has ended on the
	// same connection is answered as it ended: what is done stays done, and
	// the peer is not notified twice. A connection that was lost is forgotten; an
	// agent remembers its own ids beyond that.
	Post(ctx context.Context, p *Prepared, o PostOptions) (*Transfer, error)
	// Notify delivers payload by itself, after everything posted before.
	Notify(ctx context.Context, id kv.ID, payload []byte) error
	// Estimate is how long a transfer would take, as far as this link knows.
	Estimate(op Op, bytes, pieces uint64) time.Duration
	// Close ends the link; what is running ends too.
	Close(ctx context.Context) error
}

// PostNotification posts a transfer of nothing, which notifies the peer.
func PostNotification(ctx context.Context, l Link, id kv.ID, payload []byte) (*Transfer, error) {
	nothing, err := l.Prepare(Write, nil, nil)
	if err != nil {
		return nil, err
	}
	defer nothing.Release() // as soon as it has ended
	return l.Post(ctx, nothing, PostOptions{ID: id, Notify: true, Notification: payload})
}

// Announcer is a link that can tell its peer something without a transfer of
// nothing around it.
type Announcer interface {
	// Announce sends payload now, in no order with what was posted before, and
	// returns at once; ErrUnconnected says that the link must be connected first.
	// Ended hears once whether the peer has taken it, with ErrDeadline when that is
	// not known within a time, unless Announce returns an error. It is called under
	// locks: it must not block, nor call back. The payload is the caller's again
	// when Announce returns.
	Announce(id kv.ID, payload []byte, within time.Duration, ended func(error)) error
}

// PostOptions belong to one post.
type PostOptions struct {
	ID kv.ID
	// Grant is what the peer's agent gave to open its memory to this transfer.
	Grant kv.ID
	// Notification is delivered at the peer exactly once, after the data is in
	// place. Notify tells an empty one from none. It must not change until the
	// transfer has ended.
	Notify       bool
	Notification []byte
	// Sums, where given, are those of a read's destination, or, where they are known,
	// of a write's source.
	Sums *Sums
}

// Notification is what a peer said.
type Notification struct {
	From        string
	Incarnation kv.ID
	Transfer    kv.ID
	Payload     []byte
}

// Access is what a peer asks for.
type Access struct {
	// Peer and Incarnation are who asks, as it has proven.
	Peer        string
	Incarnation kv.ID
	Grant       kv.ID
	Op          Op
	List        List
}

// Guard decides what a peer may touch, before a byte is placed or given. A
// fabric that was opened without one opens all that is registered with it,
// which is for tests and measurements. It is called under locks of the fabric:
// it must not block, nor call back.
type Guard interface {
	Admit(a Access) error
}

// Summer is a guard under whose grants some want the sums of what peers write. It is
// called under the same locks.
type Summer interface {
	// SumsOf is for which memory a grant wants them; nil for none.
	SumsOf(grant kv.ID) *Sums
}

// Revoker is a fabric that serves others' requests under grants.
type Revoker interface {
	// Revoke stops everything that runs under a grant. When it returns nothing
	// of it touches memory here.
	Revoke(ctx context.Context, grant kv.ID) error
}

// NotificationHandler is a room that hears what it is told at once: no goroutine is woken for
// it. What it does is short and waits for no peer; the payload is the fabric's again
// when it returns.
type NotificationHandler interface {
	Handle(n Notification)
}

// Events is where a fabric tells its agent what happened. Calls come from the
// fabric's goroutines and must not block.
type Events interface {
	// Notified delivers a notification, or refuses it with ErrBusy. Who keeps its
	// payload copies it. Where it returns an handler, the fabric calls that next,
	// on the goroutine that brought the notification and with no lock held; the
	// receipt may then wait for others, because an answer says more.
	Notified(n Notification) (NotificationHandler, error)
	// LinkLost tells that a peer's connection broke, and why.
	LinkLost(p Peer, err error)
	// Refused tells that a peer was turned away at the door, or that what it
	// sent was not what it should have been.
	Refused(from string, err error)
}

// Deliver is for fabrics that hold no lock: it delivers a notification, and lets who
// attends to it.
func Deliver(e Events, n Notification) error {
	handler, err := e.Notified(n)
	if err == nil && handler != nil {
		handler.Handle(n)
	}
	return err
}
