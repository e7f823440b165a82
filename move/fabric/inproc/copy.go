package inproc

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// pieceBytes stay in a core's cache from the first hash to the second.
const pieceBytes = 64 << 10

// copier moves bytes between any two kinds of memory.
type copier struct {
	checked bool
	scratch []byte // for memory that is not mapped here
}

// list brings the n-th byte of src to the n-th byte of dst and tells how many
// may be in place. It asks stopped before each piece.
func (c *copier) list(dst, src *fabric.Bound, stopped func() error) (moved uint64, err error) {
	from, to := src.List.Walk(), dst.List.Walk()
	for from.Left() > 0 {
		if err := stopped(); err != nil {
			return moved, err
		}
		for in := from.Next(pieceBytes); in.Length > 0; {
			out := to.Next(in.Length)
			err := c.piece(dst.Section(out.Part), out.Offset, src.Section(in.Part), in.Offset, out.Length)
			moved += out.Length
			if err != nil {
				return moved, fmt.Errorf("region %d at [%d,+%d): %w", dst.List[out.Part].Region, out.Offset, out.Length, err)
			}
			in.Offset += out.Length
			in.Length -= out.Length
		}
	}
	return moved, nil
}

// piece hashes the bytes where they are, copies them, and hashes them where
// they then lie.
func (c *copier) piece(dst *mem.Section, to uint64, src *mem.Section, from, length uint64) error {
	bytes, err := c.view(src, from, length)
	if err != nil {
		return err
	}
	if !c.checked {
		return dst.WriteAt(bytes, to)
	}
	sum := xxh3.Hash(bytes)
	if err := dst.WriteAt(bytes, to); err != nil {
		return err
	}
	if bytes, err = c.view(dst, to, length); err != nil {
		return err
	}
	if placed := xxh3.Hash(bytes); placed != sum {
		return fmt.Errorf("%w: XXH3-64 is %016x, at the source it was %016x", fabric.ErrChecksum, placed, sum)
	}
	return nil
}

// view is the memory itself, or what it holds.
func (c *copier) view(s *mem.Section, offset, length uint64) ([]byte, error) {
	if s.Mapped() {
		return s.Bytes(offset, length), nil
	}
	if c.scratch == nil {
		c.scratch = make([]byte, pieceBytes)
	}
	view := c.scratch[:length]
	return view, s.ReadAt(view, offset)
}
