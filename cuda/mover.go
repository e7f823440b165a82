package cuda

import (
	"errors"
	"time"
	"unsafe"
)

// Mover does moves on a device, launch by launch, on a stream of its own. While
// launches run the tables of the next ones are made and go to the device on another
// stream; they take turns with a few slots. A Mover serves one goroutine at a time.
type Mover struct {
	device         *Device
	kernels        *Kernels
	stream, tables *Stream
	slots          [4]slot
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
}

// The parts of a table, and of a slot's memory on the device.
const (
	firstAt  = maxRows * rowBytes
	sumsAt   = firstAt + maxSegments*4
	farBytes = sumsAt + maxSegments*8
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
	m := &Mover{device: d, kernels: k}
	if m.stream, err = d.Stream(); err != nil {
		return nil, err
	}
	if m.tables, err = d.Stream(); err != nil {
		return nil, errors.Join(err, m.stream.Close())
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
	if s.sums, err = d.Pin(maxSegments * 8); err != nil {
		return err
	}
	if s.far, err = d.Alloc(farBytes); err != nil {
		return err
	}
	if s.done, err = d.Event(false); err != nil {
		return err
	}
	if s.ready, err = d.Event(false); err != nil {
		return err
	}
	// Rows and indexes are written where the device will fetch them.
	memory := s.table.Bytes()
	s.rows = unsafe.Slice((*row)(unsafe.Pointer(&memory[0])), maxRows)[:0]
	s.first = unsafe.Slice((*uint32)(unsafe.Pointer(&memory[firstAt])), maxSegments)[:0]
	return nil
}

// Close gives back what it has; nothing is under way.
func (m *Mover) Close() error {
	problems := []error{m.stream.Close(), m.tables.Close()}
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

// Stream is where the work is queued: what must come before it is awaited there.
func (m *Mover) Stream() *Stream { return m.stream }

// Do does the work and waits for it. Before every launch it asks the gate, if there
// is one, how to go on: an error ends the work there, when what was launched is
// done. Where Summing is part of the work, the sums of the source's segments are
// appended to sums, eight bytes each, little-endian. When Do returns, with or
// without an error, nothing is under way.
func (m *Mover) Do(w Work, moves *Moves, sums []byte, gate func() error) ([]byte, error) {
	c := cutter{list: moves.list}
	var err error
	turn := 0
	for ; err == nil; turn++ {
		s := &m.slots[turn%len(m.slots)]
		if sums, err = s.finish(w, sums); err != nil || !c.fill(&s.launch) {
			break
		}
		if gate != nil {
			err = gate()
		}
		if err == nil {
			err = m.start(s, w)
		}
	}
	// From here on the slots come in the order of their launches.
	for range m.slots {
		var late error
		sums, late = m.slots[turn%len(m.slots)].finish(w, sums)
		err = errors.Join(err, late)
		turn++
	}
	if err != nil {
		// A launch may have been queued without its event.
		return sums, errors.Join(err, m.tables.Synchronize(), m.stream.Synchronize())
	}
	return sums, nil
}

// start queues a launch.
func (m *Mover) start(s *slot, w Work) error {
	near := len(s.rows) <= nearRows && len(s.first) <= nearSegments
	rows, first, sums := s.table.At(), s.table.At()+firstAt, s.sums.At()
	if !near {
		if err := m.upload(s); err != nil {
			return err
		}
		far := s.far.At()
		rows, first, sums = far, far+firstAt, far+sumsAt
	}
	if err := m.kernels.start(m.stream, &s.launch, w, rows, first, sums); err != nil {
		return err
	}
	if w&Summing != 0 && !near {
		if err := m.stream.Copy(s.sums.At(), sums, uint64(len(s.first))*8); err != nil {
			return err
		}
	}
	s.busy = true
	return s.done.Record(m.stream)
}

// upload sends the table of a launch to the device, and makes the launch wait for it.
func (m *Mover) upload(s *slot) error {
	far, table := s.far.At(), s.table.At()
	if err := m.tables.Copy(far, table, uint64(len(s.rows))*rowBytes); err != nil {
		return err
	}
	if err := m.tables.Copy(far+firstAt, table+firstAt, uint64(len(s.first))*4); err != nil {
		return err
	}
	if err := s.ready.Record(m.tables); err != nil {
		return err
	}
	return m.stream.Wait(s.ready)
}

const (
	// A launch of up to briefBytes is done before a thread that sleeps would be
	// awake: it is asked again and again, for briefWait at most.
	briefBytes = 4 << 20
	briefWait  = 100 * time.Microsecond
)

// await waits for the launch.
func (s *slot) await() error {
	if s.bytes <= briefBytes {
		for begin := time.Now(); time.Since(begin) < briefWait; {
			if done, err := s.done.Done(); done || err != nil {
				return err
			}
		}
	}
	return s.done.Synchronize()
}

// finish waits for the launch of a slot, if there is one, and takes its sums.
func (s *slot) finish(w Work, sums []byte) ([]byte, error) {
	if !s.busy {
		return sums, nil
	}
	s.busy = false
	if err := s.await(); err != nil {
		return sums, err
	}
	if w&Summing != 0 {
		sums = append(sums, s.sums.Bytes()[:len(s.first)*8]...)
	}
	return sums, nil
}
