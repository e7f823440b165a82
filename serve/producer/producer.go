// Package producer is for programs on an agent's host that make many objects: they
// map the arena of the agent's owner, and put objects there without asking.
//
//	take room ─▶ copy and sum ─▶ flip READY ─▶ announce     no message to the agent, none to the master
//
// The owner finds the object within its next look, fifty milliseconds apart, and
// claims the key then: until that a get misses it, and where the key exists
// already it is this object that goes. Where an arena cannot be mapped or has no
// room that can be taken, and for what only an owner can promise (a pin, a
// priority, another owner), a put is one of the agent's door.
package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
	"meridian/serve/door"
)

// Producer puts objects of one tenant. Its methods may be called from several
// goroutines.
type Producer struct {
	door   *door.Store
	tenant string

	mu    sync.RWMutex // held by those who use the mapping; protects the rest
	arena *mapping     // nil: none
	skips int          // puts that do not ask for one
	shut  bool

	taken, asked atomic.Uint64
}

// mapping is the memory of the owner of an agent that was connected when it was
// mapped. An agent that is started again has other memory.
type mapping struct {
	door.Arena
	memory []byte
	heap   *arena.Heap
}

// Stats count puts.
type Stats struct {
	Taken uint64 // went into the arena without a question
	Asked uint64 // were the agent's to do
}

// askAgain is after how many puts an agent is asked again for what it has refused.
const askAgain = 1000

// Open makes a producer of a connection, which stays the caller's to close.
func Open(s *door.Store, tenant string) *Producer { return &Producer{door: s, tenant: tenant} }

// Put stores an object. An error means that it is not stored, but for a
// connection that ended meanwhile.
func (p *Producer) Put(ctx context.Context, key, value []byte, w door.Wish) error {
	name, err := protocol.ObjectName(p.tenant, string(key))
	if err != nil {
		return err
	}
	if plain := w.Owner == nil && !w.Pinned && w.Priority == 0; plain && p.take(ctx, name, value, w.PageSize) {
		p.taken.Add(1)
		return nil
	}
	p.asked.Add(1)
	return p.door.Put(ctx, key, value, w)
}

// Stats counts puts so far.
func (p *Producer) Stats() Stats { return Stats{Taken: p.taken.Load(), Asked: p.asked.Load()} }

// Close unmaps the arena. Puts that come later are the agent's to do.
func (p *Producer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	return p.unmap()
}

// take puts an object where there is room, and reports whether its owner has it now.
func (p *Producer) take(ctx context.Context, name, value []byte, pageSize uint32) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.arena == nil || !p.arena.Current() {
		p.mu.RUnlock()
		p.refresh(ctx)
		p.mu.RLock()
	}
	m := p.arena
	if m == nil || !m.Current() {
		return false
	}
	if pageSize == 0 {
		pageSize = arena.PageSize
	}
	r, err := m.heap.Reserve(arena.HashKey(name), uint64(len(value)), len(name), pageSize)
	if err != nil || !m.heap.Write(&r, name, value) {
		return false
	}
	told := m.heap.AnnounceOf(&r, 0)
	m.heap.Tell(&told) // a full ring is made up for by the owner's scan
	// An agent that has gone took its memory along: what was put there was put nowhere.
	return m.Current()
}

// refresh maps the arena of the agent that is connected now.
func (p *Producer) refresh(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut || p.arena != nil && p.arena.Current() {
		return
	}
	if p.skips > 0 {
		p.skips--
		return
	}
	_ = p.unmap() // it can fail only for memory that is not mapped
	a, err := p.door.Map(ctx)
	if err == nil {
		p.arena, err = mapArena(a)
	}
	if err != nil {
		p.skips = askAgain
	}
}

func (p *Producer) unmap() error {
	m := p.arena
	p.arena = nil
	if m == nil {
		return nil
	}
	return unix.Munmap(m.memory)
}

func mapArena(a door.Arena) (*mapping, error) {
	defer a.File.Close()
	if !a.Writable {
		return nil, errors.New("producer: the arena is only for reading")
	}
	info, err := a.File.Stat()
	if err != nil {
		return nil, err
	}
	memory, err := mapFile(a.File, info.Size())
	if err != nil {
		return nil, err
	}
	heap, err := arena.Open(memory)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	return &mapping{a, memory, heap}, nil
}

func mapFile(f *os.File, size int64) ([]byte, error) {
	if size <= 0 || int64(int(size)) != size {
		return nil, fmt.Errorf("producer: an arena of %d bytes", size)
	}
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
