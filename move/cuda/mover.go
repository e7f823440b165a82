package cuda

import (
	"bytes"
	"errors"
	"time"
	"unsafe"
)

// Mover does moves on a device, launch by launch, on streams of its own. While
// launches run the tables of the next ones are made and go to the device on another
// stream; they take turns with a few slots. A Mover serves one goroutine at a time;
// several run beside each other.
type Mover struct {
	kernels *Kernels
	streams [2]*Stream // which launches take in turn: one begins while another ends
	tables  *Stream
	slots   [4]slot
}

// slot is the memory of a launch that is under way.
type slot struct {
	launch
	table *Pinned // where the launch is made
	far   *Memory // where the kernel reads it, and writes sums
	sums  *Pinned // where they arrive
	ready *Event  // the table is there
	done  *Event
	busy  bool
	at    uint64 // segments before its first one
}

// The parts of a table, and of a slot's memory on the device. Calls of CUDA's wait for
// each other, so that a table goes there in one, and sums come back in one.
const (
	shiftsAt = maxSegments * 4 // behind the first rows of segments
	rowsAt   = shiftsAt + maxShifts*shiftBytes
	sumsAt   = rowsAt + maxRows*rowBytes
	farBytes = sumsAt + 2*againAt
	// againAt is how far behind the sums of the source those of the destination are.
	againAt = maxSegments * 8
	// Up to here the kernel reads the table, and writes the sums, where they are on
	// the host: that takes less time than a copy takes to begin.
	nearSegments, nearRows = 64, 64
)

