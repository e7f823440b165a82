package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/keep/store/tier"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// OwnerOptions say what a process keeps. Zero values mean the defaults.
type OwnerOptions struct {
	// Bytes is the size of the arena, with its headers.
	Bytes uint64
	// PageSize is that of objects whose writer names none; default arena.PageSize.
	PageSize uint32
	// Policy says which objects leave first; High and Low when, as owner.Options.
	Policy    owner.Policy
	High, Low float64
	// TenantQuota is the part of the heap that one tenant may have; default all of it.
	TenantQuota float64
	// Headers is how many objects there can be; default one for each 64 KiB.
	Headers uint32
	// Offers is how many extents of each size class are set aside for producers that
	// map the arena; default none.
	Offers int
	// WriteTimeout is the longest that a writer may take; default 30 s.
	WriteTimeout time.Duration
	// Pin is told of the memory and may pin it for GPUs; what it returns is called before
	// the memory is unmapped, again after an error. Nil pins nothing.
	Pin func(memory []byte) (unpin func(context.Context) error)
	// Tiers keep what leaves memory, the first is asked first. They are the caller's to
	// close, after the store.
	Tiers []tier.Tier
	// Prefixes is what OwnerRecord says: the store passes it on.
	Prefixes int
}

func (o OwnerOptions) withDefaults() (OwnerOptions, error) {
	o.High, o.Low = cmp.Or(o.High, 0.95), cmp.Or(o.Low, 0.85)
	switch {
	case o.Bytes < 1<<20:
		return o, fmt.Errorf("store: an arena of %d bytes; give an owner at least 1 MiB", o.Bytes)
	case o.Low <= 0 || o.Low >= o.High || o.High > 1:
		return o, fmt.Errorf("store: watermarks %v and %v: want 0 < low < high <= 1", o.Low, o.High)
	case !(o.TenantQuota >= 0 && o.TenantQuota <= 1):
		return o, fmt.Errorf("store: a quota of %v for a tenant: want a part of the heap, between 0 and 1", o.TenantQuota)
	case o.Offers < 0 || o.WriteTimeout < 0:
		return o, errors.New("store: a bound or a span in OwnerOptions is negative")
	}
	return o, nil
}

// localOwner is the memory of the owner in this process.
type localOwner struct {
	options OwnerOptions
	agent   *agent.Agent
	memory  *mem.Arena
	unpin   func(context.Context) error // nil if Pin was
	heap    *arena.Heap
	objects *owner.Owner
	region  agent.RegionInfo
	rank    int
	lease   *directory.Lease
	roster  directory.Record
	fenced  bool

	mu     sync.Mutex // protects the rest
	grants map[kv.ID]*ownGrant
	// mapped is how many bytes writers store by themselves, programs how many of these
	// are other processes, or may be.
	mapped   uint64
	programs int
	// sources are values that callers in this process have it read.
	sources map[kv.ID]*ownSource
}

// ownGrant lets a writer of this process write, as long as it is not revoked: an
// agent's guard does not stand between it and the arena.
type ownGrant struct {
	writing sync.RWMutex // held for reading while it writes
	revoked bool
	// mapped is how many bytes its writer stores to the arena by itself, 0 if it does
	// not: it cannot be stopped, and ends when it says so. owned.mu protects it.
	mapped uint64
	// program says that another process may be that writer.
	program bool
}

// openLocalOwner makes an arena and puts its owner into the directory.
func openLocalOwner(ctx context.Context, s *Store) (*localOwner, error) {
	o := &localOwner{options: *s.options.Owner, agent: s.options.Agent, grants: make(map[kv.ID]*ownGrant), sources: make(map[kv.ID]*ownSource)}
	err := o.make()
	if err == nil {
		err = o.publish(ctx, s.options.Directory)
	}
	if err != nil {
		o.withdraw(context.WithoutCancel(ctx), s.options.Directory)
		return nil, errors.Join(err, o.close(context.WithoutCancel(ctx)))
	}
	return o, nil
}

