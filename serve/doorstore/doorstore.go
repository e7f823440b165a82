// Package doorstore is the object cache, and what engines keep and find of prefixes, as the
// engine door reaches them: the words of a store in those of the door, and values copied
// between clients and owners through memory that is bounded for all of them.
package doorstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"meridian/keep/store"
	"meridian/serve/door"
	"meridian/serve/doorserver"
)

// Cache is the object cache as the door reaches it.
type Cache struct {
	store     *store.Store
	self      string
	directMap bool
	staging   *staging
	slow      *slowMemory
}

// NewCache lets the door reach a store; self is the agent, and directMap says that clients may
// map what its owner keeps. The logger hears of clients whose memory does not come.
func NewCache(s *store.Store, self string, directMap bool, logger *slog.Logger) *Cache {
	return &Cache{store: s, self: self, directMap: directMap, staging: newStaging(uint32(os.Geteuid())), slow: newSlowMemory(logger)}
}

// stage is memory for a copy of so many bytes of a client's.
func (c *Cache) stage(ctx context.Context, client doorserver.Client, size uint64) (memory []byte, giveBack func(), err error) {
	if err := c.slow.refuse(client); err != nil {
		return nil, nil, err
	}
	return c.staging.take(ctx, client, size)
}

// codes are how clients are told what can come of a request.
var codes = []struct {
	err        error
	code, hint string
}{
	{store.ErrMissing, door.CodeMissing, ""}, // also what is not ready, or torn
	{store.ErrExists, door.CodeExists, "values never change: remove the key first"},
	{store.ErrBusy, door.CodeExists, "another writes it: wait for it, or for its time to be over"},
	{store.ErrOverloaded, door.CodeBusy, "try again, with less at a time; `meridian store stat` tells how owners stand"},
	{store.ErrCollision, door.CodeExists, "choose another key"},
	{store.ErrTorn, door.CodeMissing, ""},
	{store.ErrFull, door.CodeFull, "evict, unpin, or give owners more memory (store.bytes)"},
	{store.ErrTooLarge, door.CodeTooLarge, "give owners more memory (store.bytes), or cut the object"},
	{store.ErrStale, door.CodeStale, "write faster, or raise store.write_timeout_ms"},
	{store.ErrTooSmall, door.CodeTooSmall, ""},
	{store.ErrName, door.CodeTerms, ""},
	{store.ErrRefused, door.CodeUnavailable, ""},
	{store.ErrUnavailable, door.CodeUnavailable, "is an owner running (meridian store serve), and a master?"},
	{store.ErrClosed, door.CodeGone, "the agent stops"},
}

// clientError is an error as clients hear of it.
func clientError(err error) error {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &door.Problem{Code: c.code, Message: err.Error(), Hint: c.hint}
		}
	}
	return err
}

// putOptions prefers the owner of a rank. One that does not run now is preferred in vain.
func (c *Cache) putOptions(ctx context.Context, tenant string, w door.Wish) (o store.PutOptions, err error) {
	o = store.PutOptions{Tenant: tenant, PageSize: w.PageSize, Pinned: w.Pinned, Priority: w.Priority}
	if w.Owner != nil {
		o.Preferred, err = c.store.Ranked(ctx, int(*w.Owner))
	}
	return o, clientError(err)
}

func (c *Cache) Put(ctx context.Context, object doorserver.Object, from doorserver.Memory, w door.Wish) error {
	o, err := c.putOptions(ctx, object.Tenant, w)
	if err != nil {
		return err
	}
	if from.Section == nil {
		return clientError(c.store.Put(ctx, string(object.Key), from.Bytes, o))
	}
	if from.Size() <= smallBytes {
		value, giveBack, err := c.stage(ctx, from.Client, from.Size())
		if err != nil {
			return err
		}
		defer giveBack()
		if err := c.slow.copy(from.Client, func() error { return from.Section.ReadAt(value, 0) }); err != nil {
			return err
		}
		return clientError(c.store.Put(ctx, string(object.Key), value, o))
	}
	plan, err := c.store.OpenForWrite(ctx, string(object.Key), from.Size(), o)
	if err != nil {
		return clientError(err)
	}
	if err := c.write(ctx, plan, 0, from); err != nil {
		return errors.Join(clientError(err), abort(ctx, plan))
	}
	return committed(plan.Commit(ctx))
}

// committed is an error of a commit as clients hear of it. Where other bytes arrived than
// were written nothing is stored: that is no miss, and it can be written again.
func committed(err error) error {
	if errors.Is(err, store.ErrTorn) {
		return &door.Problem{Code: door.CodeStale, Message: err.Error(), Hint: "bytes changed on the way, and nothing was stored: write it again"}
	}
	return clientError(err)
}

const (
	// smallBytes is up to where an object is put by one message.
	smallBytes = 256 << 10
	// pieceBytes of a client's memory are copied at a time: they stay in the
	// processor's cache on the way. They never go straight into an arena, because a client
	// can make that take as long as it likes.
	pieceBytes = 256 << 10
)

