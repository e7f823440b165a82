package transfer

import (
	"errors"
	"fmt"
	"os"

	"meridian/move/mem"
)

// pool is what one side moves bytes from or to: memory, or a file.
type pool struct {
	*mem.Section
	window []byte // some bytes of a file
}

// windowBytes is how much of a file is written at a time.
const windowBytes = 1 << 20

func openPool(name string, sizeBytes uint64) (*pool, error) {
	arena, err := mem.NewArena(mem.ArenaOptions{Name: name, SizeBytes: sizeBytes, NUMANode: -1})
	if err != nil {
		return nil, err
	}
	return &pool{Section: arena.Section}, nil
}

// openFilePool makes a file without a name, which is gone whenever this process
// is.
func openFilePool(directory string, sizeBytes uint64) (*pool, error) {
	f, err := os.CreateTemp(directory, "pool-")
	if err != nil {
		return nil, err
	}
	section, err := mem.OpenFile(f, sizeBytes, 0)
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &pool{Section: section}, nil
}

// fill writes a side's own contents.
func (p *pool) fill(of side) error {
	return p.rewrite(func(part []byte, at uint64) { fill(part, of, at) })
}

func (p *pool) clear() error {
	return p.rewrite(func(part []byte, _ uint64) { clear(part) })
}

// rewrite lets set write everything, part by part.
func (p *pool) rewrite(set func(part []byte, at uint64)) error {
	if p.Mapped() {
		set(p.Bytes(0, p.Size()), 0)
		return nil
	}
	for at := uint64(0); at < p.Size(); at += windowBytes {
		part := p.windowOf(min(windowBytes, p.Size()-at))
		set(part, at)
		if err := p.WriteAt(part, at); err != nil {
			return fmt.Errorf("bench: writing the pool at %d: %w", at, err)
		}
	}
	return nil
}

// look shows what lies somewhere, until the next call.
func (p *pool) look(offset, length uint64) ([]byte, error) {
	if p.Mapped() {
		return p.Bytes(offset, length), nil
	}
	part := p.windowOf(length)
	return part, p.ReadAt(part, offset)
}

func (p *pool) windowOf(length uint64) []byte {
	if uint64(len(p.window)) < length {
		p.window = make([]byte, length)
	}
	return p.window[:length]
}
