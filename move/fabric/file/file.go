// Package file moves bytes between memory and local disk. A fabric has one
// peer, its own agent: regions of kind FILE are the far side of that link, and
// memory is the near one.
//
//	memory ─┬─ pwritev ─► file      a batch is one stretch of the file, up to
//	        └─ preadv  ◄─           1 MiB, and as many pieces of memory as it takes
//
// Direct: a batch whose offset, length and memory are aligned as the file
// system asks goes past the page cache (O_DIRECT); any other goes through it.
// A file system that does not know O_DIRECT is used without.
//
// Durable: with SyncBeforeDone, the default, a write is Done only after
// fdatasync of every file it touched: it survives a crash of the machine. With
// SyncNever it survives a crash of the process, and the kernel writes it when it
// likes: right for a cache, which is empty after a crash anyway.
//
// Checked: every batch is read from the file once more and compared with the
// bytes in memory; both are at hand, so there is no need for a hash. What comes
// back is what the kernel has, for a direct batch what the disk has. NoChecksums
// saves that read.
//
// Cancel and Deregister take as long as the batch that is under way, and an
// fdatasync that has begun is waited for.
package file

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/workers"
	"meridian/move/mem"
)

// Sync says when a write is on the disk.
type Sync uint8

// The policies.
const (
	SyncBeforeDone Sync = iota
	SyncNever
)

// Options configures Open.
type Options struct {
	// Agent and Incarnation say who this is.
	Agent       string
	Incarnation kv.ID
	// Workers and MaxTransfers: see workers.Options.
	Workers, MaxTransfers int
	Sync                  Sync
	// NoDirect keeps everything in the page cache.
	NoDirect bool
	// NoChecksums is for bytes that carry a checksum of their own, and for
	// measuring what ours cost.
	NoChecksums bool
	Events      fabric.Events
}

func (o Options) validate() error {
	if o.Agent == "" || o.Events == nil {
		return errors.New("file: Options needs an Agent and Events")
	}
	if o.Sync > SyncNever {
		return fmt.Errorf("file: no sync policy %d", o.Sync)
	}
	return nil
}

// Fabric is an open file fabric.
type Fabric struct {
	options Options
	regions fabric.Regions
	pool    *workers.Pool

	mu     sync.Mutex // protects the rest
	closed bool
	disks  map[uint64]*disk // by region
}

// Open starts the workers.
func Open(_ context.Context, o Options) (*Fabric, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	pool, err := workers.Open(workers.Options{Workers: o.Workers, MaxTransfers: o.MaxTransfers, BytesPerSecond: 500e6})
	if err != nil {
		return nil, err
	}
	return &Fabric{options: o, pool: pool, disks: make(map[uint64]*disk)}, nil
}

// Name is "file".
func (f *Fabric) Name() string { return "file" }

// Capabilities says what it can do.
func (f *Fabric) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{
		Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM, mem.Borrowed, mem.File},
	}
}

// Address is nil: no other agent can connect.
func (f *Fabric) Address() []byte { return nil }

// Register makes a region reachable.
func (f *Fabric) Register(r fabric.Region) error {
	if err := r.Section.Acquire(); err != nil {
		return err
	}
	defer r.Section.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fabric.ErrClosed
	}
	if err := f.regions.Add(r); err != nil {
		return err
	}
	file := r.Section.File()
	if file == nil {
		return nil
	}
	d, err := openDisk(file, !f.options.NoDirect)
	if err != nil {
		return errors.Join(err, f.regions.Remove(r.ID))
	}
	f.disks[r.ID] = d
	return nil
}

// Deregister fences a region.
func (f *Fabric) Deregister(ctx context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	f.mu.Lock()
	d := f.disks[id]
	delete(f.disks, id)
	f.mu.Unlock()
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	err := f.pool.Fence(ctx, cause, func(t *workers.Task) bool {
		return t.Prepared.Local.Touches(id) || t.Prepared.Remote.Touches(id)
	})
	return errors.Join(err, d.close())
}

// disksOf finds the files of a list; nil stands for memory.
func (f *Fabric) disksOf(l fabric.List) []*disk {
	f.mu.Lock()
	defer f.mu.Unlock()
	disks := make([]*disk, len(l))
	for i := range l {
		disks[i] = f.disks[l[i].Region]
	}
	return disks
}

// Connect reaches this agent itself. An incarnation of zero takes any.
func (f *Fabric) Connect(_ context.Context, p fabric.Peer) (fabric.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	self := fabric.Peer{Name: f.options.Agent, Incarnation: f.options.Incarnation}
	switch {
	case f.closed:
		return nil, fabric.ErrClosed
	case p.Name != self.Name:
		return nil, &fabric.Error{Op: "connect", Subject: p.Name, Err: fabric.ErrPeerGone, Hint: "a file fabric reaches only its own agent"}
	case p.Incarnation != self.Incarnation && p.Incarnation != (kv.ID{}):
		err := fmt.Errorf("%w: expected %s, came %s", fabric.ErrStalePeer, p.Incarnation, self.Incarnation)
		return nil, &fabric.Error{Op: "connect", Subject: p.Name, Err: err}
	}
	return &workers.Link{
		Pool: f.pool, Regions: &f.regions, Self: self, Far: self, Events: f.options.Events, Bind: f.bind, Move: f.move,
	}, nil
}

// bind is of this agent's own memory and files: nothing is asked of a peer.
func (f *Fabric) bind(t *workers.Task, _ kv.ID) (*fabric.Bound, func(), error) {
	b, err := f.regions.BindAs(t.Prepared.Remote, t.Prepared.Op == fabric.Write)
	return b, b.Release, err
}

func (f *Fabric) move(dst, src *fabric.Bound, stopped func() error) (begun bool, err error) {
	m := mover{
		checked: !f.options.NoChecksums, sync: f.options.Sync, stopped: stopped,
		dst: side{dst, f.disksOf(dst.List)}, src: side{src, f.disksOf(src.List)},
	}
	err = m.run()
	return m.begun, err
}

// Close stops everything and waits for it. It may be called again.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	errs := []error{f.pool.Close(ctx)} // first: what runs finds its files
	f.mu.Lock()
	disks := f.disks
	f.disks = make(map[uint64]*disk)
	f.mu.Unlock()
	for _, d := range disks {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}