func (c *Cache) write(ctx context.Context, plan *store.WritePlan, offset uint64, from doorserver.Memory) error {
	if from.Section == nil {
		return plan.Write(ctx, offset, from.Bytes)
	}
	piece, giveBack, err := c.stage(ctx, from.Client, min(from.Size(), pieceBytes))
	if err != nil {
		return err
	}
	defer giveBack()
	for at := uint64(0); at < from.Size(); at += uint64(len(piece)) {
		piece = piece[:min(uint64(len(piece)), from.Size()-at)]
		if err := c.slow.copy(from.Client, func() error { return from.Section.ReadAt(piece, at) }); err != nil {
			return err
		}
		if err := plan.Write(ctx, offset+at, piece); err != nil {
			return err
		}
	}
	return nil
}

func abort(ctx context.Context, plan *store.WritePlan) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return plan.Abort(ctx)
}

func (c *Cache) Get(ctx context.Context, object doorserver.Object, into doorserver.Memory) (uint64, error) {
	key, o := string(object.Key), store.GetOptions{Tenant: object.Tenant}
	if into.Section == nil {
		n, err := c.store.Get(ctx, key, into.Bytes, o)
		return c.sized(ctx, object, uint64(n), err)
	}
	size := into.Size()
	if size > stagingKept { // memory is made for the object, not for what a client says
		at, err := c.store.Locate(ctx, key, store.LocateOptions{Tenant: object.Tenant})
		if err != nil {
			return 0, clientError(err)
		}
		if at.Bytes > size {
			return at.Bytes, clientError(fmt.Errorf("%w: %d bytes for an object of %d", store.ErrTooSmall, size, at.Bytes))
		}
		size = at.Bytes
	}
	value, giveBack, err := c.stage(ctx, into.Client, size)
	if err != nil {
		return 0, err
	}
	defer giveBack()
	n, err := c.store.Get(ctx, key, value, o)
	if err != nil {
		return c.sized(ctx, object, uint64(n), err)
	}
	return uint64(n), c.copyOut(ctx, value[:n], into)
}

// copyOut writes a value to a client's memory, piece by piece.
func (c *Cache) copyOut(ctx context.Context, value []byte, into doorserver.Memory) error {
	at := uint64(0)
	for piece := range slices.Chunk(value, pieceBytes) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.slow.copy(into.Client, func() error { return into.Section.WriteAt(piece, at) }); err != nil {
			return err
		}
		at += uint64(len(piece))
	}
	return nil
}

// sized adds the size of an object that did not fit.
func (c *Cache) sized(ctx context.Context, object doorserver.Object, size uint64, err error) (uint64, error) {
	if errors.Is(err, store.ErrTooSmall) {
		at, gone := c.store.Locate(ctx, string(object.Key), store.LocateOptions{Tenant: object.Tenant})
		if gone != nil {
			return 0, clientError(gone)
		}
		size = at.Bytes
	}
	return size, clientError(err)
}

func (c *Cache) Remove(ctx context.Context, object doorserver.Object) error {
	return clientError(c.store.Remove(ctx, string(object.Key), store.RemoveOptions{Tenant: object.Tenant}))
}

// writer is an object that a client writes.
type writer struct {
	cache *Cache
	plan  *store.WritePlan
	name  []byte
	// mapped says that the client, which maps the arena, may store the object's bytes.
	mapped bool
}

func (c *Cache) Open(ctx context.Context, object doorserver.Object, sizeBytes uint64, w door.Wish, maps bool) (doorserver.Writer, error) {
	o, err := c.putOptions(ctx, object.Tenant, w)
	if err != nil {
		return nil, err
	}
	name, err := c.store.Name(object.Tenant, string(object.Key))
	if err != nil {
		return nil, clientError(err)
	}
	plan, err := c.store.OpenForWrite(ctx, string(object.Key), sizeBytes, o)
	if err != nil {
		return nil, clientError(err)
	}
	return &writer{c, plan, name, maps && c.isMapped(plan.Owner) && plan.Map()}, nil
}

func (w *writer) Place() door.Place {
	p := w.plan
	return door.Place{
		Owner: p.Owner, Rank: int32(p.Rank), Mapped: w.mapped, KeyHash: p.KeyHash, Header: p.Header, Epoch: p.Epoch,
		HeaderOffset: store.HeaderOffset(p.Header), PayloadOffset: p.Offset, SizeBytes: p.Bytes, PageSize: p.PageSize, Pages: p.Pages, Name: w.name,
	}
}

func (c *Cache) isMapped(owner string) bool { return c.directMap && owner == c.self }

func (w *writer) Write(ctx context.Context, offset uint64, from doorserver.Memory) error {
	return clientError(w.cache.write(ctx, w.plan, offset, from))
}

func (w *writer) Commit(ctx context.Context) error { return committed(w.plan.Commit(ctx)) }
func (w *writer) Abort(ctx context.Context) error  { return clientError(w.plan.Abort(ctx)) }