func (o *localOwner) make() (err error) {
	if o.memory, err = mem.NewArena(mem.ArenaOptions{Name: "store", SizeBytes: o.options.Bytes, NUMANode: -1}); err != nil {
		return err
	}
	bytes := o.memory.Bytes(0, o.memory.Size())
	if o.options.Pin != nil {
		o.unpin = o.options.Pin(bytes)
	}
	if o.heap, err = arena.Format(bytes, arena.Options{Headers: o.options.Headers, High: uint32(100 * o.options.High), Low: uint32(100 * o.options.Low), Epoch: epochOf(o.agent.Incarnation())}); err != nil {
		return err
	}
	own := []byte(protocol.AgentTenant(o.agent.Name()))
	o.objects, err = owner.New(o.heap, owner.Options{
		Policy: o.options.Policy, High: o.options.High, Low: o.options.Low, Offers: o.options.Offers,
		WriteTimeout: kv.Instant(o.options.WriteTimeout / time.Microsecond), TenantQuota: o.options.TenantQuota, Copy: protocol.IsCopy,
		Tenant: func([]byte) []byte { return own }, Part: protocol.PartOf,
	})
	if err != nil {
		return err
	}
	o.region, err = o.agent.Register(o.memory.Section, "store")
	return err
}

// epochOf is the epoch of an arena: another start of its owner has another, never 0.
func epochOf(incarnation kv.ID) uint32 { return max(1, binary.LittleEndian.Uint32(incarnation[:])) }

// publish writes the owner down under the number of its name. Before others could see that
// it runs, another may have got that number: then it is written down once more.
func (o *localOwner) publish(ctx context.Context, d directory.Directory) (err error) {
	name := o.agent.Name()
	if o.rank, err = rankOf(ctx, d, name); err != nil {
		return err
	}
	for {
		if err = o.publishAs(ctx, d, name); err != nil {
			return err
		}
		before := o.rank
		if o.rank, err = rankOf(ctx, d, name); err != nil || o.rank == before {
			return err
		}
	}
}

func (o *localOwner) publishAs(ctx context.Context, d directory.Directory, name string) error {
	value, err := json.Marshal(OwnerRecord{Name: name, Incarnation: o.agent.Incarnation(), Rank: o.rank, Bytes: o.memory.Size(), Tiers: len(o.options.Tiers) > 0, Prefixes: o.options.Prefixes})
	if err != nil {
		return err
	}
	// On the roster it stays until it leaves: a master that is elected while the owner
	// is out of sight, as when the whole cell stood still, must hear it first.
	if o.roster, err = d.Put(ctx, directory.Entry{Key: rosterPrefix + name, Value: value}); err != nil {
		return err
	}
	if o.lease == nil {
		if o.lease, err = d.Grant(ctx, directory.LeaseOptions{}); err != nil {
			return err
		}
	}
	_, err = d.Put(ctx, directory.Entry{Key: ownersPrefix + name, Value: value, Lease: o.lease})
	return err
}

func (o *localOwner) newServer(self kv.Member) *protocol.Server {
	return protocol.NewServer(protocol.ServerOptions{
		Self: self, WriteTimeout: kv.Instant(o.options.WriteTimeout / time.Microsecond),
	}, o.objects)
}

// withdraw takes the owner off the directory.
func (o *localOwner) withdraw(ctx context.Context, d directory.Directory) {
	if o.roster.Revision != 0 {
		_ = d.Delete(ctx, o.roster.Key, o.roster.Revision) // unanswered, the next master waits for it once
	}
	if o.lease != nil {
		_ = o.lease.Revoke(ctx) // unanswered, it expires by itself
	}
}

// close gives the arena back, when no peer can touch it.
func (o *localOwner) close(ctx context.Context) error {
	if o == nil || o.memory == nil {
		return nil
	}
	if o.region.ID != 0 && !o.fenced {
		if err := o.agent.Deregister(ctx, o.region.ID); err != nil && !errors.Is(err, fabric.ErrUnknownRegion) && !errors.Is(err, fabric.ErrClosed) {
			return err
		}
		o.fenced = true
	}
	if o.unpin != nil {
		if err := o.unpin(ctx); err != nil {
			return err
		}
	}
	return o.memory.Close(ctx)
}

// Arena is the memory of the owner in this process, for producers that map it; nil,
// if there is none. It stays the store's.
func (s *Store) Arena() *mem.Arena {
	if s.owned == nil {
		return nil
	}
	return s.owned.memory
}

