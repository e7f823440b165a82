package host

import (
	"bytes"
	"errors"
	"fmt"

	"meridian/cuda"
	"meridian/fabric"
	"meridian/mem"
	"meridian/mem/vram"
)

// scratch is what a hand works with that launches kernels.
type scratch struct {
	there, back cuda.Moves // the copy, and the reading of what was placed
	sums, again []byte
	in, out     []passing // what goes through pinned memory, before and after the kernel
	pinned      *cuda.Pinned
	used        uint64 // of pinned
}

// passing is some bytes of memory that the GPU does not see, and where they lie in
// pinned memory.
type passing struct {
	fabric.Cut
	at uint64
}

// What one launch may be made of, whatever the peer's list looks like.
const (
	maxMoves = 2 * gpuRuns
	// maxPassing are pieces that go through pinned memory one by one.
	maxPassing = 4 << 10
)

// copy takes and places what lies before two walks, and compares what lies there: in one
// launch, unless it is cut very small.
func (s *scratch) copy(j *gpuJob, m *vram.Mover, from, to fabric.Walk) (err error) {
	if j.apart {
		if s.pinned, err = m.Pinned(); err != nil {
			return err
		}
	}
	for to.Left() > 0 {
		if err := s.some(j, m, &from, &to); err != nil {
			return err
		}
	}
	return nil
}

func (s *scratch) some(j *gpuJob, m *vram.Mover, from, to *fabric.Walk) error {
	start := *to
	if err := s.pair(j, from, to); err != nil {
		return err
	}
	if err := s.readApart(j); err != nil {
		return err
	}
	if err := j.taking.Hold(); err != nil {
		return err
	}
	err := s.launch(j, m)
	j.taking.Drop()
	if err == nil && j.compare && !bytes.Equal(s.sums, s.again) {
		err = j.differing(start, s.sums, s.again)
	}
	if err != nil {
		return err
	}
	return s.placeApart(j)
}

// launch has the GPU copy, and then read what it has placed. The gate looks at the flag
// before every launch.
func (s *scratch) launch(j *gpuJob, m *vram.Mover) (err error) {
	gate := func() error {
		if err := j.taking.Enter(); err != nil {
			return err
		}
		j.taking.Leave()
		return nil
	}
	if !j.compare {
		_, err = m.Do(cuda.Copying, &s.there, nil, gate)
		return err
	}
	if s.sums, err = m.Do(cuda.CopySummed, &s.there, s.sums[:0], gate); err != nil {
		return err
	}
	s.again, err = m.Do(cuda.Summing, &s.back, s.again[:0], gate)
	return err
}

// pair makes the moves of a launch, run by run of two walks.
func (s *scratch) pair(j *gpuJob, from, to *fabric.Walk) error {
	s.there.Reset()
	s.back.Reset()
	s.in, s.out, s.used = s.in[:0], s.out[:0], 0
	for moves := 0; to.Left() > 0 && moves < maxMoves && len(s.in)+len(s.out) < maxPassing; moves++ {
		source, f := from.Run()
		place, t := to.Run()
		move := step(f, t, to.Left())
		if !j.sources[source].seen || !j.places[place].seen {
			move.Count = min(move.Count, maxPassing)
		}
		size := move.Length * move.Count
		move.From, move.To = cuda.Pointer(f.Offset), cuda.Pointer(t.Offset)
		if v := j.sources[source]; v.seen {
			move.From += v.at
		} else {
			s.in = s.pass(s.in, source, mem.Run{Offset: f.Offset, Length: move.Length, Stride: move.FromStride, Count: move.Count}, &move.From)
			move.FromStride = move.Length
		}
		if v := j.places[place]; v.seen {
			move.To += v.at
		} else {
			s.out = s.pass(s.out, place, mem.Run{Offset: t.Offset, Length: move.Length, Stride: move.ToStride, Count: move.Count}, &move.To)
			move.ToStride = move.Length
		}
		read := cuda.Move{From: move.To, To: move.To, FromStride: move.ToStride, ToStride: move.ToStride, Length: move.Length, Count: move.Count}
		if err := errors.Join(s.there.AddRun(move), s.back.AddRun(read)); err != nil {
			return err
		}
		from.Skip(size)
		to.Skip(size)
	}
	return nil
}

// step is how far two runs go on together: pieces of the shorter length.
func step(f, t mem.Run, left uint64) (m cuda.Move) {
	m = cuda.Move{Length: min(f.Length, t.Length, left), Count: 1}
	switch {
	case m.Length == left:
	case f.Length == t.Length:
		m.Count = min(f.Count, t.Count)
	case f.Length < t.Length:
		m.Count = min(f.Count, t.Length/f.Length)
	default:
		m.Count = min(t.Count, f.Length/t.Length)
	}
	if m.Count = min(m.Count, left/m.Length); m.Count > 1 {
		m.FromStride, m.ToStride = f.Stride, t.Stride
		if f.Length != m.Length {
			m.FromStride = m.Length
		}
		if t.Length != m.Length {
			m.ToStride = m.Length
		}
	}
	return m
}

// pass finds room in pinned memory for a run.
func (s *scratch) pass(list []passing, part int, r mem.Run, at *cuda.Pointer) []passing {
	const line = 16 // which kernels take at a time
	s.used = (s.used + line - 1) / line * line
	*at = s.pinned.At() + cuda.Pointer(s.used)
	for i := range r.Count {
		list = append(list, passing{fabric.Cut{Part: part, Offset: r.Offset + i*r.Stride, Length: r.Length}, s.used})
		s.used += r.Length
	}
	return list
}

// readApart brings what the GPU does not see of the source to where it does. That may
// take as long as another process likes, so that nothing is held meanwhile.
func (s *scratch) readApart(j *gpuJob) error {
	for i := range s.in {
		p := &s.in[i]
		if i%maxCuts == 0 {
			if err := j.taking.Enter(); err != nil {
				return err
			}
			j.taking.Leave()
		}
		if err := j.loans[p.Part].section.ReadAt(s.pinned.Bytes()[p.at:p.at+p.Length], p.Offset); err != nil {
			return err
		}
	}
	return nil
}

// placeApart places what the GPU does not see of the destination.
func (s *scratch) placeApart(j *gpuJob) error {
	for i := 0; i < len(s.out); i += maxCuts {
		if err := s.placeSome(j, s.out[i:min(i+maxCuts, len(s.out))]); err != nil {
			return err
		}
	}
	return nil
}

func (s *scratch) placeSome(j *gpuJob, some []passing) error {
	if err := j.taking.Enter(); err != nil {
		return err
	}
	defer j.taking.Leave()
	for i := range some {
		p := &some[i]
		same, err := place(j.sections[p.Part], p.Offset, s.pinned.Bytes()[p.at:p.at+p.Length], j.compare)
		if err == nil && !same {
			err = j.taking.Differs(fmt.Sprintf("region %d at [%d,+%d)", j.taking.In.Bound.List[p.Part].Region, p.Offset, p.Length))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// place copies, and reports whether what lies there then is the source's.
func place(dst *mem.Section, offset uint64, source []byte, compare bool) (same bool, err error) {
	buffer := between.Get().(*[pieceBytes]byte)
	defer between.Put(buffer)
	for len(source) > 0 {
		n := min(len(source), len(buffer))
		if err := dst.WriteAt(source[:n], offset); err != nil {
			return false, err
		}
		if compare {
			if err := dst.ReadAt(buffer[:n], offset); err != nil || !bytes.Equal(buffer[:n], source[:n]) {
				return false, err
			}
		}
		source, offset = source[n:], offset+uint64(n)
	}
	return true, nil
}