func (c *Cache) Locate(ctx context.Context, object doorserver.Object, wait time.Duration) (door.Place, error) {
	name, err := c.store.Name(object.Tenant, string(object.Key))
	if err != nil {
		return door.Place{}, clientError(err)
	}
	o := store.LocateOptions{Tenant: object.Tenant, Wait: wait > 0}
	if o.Wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	at, err := c.store.Locate(ctx, string(object.Key), o)
	switch {
	case errors.Is(err, store.ErrBusy), o.Wait && errors.Is(err, store.ErrMissing), o.Wait && ctx.Err() != nil:
		return door.Place{}, &door.Problem{Code: door.CodeNotReady, Message: err.Error(), Hint: "ask again, or wait longer for its writer"}
	case err != nil:
		return door.Place{}, clientError(err)
	}
	pages := (at.Bytes + uint64(at.PageSize) - 1) / max(1, uint64(at.PageSize))
	return door.Place{
		Owner: at.Owner, Rank: int32(at.Rank), Mapped: c.isMapped(at.Owner), KeyHash: at.KeyHash, Header: at.Header, Epoch: at.Epoch,
		HeaderOffset: store.HeaderOffset(at.Header), PayloadOffset: at.Offset, SizeBytes: at.Bytes, PageSize: at.PageSize, Pages: uint32(pages),
		Checksum: at.Checksum, Name: name,
	}, nil
}

func (c *Cache) Has(ctx context.Context, tenant string, keys [][]byte) ([]bool, error) {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = string(key)
	}
	present, err := c.store.Has(ctx, names, store.HasOptions{Tenant: tenant})
	return present, clientError(err)
}

// List goes on where a listing ended, which is an owner's name behind a place of its.
func (c *Cache) List(ctx context.Context, l door.List) (listing door.Listing, err error) {
	var from store.ListPlace
	if len(l.After) > 0 {
		at, n := binary.Uvarint(l.After)
		if n <= 0 {
			return listing, &door.Problem{Code: door.CodeTerms, Message: "after is not where a listing ended"}
		}
		from = store.ListPlace{Owner: string(l.After[n:]), At: at}
	}
	objects, next, err := c.store.ListPage(ctx, store.ListOptions{Tenant: l.Tenant, AllTenants: l.AllTenants, Prefix: string(l.Prefix), Most: l.Most}, from)
	if err != nil {
		return listing, clientError(err)
	}
	ranks := make(map[string]int32)
	for _, o := range c.store.Owners() {
		ranks[o.Name] = int32(o.Rank)
	}
	for _, o := range objects {
		rank, known := ranks[o.Owner]
		if !known {
			rank = -1
		}
		listing.Objects = append(listing.Objects, door.Listed{
			Tenant: o.Tenant, Key: []byte(o.Key), SizeBytes: o.Bytes, Checksum: o.Checksum, AgeSeconds: o.AgeSeconds, Rank: rank,
		})
	}
	if next != (store.ListPlace{}) {
		listing.Next = append(binary.AppendUvarint(nil, next.At), next.Owner...)
	}
	return listing, nil
}

func (c *Cache) Stats(ctx context.Context) ([]door.OwnerStats, error) {
	stats, err := c.store.Stats(ctx)
	if err != nil {
		return nil, clientError(err)
	}
	owners := make([]door.OwnerStats, len(stats.Owners))
	for i, o := range stats.Owners {
		owners[i] = door.OwnerStats{
			Name: o.Name, Rank: uint32(o.Rank), Here: o.Name == c.self, HeapUsed: o.HeapUsed, HeapTotal: o.HeapTotal, Ready: o.Ready, Writing: o.Writing,
			RingDepth: o.Waiting, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Reclaims: o.Reclaims, Timeouts: o.Timeouts,
			Refused: o.Refused, OutOfMemory: o.OutOfMemory, BytesIn: o.BytesIn, BytesOut: o.BytesOut, ArenaBytes: o.OwnerRecord.Bytes, CASFailures: o.CASFailures,
		}
		if o.Err != nil {
			owners[i].Problem = o.Err.Error()
		}
		if owners[i].Here {
			owners[i].PageTimeNs = uint64(stats.Client.MeanPage)
		}
	}
	return owners, nil
}

func (c *Cache) Evict(ctx context.Context, permille uint32) (objects uint64, err error) {
	for _, o := range c.store.Owners() {
		n, failed := c.store.EvictUntilBelow(ctx, o.Name, float64(permille)/1000)
		objects += n
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("owner %s: %w", o.Name, failed))
		}
	}
	return objects, clientError(err)
}

func (c *Cache) Arena() (doorserver.Arena, error) {
	if !c.directMap {
		return doorserver.Arena{}, &door.Problem{Code: door.CodeDenied, Message: "the agent lets no process map its objects", Hint: "set store.direct_map"}
	}
	shared, err := c.store.Share()
	if err != nil {
		return doorserver.Arena{}, clientError(err)
	}
	return doorserver.Arena{File: shared.File, Owner: c.self, Rank: uint32(shared.Rank), SizeBytes: shared.Bytes, Writable: true}, nil
}
