package tcp

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// stagingBuffer is pinned memory through which the bytes of a GPU pass, a chunk at a time: one
// kernel gathers them into it, or scatters them out of it, whatever pieces they are in.
// It has two halves. One is the loop's, which sends it or reads into it; the GPU works on
// the other meanwhile, for a goroutine that the loop has started and waits for:
//
//	socket  | chunk 1 | chunk 2 | chunk 3 |
//	GPU               | chunk 1 | chunk 2 | chunk 3 |     of what arrives; what is sent
//	                                                      is gathered one chunk before
//
// One for each direction of a stream, used by that direction's loop alone. A GPU may
// let it wait for as long as it likes, so no lock is held meanwhile.
type stagingBuffer struct {
	mover  *vram.Mover
	memory *vram.Memory // of the GPU that the mover is of
	halves [2]bufferHalf
	turn   int // which half is the loop's
	moves  cuda.Moves
	sums   []byte
	busy   bool // the goroutine runs, or has not been waited for
	done   chan struct{}
}

// bufferHalf is as long as a chunk may be.
type bufferHalf struct {
	bytes []byte
	at    cuda.Pointer // of bytes
}

const (
	// stagedBytes is what is sent at a time; what a peer sends may be as long as a chunk
	// may be.
	stagedBytes = 1 << 20
	// stagedMoves is in how many moves, about.
	stagedMoves = 16 << 10
)

// beside is how a GPU is waited for that works beside the socket: a whole chunk takes the
// socket longer, and all streams want the CPU.
func beside(m *cuda.Moves) *cuda.Course { return &cuda.Course{Patient: m.Bytes() >= stagedBytes} }

// firstGPU is the first section of GPU memory that a part names, or nil. The part's
// memory is not given back meanwhile.
func firstGPU(b *fabric.Bound) *vram.Memory {
	for i := range b.List {
		if m := vram.Of(b.Section(i)); m != nil {
			return m
		}
	}
	return nil
}

// open makes the stage ready for memory of a GPU.
func (s *stagingBuffer) open(m *vram.Memory) error {
	if s.mover != nil && s.memory.Device == m.Device {
		return nil
	}
	s.close()
	mover, err := m.Pool.Mover(m.Device)
	if err != nil {
		return err
	}
	pinned, err := mover.Pinned()
	if err != nil {
		m.Pool.GiveBack(mover)
		return err
	}
	s.mover, s.memory = mover, m
	for i := range s.halves {
		at := i * mrdn.MaxChunk
		s.halves[i] = bufferHalf{pinned.Bytes()[at : at+mrdn.MaxChunk], pinned.At() + cuda.Pointer(at)}
	}
	return nil
}

// close waits for the GPU, and gives back what it has.
func (s *stagingBuffer) close() {
	s.await()
	if s.mover != nil {
		s.memory.Pool.GiveBack(s.mover)
		s.mover, s.halves = nil, [2]bufferHalf{}
	}
}

// own is the loop's half, and far the GPU's.
func (s *stagingBuffer) own() *bufferHalf { return &s.halves[s.turn] }
func (s *stagingBuffer) far() *bufferHalf { return &s.halves[1-s.turn] }

// run has work with the GPU done while the loop goes on. Nothing runs yet.
func (s *stagingBuffer) run(work func()) {
	if s.done == nil {
		s.done = make(chan struct{}, 1)
	}
	s.busy = true
	go func() {
		work()
		s.done <- struct{}{}
	}()
}

// await waits until nothing runs.
func (s *stagingBuffer) await() {
	if s.busy {
		<-s.done
		s.busy = false
	}
}

// idle reports whether nothing runs.
func (s *stagingBuffer) idle() bool {
	select {
	case <-s.done:
		s.busy = false
	default:
	}
	return !s.busy
}

// swap waits until nothing runs, and changes the halves.
func (s *stagingBuffer) swap() {
	s.await()
	s.turn = 1 - s.turn
}

// sections references the memory of a part, so that it stays while a GPU has it.
func sections(b *fabric.Bound) (all []*mem.Section, err error) {
	for i := range b.List {
		section := b.Section(i)
		if err := section.Acquire(); err != nil {
			release(all)
			return nil, err
		}
		all = append(all, section)
	}
	return all, nil
}

func release(all []*mem.Section) {
	for _, s := range all {
		s.Release()
	}
}

// next takes a run off a walk, at most so many bytes.
func next(w *fabric.Walk, room uint64) (part int, r mem.Run) {
	room = min(room, w.Left())
	part, r = w.Run()
	if r.Length > room {
		r.Length, r.Count = room, 1
	}
	r.Count = min(r.Count, room/r.Length)
	w.Skip(r.Length * r.Count)
	return part, r
}

// reaches reports whether all memory is of the stage's GPU.
func (s *stagingBuffer) reaches(of []*mem.Section) bool {
	return !slices.ContainsFunc(of, func(section *mem.Section) bool {
		m := vram.Of(section)
		return m == nil || m.Device != s.memory.Device
	})
}

// holding is which parts of all streams are being placed by GPUs, which a fence waits
// for.
type holding struct {
	mu    sync.Mutex // protects parts
	parts map[*link.Inbound]struct{}
}

func (h *holding) hold(p *link.Inbound) {
	p.Bound.Hold()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts[p] = struct{}{}
}

func (h *holding) drop(p *link.Inbound) {
	h.mu.Lock()
	delete(h.parts, p)
	h.mu.Unlock()
	p.Bound.Drop()
}

// quiet waits until no GPU places bytes of the parts that match selects, which have
// been stopped.
func (h *holding) quiet(ctx context.Context, match func(link.Part) bool) error {
	var busy []*link.Inbound
	h.mu.Lock()
	for p := range h.parts {
		if match(p.Part) {
			busy = append(busy, p)
		}
	}
	h.mu.Unlock()
	for _, p := range busy {
		idle := make(chan struct{})
		p.Bound.WhenIdle(func() { close(idle) })
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%w: a GPU still works on memory of transfer %s: %w", fabric.ErrBusy, p.ID, ctx.Err())
		}
	}
	return nil
}
