package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// wordBytes is the grain of contents: every word says where it belongs.
const wordBytes = 8

// ErrContents means that the destination does not hold what was sent.
var ErrContents = errors.New("bench: wrong contents")

// word is what belongs at a byte offset of a side's pool. No two are equal.
func word(of side, offset uint64) uint64 {
	return (offset + uint64(of)) * 0x9E3779B97F4A7C15
}

// fill writes what belongs at a byte offset of a side's pool, and behind it.
func fill(part []byte, of side, at uint64) {
	for i := 0; i+wordBytes <= len(part); i += wordBytes {
		binary.LittleEndian.PutUint64(part[i:], word(of, at+uint64(i)))
	}
}

// check looks at the destination's pool: each block holds what lay at its
// counterpart in the source, and nothing lies behind it.
func (c Case) check(look func(offset, length uint64) ([]byte, error)) error {
	to := c.destination()
	from := to.other()
	sources := c.offsets(from)
	for i, offset := range c.offsets(to) {
		found, err := look(offset, c.Block+c.gap())
		if err != nil {
			return fmt.Errorf("bench: looking at block %d: %w", i, err)
		}
		block, behind := found[:c.Block], found[c.Block:]
		for at := uint64(0); at < c.Block; at += wordBytes {
			got, want := binary.LittleEndian.Uint64(block[at:]), word(from, sources[i]+at)
			if got != want {
				return fmt.Errorf("%w: %v: block %d of %d, at %d in the destination, byte %d: found %#x, want %#x from %d in the source",
					ErrContents, c, i, len(sources), offset, at, got, want, sources[i]+at)
			}
		}
		for at := 0; at < len(behind); at += wordBytes {
			if binary.LittleEndian.Uint64(behind[at:]) != 0 {
				return fmt.Errorf("%w: %v: byte %d behind block %d, at %d in the destination, was written", ErrContents, c, at, i, offset)
			}
		}
	}
	return nil
}
