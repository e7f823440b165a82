// Package fields writes and reads the fields of messages between agents: integers
// as varints, texts and lists behind their length. What is read comes from a
// stranger, so every length has a limit, and is held against what is there
// before anything is made of it.
package fields

import (
	"encoding/binary"

	"meridian/kv"
)

// Writer builds a message: integers as varints, texts and lists behind their
// length. Where messages have several forms, Form says which one is written,
// for the code that writes a part of it.
type Writer struct {
	B    []byte
	Form uint8
}

func (w *Writer) U8(v uint8)     { w.B = append(w.B, v) }
func (w *Writer) Uint(v uint64)  { w.B = binary.AppendUvarint(w.B, v) }
func (w *Writer) Count(n int)    { w.Uint(uint64(n)) }
func (w *Writer) ID(v kv.ID)     { w.B = append(w.B, v[:]...) }
func (w *Writer) Hash(v kv.Hash) { w.B = append(w.B, v[:]...) }
func (w *Writer) Text(v string)  { w.Count(len(v)); w.B = append(w.B, v...) }
func (w *Writer) Bytes(v []byte) { w.Count(len(v)); w.B = append(w.B, v...) }
func (w *Writer) Flag(v bool) {
	set := uint8(0)
	if v {
		set = 1
	}
	w.U8(set)
}

func (w *Writer) Ints(values []int) {
	w.Count(len(values))
	for _, v := range values {
		w.Uint(uint64(v))
	}
}

// Reader takes a message apart. The first field that is not there, or beyond
// its limit, fails all that follow, so that a parser checks once, at its end.
type Reader struct {
	B    []byte
	Form uint8 // as a Writer's
	bad  bool
}

func (r *Reader) take(n int) []byte {
	if r.bad || n > len(r.B) {
		r.Fail()
		return make([]byte, min(n, 32)) // the longest field of fixed size
	}
	taken := r.B[:n:n]
	r.B = r.B[n:]
	return taken
}

func (r *Reader) U8() uint8     { return r.take(1)[0] }
func (r *Reader) ID() kv.ID     { return kv.ID(r.take(16)) }
func (r *Reader) Hash() kv.Hash { return kv.Hash(r.take(32)) }

func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

func (r *Reader) UintTo(most uint64) uint64 {
	v := r.Uint()
	if v > most {
		r.Fail()
		return 0
	}
	return v
}

// Int is a number that machines calculate with; the limit leaves room for it.
func (r *Reader) Int() int { return int(r.UintTo(1 << 48)) }

// Count is the length of a list, each entry of which takes a byte at least.
func (r *Reader) Count(most int) int {
	n := r.UintTo(uint64(most))
	if n > uint64(len(r.B)) {
		r.Fail()
		return 0
	}
	return int(n)
}

func (r *Reader) Text(most int) string { return string(r.Bytes(most)) }

// Bytes is a part of the input, not a copy.
func (r *Reader) Bytes(most int) []byte {
	n := r.UintTo(uint64(most))
	if n > uint64(len(r.B)) {
		r.Fail()
		return nil
	}
	return r.take(int(n))
}

func (r *Reader) Flag() bool {
	v := r.U8()
	if v > 1 {
		r.Fail()
	}
	return v == 1
}

func (r *Reader) Ints(most int) []int {
	n := r.Count(most)
	if n == 0 {
		return nil
	}
	values := make([]int, n)
	for i := range values {
		values[i] = r.Int()
	}
	return values
}

// End reports whether nothing is left and nothing was missing.
func (r *Reader) End() bool { return !r.bad && len(r.B) == 0 }

// Fail makes everything that is read from here on, and End, fail: what was read
// makes no sense.
func (r *Reader) Fail() { r.bad, r.B = true, nil }

// Failed reports whether something was missing so far: a list need not be read to
// the end that its length promises.
func (r *Reader) Failed() bool { return r.bad }
