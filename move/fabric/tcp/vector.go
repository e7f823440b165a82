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

// take uses up the next bytes, at most n and as far as they lie in one piece.
func (v *vector) take(n int) []byte {
	p := &v.pieces[v.next]
	taken := unsafe.Slice(p.Base, min(uint64(n), p.Len))
	v.bytes -= len(taken)
	if p.Len -= uint64(len(taken)); p.Len == 0 {
		v.next++
	} else {
		p.Base = (*byte)(unsafe.Add(unsafe.Pointer(p.Base), len(taken)))
	}
	return taken
}

// piece is the next one that is not used up.
func (v *vector) piece() []byte {
	p := &v.pieces[v.next]
	return unsafe.Slice(p.Base, p.Len)
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

// transfer calls writev or readv once. The socket never blocks, so the
// scheduler need not hear of it; telling it cost a sixth of the throughput.
func (v *vector) transfer(call uintptr, fd uintptr) (int, error) {
	pieces := v.left()
	n, _, errno := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(pieces))), uintptr(len(pieces)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
