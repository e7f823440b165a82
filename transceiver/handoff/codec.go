package handoff

import (
	"encoding/binary"
	"errors"
	"fmt"

	"meridian/kv"
)

// ErrMessage means that bytes from a peer are no message.
var ErrMessage = errors.New("handoff: bad message")

// writer builds a message: integers as varints, texts and lists behind their
// length.
type writer struct{ b []byte }

func (w *writer) u8(v uint8)     { w.b = append(w.b, v) }
func (w *writer) uint(v uint64)  { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) count(n int)    { w.uint(uint64(n)) }
func (w *writer) id(v kv.ID)     { w.b = append(w.b, v[:]...) }
func (w *writer) hash(v kv.Hash) { w.b = append(w.b, v[:]...) }
func (w *writer) text(v string)  { w.count(len(v)); w.b = append(w.b, v...) }
func (w *writer) bytes(v []byte) { w.count(len(v)); w.b = append(w.b, v...) }
func (w *writer) flag(v bool)    { w.u8(map[bool]uint8{true: 1}[v]) }
func (w *writer) ints(values []int) {
	w.count(len(values))
	for _, v := range values {
		w.uint(uint64(v))
	}
}

// reader takes a message apart. The first field that is not there, or beyond
// its limit, fails all that follow, so that a parser checks once, at its end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.fail()
		return make([]byte, min(n, 32)) // the longest field of fixed size
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) u8() uint8     { return r.take(1)[0] }
func (r *reader) id() kv.ID     { return kv.ID(r.take(16)) }
func (r *reader) hash() kv.Hash { return kv.Hash(r.take(32)) }

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uintTo(most uint64) uint64 {
	v := r.uint()
	if v > most {
		r.fail()
		return 0
	}
	return v
}

// int is a number that machines calculate with; the limit leaves room for it.
func (r *reader) int() int { return int(r.uintTo(1 << 48)) }

// count is the length of a list, each entry of which takes a byte at least.
func (r *reader) count(most int) int {
	n := r.uintTo(uint64(most))
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) text(most int) string { return string(r.bytes(most)) }

// bytes is a part of the input, not a copy.
func (r *reader) bytes(most int) []byte {
	n := r.uintTo(uint64(most))
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	return r.take(int(n))
}

func (r *reader) flag() bool {
	v := r.u8()
	if v > 1 {
		r.fail()
	}
	return v == 1
}

func (r *reader) ints(most int) []int {
	n := r.count(most)
	if n == 0 {
		return nil
	}
	values := make([]int, n)
	for i := range values {
		values[i] = r.int()
	}
	return values
}

// end demands that nothing is left and nothing was missing.
func (r *reader) end(what string) error {
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("%w: %s", ErrMessage, what)
	}
	return nil
}
