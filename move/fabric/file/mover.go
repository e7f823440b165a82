package file

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"meridian/move/fabric"
	"meridian/move/mem"
)

const (
	// batchBytes is how much moves at a time, and how long a Cancel may wait.
	batchBytes = 1 << 20
	// batchPieces is IOV_MAX.
	batchPieces = 1024
)

// side is a list and its files; a nil disk is memory.
type side struct {
	*fabric.Bound
	disks []*disk
}

func (s side) allFiles() bool { return !slices.Contains(s.disks, nil) }

func (s side) allMapped() bool {
	for i := range s.List {
		if !s.Section(i).Mapped() {
			return false
		}
	}
	return true
}

// mover carries out one transfer.
type mover struct {
	dst, src side
	checked  bool
	sync     Sync
	stopped  func() error
	begun    bool     // some byte may be in place
	scratch  []byte   // aligned for any disk, batchBytes long
	spare    [][]byte // a batch that may be used up
}

func (m *mover) run() error {
	defer m.free()
	var err error
	switch {
	case m.src.allMapped() && m.dst.allFiles():
		err = m.vectored(m.dst, m.src, (*disk).write)
	case m.dst.allMapped() && m.src.allFiles():
		err = m.vectored(m.src, m.dst, (*disk).read)
	default:
		err = m.plain()
	}
	if err != nil || m.sync == SyncNever {
		return err
	}
	return m.flush()
}

// flush syncs every file that was written, each once.
func (m *mover) flush() error {
	seen := make(map[*disk]bool, len(m.dst.disks))
	for _, d := range m.dst.disks {
		if d == nil || seen[d] || !m.begun {
			continue
		}
		seen[d] = true
		if err := d.sync(); err != nil {
			return err
		}
	}
	return nil
}

// vectored moves between files and mapped memory: a stretch of the file at a
// time, however many pieces of memory that is.
func (m *mover) vectored(files, memory side, move func(*disk, [][]byte, uint64) error) error {
	stretch, pieces := files.List.Walk(), memory.List.Walk()
	batch := make([][]byte, 0, 64)
	for stretch.Left() > 0 {
		cut := stretch.Next(batchBytes)
		for cut.Length > 0 {
			if err := m.stopped(); err != nil {
				return err
			}
			length := uint64(0)
			for batch = batch[:0]; length < cut.Length && len(batch) < batchPieces; {
				piece := pieces.Next(cut.Length - length)
				batch = append(batch, memory.Section(piece.Part).Bytes(piece.Offset, piece.Length))
				length += piece.Length
			}
			m.begun = true
			if err := m.batch(files.disks[cut.Part], batch, cut.Offset, move); err != nil {
				return fmt.Errorf("region %d at [%d,+%d): %w", files.List[cut.Part].Region, cut.Offset, length, err)
			}
			cut.Offset += length
			cut.Length -= length
		}
	}
	return nil
}

// batch moves, and compares what the file then holds with what memory does.
func (m *mover) batch(d *disk, memory [][]byte, offset uint64, move func(*disk, [][]byte, uint64) error) error {
	m.spare = append(m.spare[:0], memory...) // move uses its slice up
	if err := move(d, m.spare, offset); err != nil || !m.checked {
		return err
	}
	length := 0
	for _, piece := range memory {
		length += len(piece)
	}
	room, err := m.room()
	if err != nil {
		return err
	}
	m.spare = append(m.spare[:0], room[:length])
	if err := d.read(m.spare, offset); err != nil {
		return err
	}
	for _, piece := range memory {
		if !bytes.Equal(room[:len(piece)], piece) {
			return fabric.ErrChecksum
		}
		room = room[len(piece):]
	}
	return nil
}

// plain moves between any two kinds, through a buffer.
func (m *mover) plain() error {
	room, err := m.room()
	if err != nil {
		return err
	}
	from, to := m.src.List.Walk(), m.dst.List.Walk()
	for from.Left() > 0 {
		if err := m.stopped(); err != nil {
			return err
		}
		in := from.Next(batchBytes / 2)
		for in.Length > 0 {
			out := to.Next(in.Length)
			m.begun = true
			half := room[:out.Length]
			again := room[batchBytes/2:][:out.Length]
			if err := m.piece(m.dst.Section(out.Part), out.Offset, m.src.Section(in.Part), in.Offset, half, again); err != nil {
				return fmt.Errorf("region %d at [%d,+%d): %w", m.dst.List[out.Part].Region, out.Offset, out.Length, err)
			}
			in.Offset += out.Length
			in.Length -= out.Length
		}
	}
	return nil
}

func (m *mover) piece(dst *mem.Section, to uint64, src *mem.Section, from uint64, room, again []byte) error {
	if err := src.ReadAt(room, from); err != nil {
		return err
	}
	if err := dst.WriteAt(room, to); err != nil || !m.checked {
		return err
	}
	if err := dst.ReadAt(again, to); err != nil {
		return err
	}
	if !bytes.Equal(again, room) {
		return fabric.ErrChecksum
	}
	return nil
}

// room is memory that any disk can be read into directly.
func (m *mover) room() ([]byte, error) {
	if m.scratch == nil {
		var err error
		if m.scratch, err = unix.Mmap(-1, 0, batchBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			return nil, fmt.Errorf("file: room for a batch: %w", err)
		}
	}
	return m.scratch, nil
}

func (m *mover) free() {
	if m.scratch != nil {
		_ = unix.Munmap(m.scratch)
		m.scratch = nil
	}
}