// Mover makes one. The caller closes it.
func (d *Device) Mover() (*Mover, error) {
	k, err := d.loaded()
	if err != nil {
		return nil, err
	}
	m := &Mover{kernels: k}
	for _, s := range []**Stream{&m.streams[0], &m.streams[1], &m.tables} {
		if *s, err = d.Stream(); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	for i := range m.slots {
		if err := m.slots[i].open(d); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

func (s *slot) open(d *Device) (err error) {
	if s.table, err = d.Pin(sumsAt); err != nil {
		return err
	}
	if s.sums, err = d.Pin(2 * againAt); err != nil {
		return err
	}
	if s.far, err = d.Alloc(farBytes); err != nil {
		return err
	}
	if s.done, err = d.Event(); err != nil {
		return err
	}
	if s.ready, err = d.Event(); err != nil {
		return err
	}
	// Rows and indexes are written where the device will fetch them.
	memory := s.table.Bytes()
	s.rows = unsafe.Slice((*row)(unsafe.Pointer(&memory[rowsAt])), maxRows)[:0]
	s.shifts = unsafe.Slice((*Shift)(unsafe.Pointer(&memory[shiftsAt])), maxShifts)[:0]
	s.first = unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), maxSegments)[:0]
	return nil
}

// Close gives back what it has; nothing is under way.
func (m *Mover) Close() error {
	var problems []error
	for _, s := range append(m.streams[:], m.tables) {
		if s != nil {
			problems = append(problems, s.Close())
		}
	}
	for i := range m.slots {
		s := &m.slots[i]
		if s.table != nil {
			problems = append(problems, s.table.Close())
		}
		if s.sums != nil {
			problems = append(problems, s.sums.Close())
		}
		if s.far != nil {
			problems = append(problems, s.far.Close())
		}
		for _, e := range []*Event{s.done, s.ready} {
			if e != nil {
				problems = append(problems, e.Close())
			}
		}
	}
	return errors.Join(problems...)
}

// Course is how work goes on, launch by launch.
type Course struct {
	// Gate is asked before every launch: an error ends the work there, when what was
	// launched is done.
	Gate func() error
	// LaunchBytes is the most that one launch moves, if it is not LaunchBytes.
	LaunchBytes uint64
	// Done hears of every launch that is done, in order, with the sums of its source
	// where there are any, while the next ones run. An error is as one of Gate.
	Done func(bytes uint64, sums []byte) error
	// Patient: the caller has time, and rather sleeps than asks again and again.
	Patient bool
}

// Do does the work and waits for it. Where Summing is part of it, the sums of the
// source's segments are appended to sums, eight bytes each, little-endian. Where
// Rereading is, a Difference is an error. A nil course is the plain one. When Do
// returns, with or without an error, nothing is under way.
func (m *Mover) Do(w Work, moves *Moves, sums []byte, course *Course) ([]byte, error) {
	if course == nil {
		course = &Course{}
	}
	c := moves.cutter(course.LaunchBytes)
	var err error
	turn, segments := 0, uint64(0)
	for ; err == nil; turn++ {
		s := &m.slots[turn%len(m.slots)]
		if sums, err = s.finish(w, sums, course.Done, course.Patient); err != nil || !c.fill(&s.launch) {
			break
		}
		s.at = segments
		segments += uint64(s.segments())
		if course.Gate != nil {
			err = course.Gate()
		}
		if err == nil {
			err = m.start(m.streams[turn%len(m.streams)], s, w)
		}
	}
	// From here on the slots come in the order of their launches.
	for range m.slots {
		var late error
		done := course.Done
		if err != nil {
			done = nil
		}
		sums, late = m.slots[turn%len(m.slots)].finish(w, sums, done, course.Patient)
		err = errors.Join(err, late)
		turn++
	}
	if err != nil {
		// A launch may have been queued without its event.
		return sums, errors.Join(err, m.tables.Synchronize(), m.streams[0].Synchronize(), m.streams[1].Synchronize())
	}
	return sums, nil
}

// used is which bytes of the table a kernel reads.
func (l *launch) used() (from, end Pointer) {
	switch {
	case l.each == 0: // the index, too
	case len(l.shifts) > 0:
		from = shiftsAt
	default:
		from = rowsAt
	}
	return from, rowsAt + Pointer(len(l.rows))*rowBytes
}

// start queues a launch.
func (m *Mover) start(on *Stream, s *slot, w Work) error {
	near := len(s.rows) <= nearRows && s.segments() <= nearSegments
	table, sums := s.table.At(), s.sums.At()
	if !near {
		far := s.far.At()
		from, end := s.used()
		err := m.tables.Copy(far+from, table+from, uint64(end-from))
		if err == nil {
			err = s.ready.Record(m.tables)
		}
		if err == nil {
			err = on.Wait(s.ready)
		}
		if err != nil {
			return err
		}
		table, sums = far, far+sumsAt
	}
	if err := m.kernels.start(on, &s.launch, w&CopySummed, table, sums); err != nil {
		return err
	}
	if w&Rereading != 0 {
		if err := m.kernels.start(on, &s.launch, Rereading|Summing, table, sums+againAt); err != nil {
			return err
		}
	}
	if w&Summing != 0 && !near {
		size := uint64(s.segments()) * 8
		if w&Rereading != 0 {
			size += againAt
		}
		if err := on.Copy(s.sums.At(), sums, size); err != nil {
			return err
		}
	}
	s.busy = true
	return s.done.Record(on)
}

const (
	// A launch is mostly done before a thread that sleeps would be awake: it is asked
	// again and again for briefWait, or for as long as its bytes may take within a device,
	// and not all the time: calls of CUDA's wait for each other. Then the thread sleeps for
	// longWait in all, and asks every nap: what CUDA wakes comes up to a millisecond later.
	briefWait  = 150 * time.Microsecond
	briefPause = 4 * time.Microsecond
	nap        = 50 * time.Microsecond
	longWait   = 50 * time.Millisecond
	// bytesEach is what a device moves in a nanosecond, at most, and slowBytesEach what it
	// moves when it also reads them again.
	bytesEach, slowBytesEach = 2000, 400
)

// await waits for the launch.
func (s *slot) await(patient bool) error {
	begin, ask := time.Now(), time.Duration(0)
	brief := max(briefWait, time.Duration(s.bytes/slowBytesEach))
	if patient {
		brief = 0
	}
	for passed := time.Duration(0); passed < longWait; passed = time.Since(begin) {
		if passed < ask {
			continue
		}
		if done, err := s.done.Done(); done || err != nil {
			return err
		}
		switch ask = passed + briefPause; {
		case passed >= brief:
			time.Sleep(nap)
		case passed == 0: // it has just begun, perhaps
			ask = max(ask, time.Duration(s.bytes/bytesEach))
		}
	}
	return s.done.Synchronize()
}

// finish waits for the launch of a slot, if there is one, and takes its sums.
func (s *slot) finish(w Work, sums []byte, done func(uint64, []byte) error, patient bool) ([]byte, error) {
	if !s.busy {
		return sums, nil
	}
	s.busy = false
	if err := s.await(patient); err != nil {
		return sums, err
	}
	of := s.sums.Bytes()[:s.segments()*8]
	if w&Summing != 0 {
		sums = append(sums, of...)
	}
	if again := s.sums.Bytes()[againAt:][:len(of)]; w&Rereading != 0 && !bytes.Equal(of, again) {
		i := 0
		for of[i] == again[i] {
			i++
		}
		return sums, &Difference{s.at + uint64(i)/8}
	}
	if done != nil {
		return sums, done(s.bytes, of)
	}
	return sums, nil
}
