package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"meridian/keep/store/extent"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// Buffer is memory that values are put from and got into without a copy: owners
// read and write it themselves. Close gives it back.
type Buffer struct {
	agent  *agent.Agent
	memory *mem.Arena
	region agent.RegionInfo

	mu     sync.Mutex // held by Close; protects fenced
	fenced bool
	closed func() // nil, or told by Close
}

// Buffer makes one of so many bytes. Calls that are given a part of it as value
// need no copy.
func (s *Store) Buffer(bytes uint64) (*Buffer, error) {
	b, err := newBuffer(s.options.Agent, bytes)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffers[b] = struct{}{}
	b.closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.buffers, b)
	}
	return b, nil
}

// buffered is where a value lies, if that is in a Buffer.
func (s *Store) buffered(value []byte) (p place, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buffers) == 0 {
		return place{}, false
	}
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(value))))
	for b := range s.buffers {
		if at >= b.memory.Base() && at < b.memory.Base()+b.memory.Size() {
			return place{buffer: b, offset: at - b.memory.Base(), length: uint64(len(value))}, true
		}
	}
	return place{}, false
}

func newBuffer(a *agent.Agent, bytes uint64) (*Buffer, error) {
	memory, err := mem.NewArena(mem.ArenaOptions{Name: "buffer", SizeBytes: bytes, NUMANode: -1})
	if err != nil {
		return nil, err
	}
	region, err := a.Register(memory.Section, "store buffer")
	if err != nil {
		return nil, errors.Join(err, memory.Close(context.Background()))
	}
	return &Buffer{agent: a, memory: memory, region: region}, nil
}

// Bytes is the memory.
func (b *Buffer) Bytes() []byte { return b.memory.Bytes(0, b.memory.Size()) }

// Close waits until nothing touches the memory, and gives it back. After an error it
// may be called again.
func (b *Buffer) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		b.closed()
	}
	if !b.fenced {
		err := b.agent.Deregister(ctx, b.region.ID)
		if err != nil && !errors.Is(err, fabric.ErrUnknownRegion) && !errors.Is(err, fabric.ErrClosed) {
			return err
		}
		b.fenced = true
	}
	return b.memory.Close(ctx)
}

// place is memory that a peer can be let into.
type place struct {
	buffer         *Buffer
	offset, length uint64
	sums           *fabric.Sums // of what a peer writes there, where that is wanted
}

func (p place) bytes() []byte { return p.buffer.memory.Bytes(p.offset, p.length) }

func (p place) list() fabric.List { return spans(p.buffer.region, p.offset, p.length) }

// stagingBuffer is registered memory through which values of callers come and go.
type stagingBuffer struct {
	*Buffer

	mu    sync.Mutex // protects the rest
	space *extent.Allocator
	freed chan struct{} // closed when something is given back
}

func newStagingBuffer(a *agent.Agent, bytes uint64) (*stagingBuffer, error) {
	b, err := newBuffer(a, bytes)
	if err != nil {
		return nil, err
	}
	l := &stagingBuffer{Buffer: b, space: extent.New(b.memory.Size()), freed: make(chan struct{})}
	if err := l.space.Grow(b.memory.Size()); err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	whole, err := l.space.Claim(0, b.memory.Size())
	if err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	l.space.Free(whole)
	return l, nil
}

func (l *stagingBuffer) close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.Close(ctx)
}

// take finds room, and waits for it. What is larger than half of the landing gets
// memory of its own.
func (l *stagingBuffer) take(ctx context.Context, bytes uint64) (p place, giveBack func(), err error) {
	if bytes > l.memory.Size()/2 {
		b, err := newBuffer(l.agent, bytes)
		if err != nil {
			return place{}, nil, err
		}
		return place{buffer: b, length: bytes}, func() { _ = b.Close(context.WithoutCancel(ctx)) }, nil
	}
	for {
		id, offset, freed := l.try(bytes)
		if id != extent.None {
			return place{buffer: l.Buffer, offset: offset, length: bytes}, func() { l.giveBack(id) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return place{}, nil, fmt.Errorf("%w: %d bytes of the landing are taken: %w", ErrUnavailable, l.memory.Size(), ctx.Err())
		}
	}
}

const landingAlign = 4096

func (l *stagingBuffer) try(bytes uint64) (id extent.ID, offset uint64, freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id = l.space.Allocate(extent.RoundUp(bytes, landingAlign), landingAlign); id == extent.None {
		return id, 0, l.freed
	}
	offset, _ = l.space.At(id)
	return id, offset, nil
}

func (l *stagingBuffer) giveBack(id extent.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.space.Free(id)
	close(l.freed)
	l.freed = make(chan struct{})
}
