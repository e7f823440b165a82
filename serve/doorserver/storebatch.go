package doorserver

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"meridian/move/mem"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// storeProblem finds the code of what the cache says; nil is no problem.
func storeProblem(err error) *door.Problem {
	var told *door.Problem
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EFAULT):
		return unreachable(err)
	case errors.Is(err, context.DeadlineExceeded):
		return problem(door.CodeDeadline, "the cache did not answer in time: %v", err)
	case errors.Is(err, context.Canceled):
		return problem(door.CodeGone, "the connection has ended: %v", err)
	}
	return problemOf(err)
}

// stretches are the memory of a client that a request names, one for each key or none.
type stretches struct{ addresses, sizes []uint64 }

func (s stretches) size(i int) uint64 {
	if len(s.sizes) == 0 {
		return 0
	}
	return s.sizes[i]
}

func (s stretches) check(keys int) *door.Problem {
	if len(s.addresses) != len(s.sizes) || len(s.sizes) != 0 && len(s.sizes) != keys {
		return problem(door.CodeMalformed, "columns of a request have different lengths")
	}
	for i := range s.sizes {
		if end := s.addresses[i] + s.sizes[i]; end < s.addresses[i] {
			return problem(door.CodeSize, "memory at %#x of %d bytes", s.addresses[i], s.sizes[i])
		}
	}
	return nil
}

// with borrows memory of the client for as long as use takes.
func (d *storeRequests) with(ctx context.Context, address, size uint64, use func(Memory) error) error {
	select {
	case d.copying <- struct{}{}:
		defer func() { <-d.copying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	section, p := d.conn.reach(address, size)
	if p != nil {
		return p
	}
	defer d.giveBack(section)
	if err := section.Acquire(); err != nil {
		return err
	}
	defer section.Release()
	return use(Memory{Section: section, Client: Client{d.conn.peer.uid, d.conn.peer.pid}})
}

// giveBack is never given up: memory in doubt must not be given back.
func (d *storeRequests) giveBack(section *mem.Section) {
	for closeSection(section) != nil {
		d.conn.server.options.Logger.Error("memory of a client is still in use", "peer", d.conn.peer.String())
	}
}

// batchWorkers is how many objects of one request are on their way at a time, and how
// many of all requests of a connection with memory of its client.
const batchWorkers = 8

// each does the same for every entry of a request.
func each(ctx context.Context, n int, do func(i int) error) []error {
	errs := make([]error, n)
	var next atomic.Int64
	var all sync.WaitGroup
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(i)
			}
		}
	}
	for range min(n, batchWorkers) - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
	return errs
}

// problemColumn is empty where all went well.
func problemColumn(errs []error) []*doorpb.Problem {
	if errors.Join(errs...) == nil {
		return nil
	}
	column := make([]*doorpb.Problem, len(errs))
	for i, err := range errs {
		column[i] = door.ProblemMessage(storeProblem(err))
	}
	return column
}

func (d *storeRequests) planPut(tenant string, m *doorpb.StorePut) (job, *door.Problem) {
	keys, values, at := m.GetKeys(), m.GetValues(), stretches{m.GetAddresses(), m.GetSizes()}
	if p := checkKeys(keys, door.MaxStoreKeys); p != nil {
		return nil, p
	}
	if p := at.check(len(keys)); p != nil {
		return nil, p
	}
	if len(values) != 0 && len(values) != len(keys) {
		return nil, problem(door.CodeMalformed, "columns of a request have different lengths")
	}
	for i := range keys {
		inline := 0
		if len(values) > 0 {
			inline = len(values[i])
		}
		if p := checkValue(inline, at.size(i)); p != nil {
			return nil, p
		}
	}
	w, p := door.ParseWish(m.GetWish())
	return func(ctx context.Context) storeReply {
		errs := each(ctx, len(keys), func(i int) error {
			object := Object{tenant, keys[i]}
			if at.size(i) == 0 {
				return d.cache().Put(ctx, object, Memory{Bytes: values[i]}, w)
			}
			return d.with(ctx, at.addresses[i], at.sizes[i], func(from Memory) error { return d.cache().Put(ctx, object, from, w) })
		})
		return storeReply{result: &doorpb.StoreResult{Problems: problemColumn(errs)}}
	}, p
}

// checkValue checks that a value is in the frame or in memory, and not in both.
func checkValue(inline int, size uint64) *door.Problem {
	switch {
	case inline > door.MaxStoreInline:
		return problem(door.CodeSize, "a value of %d bytes in the frame, at most %d; larger ones stay in memory of the client", inline, door.MaxStoreInline)
	case inline > 0 && size > 0:
		return problem(door.CodeMalformed, "a value in the frame and in memory")
	case inline == 0 && size == 0:
		return problem(door.CodeTerms, "an empty value; each has at least one byte")
	}
	return nil
}

func (d *storeRequests) planGet(tenant string, m *doorpb.StoreGet) (job, *door.Problem) {
	keys, at := m.GetKeys(), stretches{m.GetAddresses(), m.GetSizes()}
	if p := checkKeys(keys, door.MaxStoreKeys); p != nil {
		return nil, p
	}
	return func(ctx context.Context) storeReply {
		g := &getting{desk: d, tenant: tenant, keys: keys, at: at, sizes: make([]uint64, len(keys))}
		errs := each(ctx, len(keys), func(i int) error { return g.get(ctx, i) })
		return storeReply{result: &doorpb.StoreResult{Problems: problemColumn(errs), Sizes: g.sizes, Values: g.values}}
	}, at.check(len(keys))
}

// getting is a StoreGet on its way.
type getting struct {
	desk   *storeRequests
	tenant string
	keys   [][]byte
	at     stretches
	sizes  []uint64 // each by who gets it

	mu     sync.Mutex // protects the rest
	values [][]byte
	inline int // bytes in values
}

func (g *getting) get(ctx context.Context, i int) (err error) {
	object := Object{g.tenant, g.keys[i]}
	if size := g.at.size(i); size > 0 {
		return g.desk.with(ctx, g.at.addresses[i], size, func(into Memory) error {
			g.sizes[i], err = g.desk.cache().Get(ctx, object, into)
			return err
		})
	}
	value := inlineValues.Get().(*[door.MaxStoreInline]byte)
	defer inlineValues.Put(value)
	if g.sizes[i], err = g.desk.cache().Get(ctx, object, Memory{Bytes: value[:]}); err != nil {
		return err
	}
	return g.keep(i, value[:min(g.sizes[i], door.MaxStoreInline)])
}

// inlineValues are where values are read to that go into replies.
var inlineValues = sync.Pool{New: func() any { return new([door.MaxStoreInline]byte) }}

// keep copies a value into the reply, if it has room.
func (g *getting) keep(i int, value []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inline+len(value) > door.MaxStoreInline {
		return problem(door.CodeTooSmall, "%d bytes beside %d others; a reply takes %d", len(value), g.inline, door.MaxStoreInline)
	}
	if g.values == nil {
		g.values = make([][]byte, len(g.keys))
	}
	g.values[i] = bytes.Clone(value)
	g.inline += len(value)
	return nil
}

func (d *storeRequests) planRemove(tenant string, m *doorpb.StoreRemove) (job, *door.Problem) {
	keys := m.GetKeys()
	return func(ctx context.Context) storeReply {
		errs := each(ctx, len(keys), func(i int) error { return d.cache().Remove(ctx, Object{tenant, keys[i]}) })
		return storeReply{result: &doorpb.StoreResult{Problems: problemColumn(errs)}}
	}, checkKeys(keys, door.MaxStoreKeys)
}
