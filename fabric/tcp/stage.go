package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/cuda"
	"meridian/fabric"
	"meridian/fabric/link"
	"meridian/mem"
	"meridian/mem/vram"
	"meridian/mrdn"
)

// stage is pinned memory through which the bytes of a GPU pass, a chunk at a time: one
// kernel gathers them into it, or scatters them out of it, whatever pieces they are in.
// One for each direction of a stream, used by that direction's loop alone. A GPU may
// let it wait for as long as it likes, so no lock is held meanwhile.
type stage struct {
	mover  *vram.Mover
	memory *vram.Memory // of the GPU that the mover is of
	buffer []byte
	at     cuda.Pointer // of buffer
	moves  cuda.Moves
	sums   []byte
}

const (
	// stagedBytes is what is sent at a time; what a peer sends may be as long as a chunk
	// may be.
	stagedBytes = 1 << 20
	// stagedMoves is in how many moves at most.
	stagedMoves = 16 << 10
)

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
func (s *stage) open(m *vram.Memory) error {
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
	s.mover, s.memory, s.buffer, s.at = mover, m, pinned.Bytes()[:mrdn.MaxChunk], pinned.At()
	return nil
}

// close gives back what it has.
func (s *stage) close() {
	if s.mover != nil {
		s.memory.Pool.GiveBack(s.mover)
		s.mover, s.buffer = nil, nil
	}
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

// fetch brings the next bytes of a source into the buffer, and says how many.
func (s *stage) fetch(from fabric.Walk, of []*mem.Section) (n int, err error) {
	s.moves.Reset()
	for moves := 0; from.Left() > 0 && n < stagedBytes && moves < stagedMoves; moves++ {
		part, r := s.next(&from, uint64(stagedBytes-n))
		if m := vram.Of(of[part]); m != nil && m.Device == s.memory.Device {
			err = s.moves.AddRun(cuda.Move{
				From: m.At + cuda.Pointer(r.Offset), To: s.at + cuda.Pointer(n), FromStride: r.Stride, ToStride: r.Length, Length: r.Length, Count: r.Count,
			})
		} else {
			for i := uint64(0); i < r.Count && err == nil; i++ {
				at := uint64(n) + i*r.Length
				err = of[part].ReadAt(s.buffer[at:at+r.Length], r.Offset+i*r.Stride)
			}
		}
		if err != nil {
			return 0, err
		}
		n += int(r.Length * r.Count)
	}
	_, err = s.mover.Do(cuda.Copying, &s.moves, nil, nil)
	return n, err
}

// next takes a run off a walk, at most so many bytes.
func (s *stage) next(w *fabric.Walk, room uint64) (part int, r mem.Run) {
	room = min(room, w.Left())
	part, r = w.Run()
	if r.Length > room {
		r.Length, r.Count = room, 1
	}
	r.Count = min(r.Count, room/r.Length)
	w.Skip(r.Length * r.Count)
	return part, r
}

// place takes the first bytes of the buffer to a destination, and compares what lies
// there then, unless it is not to.
func (s *stage) place(to fabric.Walk, of []*mem.Section, bytes int, compare bool) error {
	for n := 0; n < bytes; {
		start := n
		s.moves.Reset()
		for moves := 0; n < bytes && moves < stagedMoves; moves++ {
			part, r := s.next(&to, uint64(bytes-n))
			if err := s.aim(of[part], r, n); err != nil {
				return err
			}
			n += int(r.Length * r.Count)
		}
		if err := s.scatter(compare); err != nil {
			return fmt.Errorf("%w, in the %d bytes from byte %d of a chunk on", err, n-start, start)
		}
	}
	return nil
}

// aim adds a run to what is placed; what is not of this GPU is placed at once.
func (s *stage) aim(section *mem.Section, r mem.Run, n int) error {
	m := vram.Of(section)
	if m == nil || m.Device != s.memory.Device {
		for i := range r.Count {
			at := uint64(n) + i*r.Length
			if err := section.WriteAt(s.buffer[at:at+r.Length], r.Offset+i*r.Stride); err != nil {
				return err
			}
		}
		return nil
	}
	return s.moves.AddRun(cuda.Move{
		From: s.at + cuda.Pointer(n), To: m.At + cuda.Pointer(r.Offset), FromStride: r.Length, ToStride: r.Stride, Length: r.Length, Count: r.Count,
	})
}

func (s *stage) scatter(compare bool) (err error) {
	work := cuda.Verified
	if !compare {
		work = cuda.Copying
	}
	s.sums, err = s.mover.Do(work, &s.moves, s.sums[:0], nil)
	if different := (*cuda.Difference)(nil); errors.As(err, &different) {
		return fmt.Errorf("%w: %w", fabric.ErrChecksum, err)
	}
	return err
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
