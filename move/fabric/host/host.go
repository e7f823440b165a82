// Package host moves bytes between two agents of one machine, with one copy.
// They meet on a Unix socket; memory is lent as memfds that the borrower maps
// to read, so that only the agent to which memory belongs ever writes it:
//
//	READ    the poster maps the peer's region and copies into its own
//	WRITE   the peer maps the poster's region and copies into its own, and acks
//
// The agent that copies is the destination's own. It compares each piece of
// 64 KiB with its source while both are in its cache; two mappings in front of
// one core need no hash to be compared, and comparing is exact.
//
// What is lent and taken when is decided by link.Lending; here it is done. The
// source's agent takes its memory back alone. It has a flag page, which it writes
// and its peers can only read, where a flag flies for each part that may be
// taken. A fence, a Revoke or a Cancel takes the flag down. The copier
//
//	pins     says on its own page under which flag it is about to take
//	looks    whether the flag flies, else it takes nothing
//	copies   a piece, compares, and unpins
//	looks    at the flag again at the very end: down means never Done
//
// So what is read after a fence is never reported as Done and never
// acknowledged, whatever the two processes do; a reader does no harm to the
// memory it reads. Who takes a flag down also waits until the peer's pin is
// gone, for the few microseconds that a piece takes: then not even an InDoubt
// destination holds bytes from after the fence. That wait is bounded, because a
// peer may have been stopped (SIGSTOP) within a piece; the at most 64 KiB for
// each of its copiers that it copies when it wakes up stay InDoubt and are not
// acknowledged. Where memory is a destination, its own agent's lock makes it
// quiet and no peer is asked.
//
// A guard is asked for every transfer, a read's too, before it starts. But a
// peer that was lent a region can see all of it: agents of one user meet here
// and trust each other to read no more than they asked for; other users are
// turned away, and so are peers that do not know the cell's key.
//
// Memory is lent as a memfd, which the borrower maps to read; or, where it lies in
// the process of an engine, as that process's pidfd, and the borrower reads it
// with process_vm_readv if the kernel lets it. If it does not, because the engine
// has named its own agent alone as its tracer, the part is refused before a byte of
// it was taken, and the agent that posted goes on with another fabric.
//
// Where memory of either side is a GPU's, it is lent by CUDA's handle, and kernels of
// the destination's agent copy: gpu and gpuJob. The flag is looked at before each
// launch; no lock is held while a GPU works.
//
// Lock order: that of move/fabric/link, then stream mu, then any one of wire,
// borrowed, flagPage, pool, job, gpu; a reach's mu by itself.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
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
	"meridian/move/mem/vram"
)

// Options configures Open. Zero values take the defaults.
type Options struct {
	// Agent and Incarnation say who this is.
	Agent       string
	Incarnation kv.ID
	// Dir is where this agent's socket is made, for this user alone.
	Dir string
	// HostID names the machine; default its boot id. Realm, where given, tells agents
	// of it apart that could not prove themselves to each other: they do not try.
	HostID, Realm string
	// Workers copy; default one per core.
	Workers int
	// GPUs is what GPU memory is reached by; nil takes none.
	GPUs *vram.Pool
	// NoChecksums leaves out the comparison, for measuring what it costs.
	NoChecksums bool
	// MaxTransfers bounds what runs on one link in each direction; default 4096.
	MaxTransfers int
	// KeepAlive is how long a peer may be silent before it is asked; after three
	// times that it is given up. Default 5 s.
	KeepAlive time.Duration
	// Handshake bounds how long a new connection may take to say who it is.
	Handshake time.Duration
	// Key is the cell's: both sides prove that they know it. Nil asks for no proof.
	Key *trust.CellKey
	// Guard decides what peers may touch; nil opens all that is registered.
	Guard  fabric.Guard
	Events fabric.Events
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.Workers = cmp.Or(o.Workers, min(maxCopiers-gpuCopiers, runtime.GOMAXPROCS(0)))
	o.MaxTransfers = cmp.Or(o.MaxTransfers, 4096)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	o.Handshake = cmp.Or(o.Handshake, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.HostID == "" {
		var err error
		if o.HostID, err = bootID(); err != nil {
			return o, err
		}
	}
	if o.Realm != "" {
		o.HostID += "." + o.Realm
	}
	return o, nil
}

func (o Options) validate() error {
	switch {
	case o.Agent == "" || len(o.Agent) > 255:
		return errors.New("host: an agent needs a name of 1 to 255 bytes")
	case !filepath.IsAbs(o.Dir) || len(o.socket()) > maxSocketPath:
		return fmt.Errorf("host: directory %q must be absolute and at most %d bytes long", o.Dir, maxSocketPath-len(o.socket())+len(o.Dir))
	case o.Workers < 1 || o.Workers > maxCopiers-gpuCopiers:
		return fmt.Errorf("host: %d workers, must be 1 to %d", o.Workers, maxCopiers-gpuCopiers)
	case o.Events == nil:
		return errors.New("host: Options.Events is nil")
	}
	return nil
}

func (o Options) socket() string { return filepath.Join(o.Dir, o.Incarnation.String()+".sock") }

// Fabric is an open host fabric.
type Fabric struct {
	options Options
	regions fabric.Regions
	page    *flagPage
	pool    *pool
	gpu     *gpu // nil without GPUs
	pending *handshake.PendingPeers
	wait    sync.WaitGroup // every goroutine of the links

	mu      sync.Mutex // protects the rest
	closed  bool
	streams map[*stream]struct{}
	links   map[*peerLink]struct{}
}

// Open starts listening.
func Open(ctx context.Context, o Options) (*Fabric, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(o.validate(), makeDirectory(o.Dir)); err != nil {
		return nil, err
	}
	copiers := o.Workers
	if o.GPUs != nil {
		copiers += gpuCopiers
	}
	page, err := newFlagPage(copiers)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", o.socket())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("host: %w", err), page.close())
	}
	f := &Fabric{
		options: o, page: page, pool: newPool(page, 0, o.Workers),
		streams: make(map[*stream]struct{}), links: make(map[*peerLink]struct{}),
	}
	if o.GPUs != nil {
		f.gpu = newGPU(o.GPUs, newPool(page, o.Workers, gpuCopiers), o.Logger)
	}
	f.pending = f.listenForPeers(listener)
	return f, nil
}

