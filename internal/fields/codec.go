package fields

import "meridian/kv"

// Codec writes the fields of a message, or reads them: one list of fields does
// both, so that the two agree.
type Codec struct {
	w *Writer // nil: it reads
	r *Reader
}

// Writing is a codec that writes.
func Writing(w *Writer) Codec { return Codec{w: w} }

// Reading is a codec that reads. What it reads into is empty before.
func Reading(r *Reader) Codec { return Codec{r: r} }

// Reads tells which of the two it is, for what is more than a list of fields.
func (c Codec) Reads() bool { return c.r != nil }

// Form is the Writer's or the Reader's.
func (c Codec) Form() uint8 {
	if c.Reads() {
		return c.r.Form
	}
	return c.w.Form
}

// Demand fails what is read if it cannot be so.
func (c Codec) Demand(possible bool) {
	if c.Reads() && !possible {
		c.r.Fail()
	}
}

func both[T any](c Codec, write func(*Writer, T), read func(*Reader) T, values []*T) {
	for _, v := range values {
		if c.Reads() {
			*v = read(c.r)
		} else {
			write(c.w, *v)
		}
	}
}

func (c Codec) U8(values ...*uint8)    { both(c, (*Writer).U8, (*Reader).U8, values) }
func (c Codec) Uint(values ...*uint64) { both(c, (*Writer).Uint, (*Reader).Uint, values) }
func (c Codec) Int(values ...*int)     { both(c, (*Writer).Count, (*Reader).Int, values) }
func (c Codec) Flag(values ...*bool)   { both(c, (*Writer).Flag, (*Reader).Flag, values) }
func (c Codec) ID(values ...*kv.ID)    { both(c, (*Writer).ID, (*Reader).ID, values) }
func (c Codec) Hash(values ...*kv.Hash) {
	both(c, (*Writer).Hash, (*Reader).Hash, values)
}

// Text has at most so many bytes, each of them.
func (c Codec) Text(most int, values ...*string) {
	both(c, (*Writer).Text, func(r *Reader) string { return r.Text(most) }, values)
}

// Bytes, when read, are parts of the input, not copies.
func (c Codec) Bytes(most int, values ...*[]byte) {
	both(c, (*Writer).Bytes, func(r *Reader) []byte { return r.Bytes(most) }, values)
}

func (c Codec) Ints(most int, values ...*[]int) {
	both(c, (*Writer).Ints, func(r *Reader) []int { return r.Ints(most) }, values)
}

// Enum is one of few values, in a byte.
func Enum[T ~uint8](c Codec, v *T) {
	both(c, func(w *Writer, v T) { w.U8(uint8(v)) }, func(r *Reader) T { return T(r.U8()) }, []*T{v})
}

// UpTo are numbers of any kind, none of them negative, at most so large.
func UpTo[T ~uint16 | ~uint32 | ~uint64 | ~int | ~int64](c Codec, most uint64, values ...*T) {
	both(c, func(w *Writer, v T) { w.Uint(uint64(v)) }, func(r *Reader) T { return T(r.UintTo(most)) }, values)
}

// List is behind its length, each entry as each has it, which takes a byte at least.
func List[T any](c Codec, most int, all *[]T, each func(*T)) {
	if !c.Reads() {
		c.w.Count(len(*all))
		for i := range *all {
			each(&(*all)[i])
		}
		return
	}
	for range c.r.Count(most) {
		var blank T
		*all = append(*all, blank)
		last := len(*all) - 1
		if each(&(*all)[last]); c.r.Failed() { // a length is no promise
			*all = (*all)[:last]
			return
		}
	}
}
