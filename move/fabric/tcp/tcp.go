// Package tcp moves bytes between hosts. A link to a peer is several streams;
// a large transfer is cut into one part per stream:
//
//	poster                                             server
//	memory ─ gather ─ writev ──── Begin, Chunk… ────► readv ─ scatter ─ memory
//	       hash                  (one stream)                 hash, compare
//	Done ◄─────────────────────── Ack ───────────────── last byte in place
//
// Bytes go from the source's memory to the socket and from the socket to the
// destination's memory; only transfers of a few KiB and memory that is not
// mapped here pass through a buffer. Every chunk carries the XXH3-64 of its
// bytes, hashed where they lie on either side.
//
// Cancel and fence are local. A stream holds a short lock around each
// non-blocking system call that touches registered memory; who wants the
// memory quiet takes that lock and diverts the stream: what was being sent is
// finished from a private copy, what is being received is thrown away. No peer
// can delay that.
//
// Lock order: link or service mu, then sender.mu, then gather.mu, then
// scatter.mu.
package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// Options configures Open. Zero values take the defaults.
type Options struct {
	// Agent and Incarnation say who this is.
	Agent       string
	Incarnation kv.ID
	// Listen is where peers connect; empty means that none can.
	Listen string
	// Advertise is the host by which peers reach Listen, where that is not the
	// host of Listen; a port may follow, for who forwards one.
	Advertise string
	// Streams per link; default one per core, at most 8.
	Streams int
	// ChunkBytes is what one checksum covers; default 256 KiB.
	ChunkBytes int
	// NoChecksums is for measuring what they cost.
	NoChecksums bool
	// MaxTransfers bounds what runs on one link in each direction; default 4096.
	MaxTransfers int
	// KeepAlive is how long a stream may be silent before it is asked; after
	// three times that it is given up. Default 5 s.
	KeepAlive time.Duration
	// Handshake bounds how long a new connection may take to say who it is.
	Handshake time.Duration
	// Metadata, where given, answers peers that fetch it from Listen.
	Metadata func() []byte
	// TLS, where given, secures every stream, and the certificates say who is
	// who. Key, without TLS, is the cell's: both sides prove that they know it.
	TLS *trust.Source
	Key *trust.CellKey
	// Strangers bounds connections that have not said who they are; default 256.
	Strangers int
	// Guard decides what peers may touch; nil opens all that is registered.
	Guard  fabric.Guard
	Clock  fabric.Clock
	Events fabric.Events
	Logger *slog.Logger

	// holding is the fabric's own.
	holding *holding
}

func (o Options) withDefaults() Options {
	o.Streams = cmp.Or(o.Streams, min(8, runtime.GOMAXPROCS(0)))
	o.ChunkBytes = cmp.Or(o.ChunkBytes, 256<<10)
	o.MaxTransfers = cmp.Or(o.MaxTransfers, 4096)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	o.Handshake = cmp.Or(o.Handshake, 5*time.Second)
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func (o Options) validate() error {
	switch {
	case o.Agent == "" || len(o.Agent) > 255:
		return errors.New("tcp: an agent needs a name of 1 to 255 bytes")
	case o.Streams < 1 || o.Streams > maxStreams:
		return fmt.Errorf("tcp: %d streams, must be 1 to %d", o.Streams, maxStreams)
	case o.ChunkBytes < 4<<10 || o.ChunkBytes > mrdn.MaxChunk:
		return fmt.Errorf("tcp: chunks of %d bytes, must be 4 KiB to %d", o.ChunkBytes, mrdn.MaxChunk)
	case o.Events == nil:
		return errors.New("tcp: Options.Events is nil")
	}
	return nil
}

const maxStreams = 64

// Fabric is an open tcp fabric.
type Fabric struct {
	options Options
	regions fabric.Regions
	pending *handshake.PendingPeers // nil when no peer can connect here
	wait    sync.WaitGroup          // every goroutine of the links

	mu       sync.Mutex // protects the rest
	closed   bool
	links    map[*peerLink]struct{}
	services map[kv.ID]*service
}

// Open starts listening, if asked to.
func Open(ctx context.Context, o Options) (*Fabric, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.holding = &holding{parts: make(map[*link.Inbound]struct{})}
	f := &Fabric{options: o, links: make(map[*peerLink]struct{}), services: make(map[kv.ID]*service)}
	if o.Listen != "" {
		// Streams have signs of life of their own; strangers need none.
		listener, err := (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, "tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("tcp: cannot listen on %s: %w", o.Listen, err)
		}
		f.pending = f.listenForPeers(listener)
	}
	return f, nil
}

// Name is "tcp".
func (f *Fabric) Name() string { return "tcp" }

// Capabilities says what it can do.
func (f *Fabric) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{
		Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM, mem.Borrowed, mem.File, mem.VRAM},
	}
}

// Register makes a region reachable.
func (f *Fabric) Register(r fabric.Region) error { return f.regions.Add(r) }

// Deregister fences a region.
func (f *Fabric) Deregister(ctx context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	links, services := f.connections()
	for _, l := range links {
		l.Fence(id, cause)
	}
	for _, v := range services {
		v.server.Fence(id, cause)
	}
	return f.options.holding.quiet(ctx, func(p link.Part) bool { return p.Bound.Touches(id) })
}

// Revoke stops everything that runs under a grant.
func (f *Fabric) Revoke(ctx context.Context, grant kv.ID) error {
	_, services := f.connections()
	for _, v := range services {
		v.server.Revoke(grant, fabric.ErrGrantRevoked)
	}
	return f.options.holding.quiet(ctx, func(p link.Part) bool { return p.Grant == grant })
}

// connections lists everything that may touch memory right now.
func (f *Fabric) connections() ([]*peerLink, []*service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.links)), slices.Collect(maps.Values(f.services))
}

// Address is host:port.
func (f *Fabric) Address() []byte {
	if f.pending == nil {
		return nil
	}
	return []byte(advertised(f.options.Advertise, f.pending.Addr().String()))
}

// advertised puts a host, or a host and a port, in place of the listener's.
func advertised(host, listening string) string {
	if host == "" {
		return listening
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	_, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	return net.JoinHostPort(host, port)
}

// Connect reaches a peer.
func (f *Fabric) Connect(ctx context.Context, p fabric.Peer) (fabric.Link, error) {
	l := newLink(f, p)
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, fabric.ErrClosed
	}
	f.links[l] = struct{}{}
	f.mu.Unlock()
	if _, err := l.Connected(ctx); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// Close ends every connection and waits for every goroutine.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	links, services := f.connections()
	var errs []error
	if f.pending != nil {
		errs = append(errs, f.pending.Close())
	}
	for _, l := range links {
		errs = append(errs, l.Close(ctx))
	}
	for _, s := range services {
		s.server.Lost(fabric.ErrClosed)
	}
	dialers := func() {} // a dialer may start what f.wait counts
	if f.pending != nil {
		dialers = f.pending.Wait
	}
	return errors.Join(append(errs, join.Within(ctx, "tcp: closing", dialers, f.wait.Wait))...)
}