// Name is "host".
func (f *Fabric) Name() string { return "host" }

// kinds of memory that can be lent: memfds, what lies in an engine's process, and,
// where there are GPUs, theirs.
func (f *Fabric) kinds() []mem.Kind {
	if f.gpu == nil {
		return []mem.Kind{mem.DRAM, mem.Borrowed}
	}
	return []mem.Kind{mem.DRAM, mem.Borrowed, mem.VRAM}
}

// Capabilities says what it can do.
func (f *Fabric) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{Local: true, Read: true, Write: true, Notify: true, Kinds: f.kinds()}
}

// Address is the machine and the path of the socket.
func (f *Fabric) Address() []byte { return []byte(f.options.HostID + ":" + f.options.socket()) }

// Register makes a region reachable.
func (f *Fabric) Register(r fabric.Region) error {
	if !slices.Contains(f.kinds(), r.Section.Kind()) {
		return fmt.Errorf("%w: region %d is %v memory, which cannot be lent", fabric.ErrUnsupported, r.ID, r.Section.Kind())
	}
	return f.regions.Add(r)
}

// Deregister fences a region.
func (f *Fabric) Deregister(ctx context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	for _, s := range f.everyStream() {
		s.fence(id, cause)
	}
	return f.gpu.release(ctx, id)
}

// Revoke stops everything that runs under a grant.
func (f *Fabric) Revoke(ctx context.Context, grant kv.ID) error {
	for _, s := range f.everyStream() {
		if server, serves := s.engine.(*link.Server); serves {
			server.Revoke(grant, fabric.ErrGrantRevoked)
		}
	}
	return f.gpu.quiet(ctx, func(j *gpuJob) bool { return j.taking.In.Grant == grant })
}

func (f *Fabric) everyStream() []*stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*stream, 0, len(f.streams))
	for s := range f.streams {
		all = append(all, s)
	}
	return all
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
	again := f.closed
	f.closed = true
	links := make([]*peerLink, 0, len(f.links))
	for l := range f.links {
		links = append(links, l)
	}
	f.mu.Unlock()
	if again {
		return f.join(ctx)
	}
	errs := []error{f.pending.Close()}
	for _, l := range links {
		errs = append(errs, l.Close(ctx))
	}
	for _, s := range f.everyStream() {
		s.engine.Lost(fabric.ErrClosed)
	}
	f.pool.close()
	f.gpu.close()
	if err := f.join(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, f.page.close())...)
}

func (f *Fabric) join(ctx context.Context) error {
	return join.Within(ctx, "host: closing", f.pending.Wait, f.wait.Wait, f.pool.wait, f.gpu.wait)
}
