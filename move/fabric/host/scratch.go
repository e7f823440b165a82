package host

import (
	"bytes"
	"errors"
	"fmt"

	"meridian/move/checksum"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// scratch is what a copier works with that launches kernels.
type scratch struct {
	moves   cuda.Moves
	shifts  []cuda.Shift
	sums    []byte
	placed  checksum.Digest
	in, out []passing // what goes through pinned memory, before and after the kernel
	pinned  *cuda.Pinned
	used    uint64 // of pinned
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
	pair := s.pair
	if j.rounds > 1 && !j.apart && to.Left()%j.each == 0 { // both begin with a part
		pair = s.pairRounds
	}
	if err := pair(j, from, to); err != nil {
		return err
	}
	if err := s.readApart(j); err != nil {
		return err
	}
	if err := j.taking.Hold(); err != nil {
		return err
	}
	err := s.launch(j, m, start)
	j.taking.Drop()
	if different := (*cuda.Difference)(nil); errors.As(err, &different) {
		err = j.differing(start, different)
	}
	if err != nil {
		return err
	}
	return s.placeApart(j)
}

// hostLaunch is what a launch moves whose bytes the CPU then reads where they lie in host
// memory: a few of them are under way at a time.
const hostLaunch = 8 << 20

// launch has the GPU copy, and read what it has placed. The gate looks at the flag
// before every launch. What was placed in host memory the CPU reads, while the next
// launches run: the GPU would read it back over the bus on which the next bytes come.
func (s *scratch) launch(j *gpuJob, m *vram.Mover, to fabric.Walk) (err error) {
	course := cuda.Course{Gate: func() error {
		if err := j.taking.Enter(); err != nil {
			return err
		}
		j.taking.Leave()
		return nil
	}}
	work := cuda.Verified
	switch {
	case !j.compare:
		work = cuda.Copying
	case j.onHost && !j.apart:
		work = cuda.CopySummed
		segments := uint64(0)
		course.LaunchBytes = hostLaunch
		course.Done = func(bytes uint64, sums []byte) error {
			defer func() { segments += uint64(len(sums)) / 8 }()
			return s.reread(j, &to, bytes, sums, segments)
		}
	}
	s.sums, err = m.Do(work, &s.moves, s.sums[:0], &course)
	return err
}

// reread sums what a launch has placed in host memory, and compares; so many segments
// were before it.
func (s *scratch) reread(j *gpuJob, to *fabric.Walk, left uint64, sums []byte, before uint64) error {
	s.placed.Reset()
	for left > 0 {
		cut := to.Next(left)
		s.placed.Add(j.sections[cut.Part].Bytes(cut.Offset, cut.Length))
		left -= cut.Length
	}
	s.placed.Sum()
	for i, got := 0, s.placed.Sums(); i < len(sums); i += 8 {
		if !bytes.Equal(sums[i:i+8], got[i:i+8]) {
			return &cuda.Difference{Segment: before + uint64(i)/8}
		}
	}
	return nil
}

// pairRounds pairs the places of one round, and has the others done the same way, each
// where its memory is.
func (s *scratch) pairRounds(j *gpuJob, from, to *fabric.Walk) error {
	bytes := to.Left()
	source, place := from.Part(), to.Part()
	f, t := *from, *to
	f.Limit(j.each)
	t.Limit(j.each)
	if err := s.pair(j, &f, &t); err != nil {
		return err
	}
	if t.Left() > 0 { // cut so small on the two sides that a round is several launches
		return s.pair(j, from, to)
	}
	s.shifts = s.shifts[:0]
	for i := range int(bytes / j.each) {
		s.shifts = append(s.shifts, cuda.Shift{
			From: uint64(j.sources[source+i].at - j.sources[source].at), To: uint64(j.places[place+i].at - j.places[place].at),
		})
	}
	from.Skip(bytes)
	to.Skip(bytes)
	return s.moves.Repeat(s.shifts)
}

// pair makes the moves of a launch, run by run of two walks.
func (s *scratch) pair(j *gpuJob, from, to *fabric.Walk) error {
	s.moves.Reset()
	s.in, s.out, s.used = s.in[:0], s.out[:0], 0
	for moves := 0; to.Left() > 0 && moves < maxMoves && len(s.in)+len(s.out) < maxPassing; moves++ {
		if n, err := s.blocks(j, from, to, maxMoves-moves); n > 0 || err != nil {
			if moves += n - 1; err != nil {
				return err
			}
			continue
		}
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
		if err := s.moves.AddRun(move); err != nil {
			return err
		}
		from.Skip(size)
		to.Skip(size)
	}
	return nil
}

// blocks makes moves of pieces that are of one length on both sides, as those of most
// lists are, and says how many moves.
func (s *scratch) blocks(j *gpuJob, from, to *fabric.Walk, most int) (moves int, err error) {
	source, f := from.Whole()
	place, t := to.Whole()
	if len(f) == 0 || len(t) == 0 || !j.sources[source].seen || !j.places[place].seen {
		return 0, nil
	}
	read, write := j.sources[source].at, j.places[place].at
	left := to.Left()
	var a, b progress
	for moves < most && a.run < len(f) && b.run < len(t) {
		x, y := &f[a.run], &t[b.run]
		count := min(x.Count-a.piece, y.Count-b.piece)
		size := x.Length * count
		if x.Length != y.Length || size > left {
			break
		}
		move := cuda.Move{
			From: read + cuda.Pointer(x.Offset+a.piece*x.Stride), To: write + cuda.Pointer(y.Offset+b.piece*y.Stride),
			FromStride: x.Stride, ToStride: y.Stride, Length: x.Length, Count: count,
		}
		if err := s.moves.AddRun(move); err != nil {
			return moves, err
		}
		moves++
		left -= size
		a.pass(x, count)
		b.pass(y, count)
	}
	a.end(from)
	b.end(to)
	return moves, nil
}

// progress is a place in the runs of a walk.
type progress struct {
	run          int
	piece, bytes uint64 // of the run that is not over; of those that are
	length       uint64
}

func (p *progress) pass(r *mem.Run, count uint64) {
	if p.piece += count; p.piece == r.Count {
		p.run++
		p.piece = 0
		p.bytes += r.Length * r.Count
	}
	p.length = r.Length
}

// end moves the walk there.
func (p *progress) end(w *fabric.Walk) {
	w.PassWhole(p.run, p.bytes)
	w.Skip(p.piece * p.length)
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
