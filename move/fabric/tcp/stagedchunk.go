package tcp

import (
	"errors"
	"fmt"

	"meridian/move/checksum"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// A chunk for memory of a GPU is read into the stage. From there the GPU places it, while
// the next one is read, and sums both what it reads there and what lies at the destination
// then: as elsewhere in tcp, a chunk whose checksum is wrong may lie there, and its part
// fails. Nothing is locked while the GPU works: a part that is stopped meanwhile has not
// ended before it is done.

// prepare opens the stage for a chunk. Without one its bytes go the slow way.
func (s *scatter) prepare() {
	if s.staged != nil && s.gpu.open(s.staged) != nil {
		s.staged = nil
	}
}

// readStaged reads once into the stage, at most left bytes, and what follows the last of
// them into tail.
func (s *scatter) readStaged(left int, tail []byte) (placed, tailed int, err error) {
	s.mu.Lock()
	s.vector.reset()
	s.vector.add(s.gpu.own().bytes[s.held : s.held+left])
	s.vector.add(tail)
	s.mu.Unlock()
	n, err := s.readOnce()
	if err != nil {
		return 0, 0, err
	}
	placed = min(n, left)
	s.held += placed
	return placed, n - placed, nil
}

// stagedChunk is a chunk that the GPU places.
type stagedChunk struct {
	received
	from *bufferHalf
	to   fabric.Walk
	of   []*mem.Section
}

// land hands a chunk that is in the stage to the GPU, when that has placed the one before.
// The end hears of its part from there, when it was the last of it, or wrong.
func (r *receiver) land(p *link.Inbound, c received) {
	s := r.scatter
	r.stream.socket.silence.Paused(true) // nothing is read here
	defer r.stream.socket.silence.Paused(false)
	s.gpu.swap()
	l, err := s.toHost(p, c)
	if l == nil {
		r.finish(p, c, nil, err)
		return
	}
	place := func() {
		sums, err := s.gpu.place(l, s.options.NoChecksums)
		release(l.of)
		s.options.holding.drop(p)
		r.finish(p, c, sums, err)
	}
	if s.gpu.reaches(l.of) {
		s.gpu.run(place)
	} else { // what comes next may be for the host's memory that is part of this
		place()
	}
}

// toHost takes hold of the destination of a chunk; there is none if its part was stopped.
func (s *scatter) toHost(p *link.Inbound, c received) (*stagedChunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &stagedChunk{received: c, from: s.gpu.far(), to: p.Walk}
	p.Walk.Skip(uint64(c.Length))
	if p.Discard {
		return nil, nil
	}
	var err error
	if l.of, err = sections(p.Bound); err != nil {
		return nil, err
	}
	s.options.holding.hold(p)
	return l, nil
}

// place takes a chunk to its destination. Unless it is not to, it compares what lies there
// then, and returns the sums of the chunk.
func (s *stagingBuffer) place(l *stagedChunk, unsummed bool) ([]byte, error) {
	s.sums = s.sums[:0]
	work := cuda.Verified
	if unsummed {
		work = cuda.Copying
	}
	bytes := int(l.Length)
	for n := 0; n < bytes; {
		start := n
		s.moves.Reset()
		// One call of the mover's ends where a segment does: the next one's sums begin there.
		for moves := 0; n < bytes && (moves < stagedMoves || n%checksum.Segment != 0); moves++ {
			room := bytes - n
			if moves >= stagedMoves {
				room = min(room, checksum.Segment-n%checksum.Segment)
			}
			part, r := next(&l.to, uint64(room))
			if err := s.aim(l.of[part], r, l.from, n); err != nil {
				return nil, err
			}
			n += int(r.Length * r.Count)
		}
		if err := s.scatter(work); err != nil {
			return nil, fmt.Errorf("%w, in the %d bytes from byte %d of a chunk on", err, n-start, start)
		}
	}
	if !unsummed && !s.reaches(l.of) { // the GPU has seen some of it only
		s.sums = checksum.AppendSums(s.sums[:0], l.from.bytes[:bytes])
	}
	return s.sums, nil
}

// aim adds a run to what is placed; what is not of this GPU is placed at once.
func (s *stagingBuffer) aim(section *mem.Section, r mem.Run, from *bufferHalf, n int) error {
	m := vram.Of(section)
	if m != nil && m.Device == s.memory.Device {
		return s.moves.AddRun(cuda.Move{
			From: from.at + cuda.Pointer(n), To: m.At + cuda.Pointer(r.Offset), FromStride: r.Length, ToStride: r.Stride, Length: r.Length, Count: r.Count,
		})
	}
	for i := range r.Count {
		at := uint64(n) + i*r.Length
		if err := section.WriteAt(from.bytes[at:at+r.Length], r.Offset+i*r.Stride); err != nil {
			return err
		}
	}
	return nil
}

// scatter does what was aimed, and adds its sums.
func (s *stagingBuffer) scatter(w cuda.Work) (err error) {
	s.sums, err = s.mover.Do(w, &s.moves, s.sums, beside(&s.moves))
	if different := (*cuda.Difference)(nil); errors.As(err, &different) {
		return fmt.Errorf("%w: %w", fabric.ErrChecksum, err)
	}
	return err
}
