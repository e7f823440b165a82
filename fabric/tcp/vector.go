package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxPieces is below IOV_MAX, with room for a header and a tail.
const maxPieces = 1000

// vector is a list of memory pieces for writev and readv. Pieces may be mapped
// memory, which Go's collector knows nothing of, or ordinary slices.
type vector struct {
	pieces []unix.Iovec
	next   int // first piece that is not used up
	bytes  int // left
}

func (v *vector) reset() {
	v.pieces, v.next, v.bytes = v.pieces[:0], 0, 0
}

func (v *vector) add(b []byte) {
	if len(b) == 0 {
		return
	}
	piece := unix.Iovec{Base: unsafe.SliceData(b)}
	piece.SetLen(len(b))
	v.pieces = append(v.pieces, piece)
	v.bytes += len(b)
}

// advance uses up n bytes.
func (v *vector) advance(n int) {
	v.bytes -= n
	for n > 0 {
		p := &v.pieces[v.next]
		if uint64(n) < p.Len {
			p.Base = (*byte)(unsafe.Add(unsafe.Pointer(p.Base), n))
			p.Len -= uint64(n)
			return
		}
		n -= int(p.Len)
		v.next++
	}
}

// left returns the pieces that are not used up.
func (v *vector) left() []unix.Iovec { return v.pieces[v.next:] }

// each calls do with every byte that is left.
func (v *vector) each(do func([]byte)) {
	for _, p := range v.left() {
		do(unsafe.Slice(p.Base, p.Len))
	}
}

// detach copies what is left into memory of its own.
func (v *vector) detach() {
	private := make([]byte, 0, v.bytes)
	v.each(func(b []byte) { private = append(private, b...) })
	v.reset()
	v.add(private)
}

// transfer calls writev or readv once.
func (v *vector) transfer(call uintptr, fd uintptr) (int, error) {
	pieces := v.left()
	n, _, errno := unix.Syscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(pieces))), uintptr(len(pieces)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
