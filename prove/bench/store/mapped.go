package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/move/mem"
)

// mapped is producers that have owners' arenas mapped and ask no owner (v2): each
// takes room, copies, makes its object READY and announces it. Owners hear them
// meanwhile. Objects go to the owners in turn.
type mapped struct {
	owners int
	page   uint32

	row     int
	current Case
	from    *mem.Arena
	homes   []*home
}

// home is an arena with its owner.
type home struct {
	arena *mem.Arena
	heap  *arena.Heap
	owner *owner.Owner
}

// hearEvery is how often an owner looks for announcements.
const hearEvery = 100 * time.Microsecond

func (m *mapped) Name() string { return "v2" }
func (m *mapped) PIDs() []int  { return nil }

func (m *mapped) load(ctx context.Context, row int, c Case) (err error) {
	if err := m.Close(ctx); err != nil {
		return err
	}
	m.row, m.current = row, c
	if m.from, err = mem.NewArena(mem.ArenaOptions{Name: "bench-producers", SizeBytes: c.bytes(), NUMANode: -1}); err != nil {
		return err
	}
	for object := range c.Count {
		fill(m.source(object), object)
	}
	each := uint64((c.Count + m.owners - 1) / m.owners)
	extent := arena.ExtentOf(c.Object, arena.MaxKey)
	size := each * (extent.Size + extent.Align + arena.HeaderSize)
	for range m.owners {
		made, err := mem.NewArena(mem.ArenaOptions{Name: "bench-owner", SizeBytes: size + size/4 + 1<<20, NUMANode: -1})
		if err != nil {
			return err
		}
		m.homes = append(m.homes, &home{arena: made})
	}
	return nil
}

func (m *mapped) source(object int) []byte {
	return m.from.Bytes(uint64(object)*m.current.Object, m.current.Object)
}

// empty makes an arena new.
func (h *home) empty(headers int) (err error) {
	memory := h.arena.Bytes(0, h.arena.Size())
	clear(memory)
	if h.heap, err = arena.Format(memory, arena.Options{Headers: uint32(headers), Ring: mostOperations}); err != nil {
		return err
	}
	h.owner, err = owner.New(h.heap, owner.Options{})
	return err
}

// hear takes announcements in until as many objects are known.
func (h *home) hear(ctx context.Context, objects int) {
	for ctx.Err() == nil {
		h.owner.Ingest(partNow, mostOperations)
		admit(h.owner)
		if h.owner.Stats().Ready == uint64(objects) {
			return
		}
		time.Sleep(hearEvery)
	}
}

// admit lets what came be found, as a master does that has no other claim.
func admit(w *owner.Owner) {
	for _, hash := range w.Arrived() {
		w.Admit(hash)
	}
}

func (m *mapped) round(ctx context.Context, round int) (Lap, error) {
	for _, h := range m.homes {
		if err := h.empty(m.current.Count); err != nil {
			return Lap{}, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var hearing sync.WaitGroup
	start := time.Now()
	for i, h := range m.homes {
		objects := (m.current.Count + len(m.homes) - 1 - i) / len(m.homes)
		hearing.Go(func() { h.hear(ctx, objects) })
	}
	lap, err := m.current.run(ctx, func(_ context.Context, _, object int) error { return m.produce(round, object) })
	if err != nil {
		stop()
	}
	hearing.Wait()
	lap.Took = time.Since(start) // when the owners know of everything
	return lap, errors.Join(err, ctx.Err())
}

func (m *mapped) produce(round, object int) error {
	heap, name := m.homes[object%len(m.homes)].heap, []byte(key(m.row, round, object))
	r, err := heap.Reserve(arena.HashKey(name), m.current.Object, len(name), m.page)
	if err != nil {
		return err
	}
	if !heap.Write(&r, name, m.source(object)) {
		return errors.New("the room was taken back")
	}
	told := heap.AnnounceOf(&r, uint32(object%len(m.homes)))
	if !heap.Tell(&told) {
		return errors.New("the ring is full")
	}
	return nil
}

func (m *mapped) verify(ctx context.Context) error {
	if _, err := m.round(ctx, 0); err != nil {
		return err
	}
	got := make([]byte, m.current.Object)
	return m.current.check(func(object int) []byte {
		h, name := m.homes[object%len(m.homes)], []byte(key(m.row, 0, object))
		at, err := h.owner.Locate(partNow, name)
		if err == nil {
			err = h.heap.Read(arena.Wanted{Index: at.Header, Epoch: at.Epoch, Key: name}, got, 0)
		}
		if err != nil {
			return fmt.Append(nil, err)
		}
		return got
	})
}

func (m *mapped) unload(context.Context) error { return nil }

func (m *mapped) Close(ctx context.Context) error {
	var errs []error
	for _, h := range m.homes {
		errs = append(errs, h.arena.Close(ctx))
	}
	if m.from != nil {
		errs = append(errs, m.from.Close(ctx))
	}
	m.homes, m.from = nil, nil
	return errors.Join(errs...)
}