// grantSlack is how much longer a grant holds than its writer may take: it is the
// machine that ends it.
const grantSlack = time.Second

// grant opens the bytes of a reservation to its writer.
func (s *Store) grant(e protocol.Grant) {
	span, err := s.owned.open(s.self, e)
	s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Granted(now, e.Write, span, err) })
}

func (o *localOwner) open(self kv.Member, e protocol.Grant) (protocol.Span, error) {
	span := protocol.Span{Region: o.region.ID, Epoch: o.region.Epoch, Offset: e.Offset, Length: e.Bytes}
	if e.To == self {
		span.Grant = agent.NewID()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.grants[span.Grant] = &ownGrant{}
		return span, nil
	}
	list, err := o.agent.LocalSpans(spans(o.region, e.Offset, e.Bytes))
	if err != nil {
		return span, err
	}
	span.Grant, err = o.agent.Grant(agent.GrantOptions{
		Peer: e.To.Name, Incarnation: e.To.Incarnation, Op: fabric.Write, Side: agent.Side{List: list}, For: duration(e.For) + grantSlack,
	})
	return span, err
}

// spans is one piece of a region.
func spans(r agent.RegionInfo, offset, length uint64) fabric.List {
	part := fabric.Part{Region: r.ID, Epoch: r.Epoch}
	_ = part.Spans.Add(offset, length) // the first piece of a list overflows nothing
	return fabric.List{part}
}

const revokeTimeout = 10 * time.Second

// revoke ends a writer's grant, and waits until it writes no more.
func (s *Store) revoke(e protocol.Revoke) {
	own, err := s.owned.end(e.Grant)
	if !own {
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		defer cancel()
		if err = s.options.Agent.Revoke(ctx, e.Grant); errors.Is(err, fabric.ErrClosed) {
			err = nil
		}
	}
	s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Revoked(now, e.Write, err) })
}

// end revokes a grant of this process to itself, and reports whether it is one.
func (o *localOwner) end(id kv.ID) (own bool, err error) {
	o.mu.Lock()
	g := o.grants[id]
	if g != nil && g.mapped > 0 {
		err = errMapped
	} else {
		delete(o.grants, id)
	}
	o.mu.Unlock()
	if g == nil {
		return false, nil
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	g.revoked = true
	return true, err
}

// errMapped keeps the room of a writer that nothing can stop.
var errMapped = errors.New("store: a process that maps the arena may still write")

// maxMapped bounds how many programs may store to an arena by themselves. With hand-offs
// into it, they have no more than half of it.
const maxMapped = 64

// setMapped lets a writer store so many bytes by itself. It is false when its time is
// over, or when others have all that may be kept so.
func (o *localOwner) setMapped(id kv.ID, bytes uint64, program bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.grants[id]
	if g == nil || g.mapped > 0 {
		return g != nil
	}
	if o.mapped+bytes > o.options.Bytes/2 || program && o.programs >= maxMapped {
		return false
	}
	g.mapped, g.program = bytes, program
	o.mapped += bytes
	if program {
		o.programs++
	}
	return true
}

// unmap ends that.
func (o *localOwner) unmap(id kv.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.grants[id]
	if g == nil || g.mapped == 0 {
		return
	}
	o.mapped -= g.mapped
	if g.program {
		o.programs--
	}
	g.mapped = 0
}

// write writes into a reservation for a writer of this process.
func (o *localOwner) write(span protocol.Span, offset uint64, data []byte) error {
	o.mu.Lock()
	g := o.grants[span.Grant]
	o.mu.Unlock()
	if g == nil {
		return fmt.Errorf("%w: its time is over", ErrStale)
	}
	g.writing.RLock()
	defer g.writing.RUnlock()
	if g.revoked {
		return fmt.Errorf("%w: its time is over", ErrStale)
	}
	copy(o.memory.Bytes(span.Offset+offset, uint64(len(data))), data)
	return nil
}

// seal sums an object that is complete.
func (s *Store) seal(e protocol.Seal) {
	var sum uint64
	if e.Data != nil {
		sum = s.owned.heap.CopyIn(e.Plan.Offset, e.Data)
	} else {
		sum = s.owned.heap.SumPayload(e.Plan.Offset, e.Plan.Bytes)
	}
	s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Sealed(now, e.Write, sum) })
}
