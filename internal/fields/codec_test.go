package fields

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/kv"
)

type kind uint8

type sample struct {
	Kind    kind
	Small   uint8
	Number  uint64
	Count   int
	Part    uint32
	Is      bool
	ID      kv.ID
	Hash    kv.Hash
	Name    string
	Data    []byte
	Sizes   []int
	Entries []entry
	More    uint64 // in form 2
}

type entry struct{ Name string }

func (s *sample) each(c Codec) {
	Enum(c, &s.Kind)
	c.U8(&s.Small)
	c.Uint(&s.Number)
	c.Int(&s.Count)
	UpTo(c, 1<<32-1, &s.Part)
	c.Flag(&s.Is)
	c.ID(&s.ID)
	c.Hash(&s.Hash)
	c.Text(9, &s.Name)
	c.Bytes(9, &s.Data)
	c.Ints(9, &s.Sizes)
	List(c, 9, &s.Entries, func(e *entry) { c.Text(9, &e.Name) })
	if c.Form() == 2 {
		c.Uint(&s.More)
	}
	c.Demand(s.Kind < 9)
}

func write(s *sample, form uint8) []byte {
	w := Writer{Form: form}
	s.each(Writing(&w))
	return w.B
}

func read(b []byte, form uint8) (*sample, bool) {
	r, s := Reader{B: b, Form: form}, &sample{}
	s.each(Reading(&r))
	return s, r.End()
}

// What one list of fields writes it reads again; whatever is cut off, too long or
// impossible is refused.
func TestCodec(t *testing.T) {
	want := sample{
		Kind: 3, Small: 4, Number: 1 << 63, Count: 1 << 40, Part: 1<<32 - 1, Is: true, ID: kv.ID{1}, Hash: kv.Hash{2}, Name: "name",
		Data: []byte("data"), Sizes: []int{1, 300}, Entries: []entry{{"a"}, {""}}, More: 7,
	}
	wire := write(&want, 2)
	if got, ok := read(wire, 2); !ok || !cmp.Equal(&want, got) {
		t.Errorf("%t, %s", ok, cmp.Diff(&want, got))
	}
	for cut := range wire {
		if _, ok := read(wire[:cut], 2); ok {
			t.Errorf("%d of %d bytes are one, too", cut, len(wire))
		}
	}
	if _, ok := read(wire, 1); ok {
		t.Error("the first form has no more, and takes it")
	}
	want.More = 0
	if first := write(&want, 1); !bytes.Equal(first, wire[:len(wire)-1]) {
		t.Error("the two forms differ in more than what is more")
	}
	for name, change := range map[string]func(*sample){
		"a kind there is not": func(s *sample) { s.Kind = 9 },
		"a long name":         func(s *sample) { s.Name = "0123456789" },
		"much data":           func(s *sample) { s.Data = make([]byte, 10) },
		"many entries":        func(s *sample) { s.Entries = make([]entry, 10) },
	} {
		s := want
		change(&s)
		if _, ok := read(write(&s, 2), 2); ok {
			t.Errorf("%s is taken", name)
		}
	}
}

// The length of a list is no promise: nothing is made of entries that do not come.
func TestListsEndWhereTheInputDoes(t *testing.T) {
	r := Reader{B: append([]byte{200, 1}, make([]byte, 200)...)}
	var all [][]byte
	c := Reading(&r)
	List(c, 1<<20, &all, func(b *[]byte) { c.Bytes(9, b); c.Demand(len(all) <= 3) })
	if len(all) != 3 || r.End() {
		t.Errorf("%d entries of a list that fails after three", len(all))
	}
}
