package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"meridian/internal/golden"

	"github.com/zeebo/xxh3"
)

const vectors = "../../../testdata/store/"

// pattern is what the payloads of vectors are made of.
func pattern(seed, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(seed + 31*i + i>>8)
	}
	return b
}

// vector is an object of the image, and what a reader of it says.
type vector struct {
	verdict      string
	index, epoch uint32
	key          string
	from         uint64
	bytes, seed  int
}

// verdict is the word for what a reader found.
func verdict(err error) string {
	for word, is := range map[string]error{"gone": ErrGone, "foreign": ErrForeign, "torn": ErrTorn} {
		if errors.Is(err, is) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return "good"
}

// image is a small arena with objects of every kind, good and bad.
func image(t *testing.T) (*Heap, []vector) {
	h := format(t, 80<<10, Options{Headers: 24, Ring: 8, Epoch: 3})
	var vectors []vector
	add := func(verdict, key string, size int) Reservation {
		r, err := h.Reserve(HashKey([]byte(key)), uint64(size), len(key), PageSize)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(&r, []byte(key), pattern(int(r.Index), size))
		vectors = append(vectors, vector{verdict, r.Index, 0, key, 0, size, int(r.Index)})
		return r
	}
	slice := func(verdict string, of Reservation, from uint64, size int) {
		v := vectors[len(vectors)-1]
		vectors = append(vectors, vector{verdict, of.Index, 0, v.key, from, size, v.seed})
	}
	small := add("good", "small", 100)
	add("foreign", "small", 100)
	vectors[len(vectors)-1].key = "large"
	large := add("good", strings.Repeat("long key ", 100), 3*Segment+17)
	slice("good", large, Segment, 2*Segment)
	slice("good", large, 2*Segment, Segment+17)
	exact := add("good", "exact", Segment)
	h.Swap(add("gone", "dead", 500).Index, MakeWord(Ready, 0), MakeWord(Dead, 0))
	h.Swap(add("gone", "writing", 500).Index, MakeWord(Ready, 0), MakeWord(Writing, 0))

	torn := add("torn", "torn", 2*Segment)
	slice("good", torn, 0, Segment)
	slice("torn", torn, Segment, Segment)
	h.b[torn.Header.PayloadBase+Segment+5] ^= 1

	summed := add("good", "another sum", 2*Segment) // whole, its checksum says that it is good
	slice("torn", summed, 0, Segment)
	h.b[summed.Header.PayloadBase+summed.Header.Extent().Sums+9] ^= 1

	collision := add("foreign", "first of a hash", 64)
	vectors[len(vectors)-1].key = "second of a hash"
	h.u64(h.HeaderOffset(collision.Index)).Store(HashKey([]byte("second of a hash")))

	unchecked := add("gone", "unchecked", 64)
	h.u32(h.HeaderOffset(unchecked.Index) + hdrFlags).Store(Unchecked)
	pinned := add("good", "pinned", 1)
	h.u32(h.HeaderOffset(pinned.Index) + hdrFlags).Store(WithPriority(Pinned, 9))
	outside := add("gone", "outside", 64)
	h.u64(h.HeaderOffset(outside.Index) + hdrPayload).Store(h.bounds.Limit)
	endless := add("gone", "endless", 64)
	h.u64(h.HeaderOffset(endless.Index) + hdrBytes).Store(^uint64(0) - 6)

	used := add("good", "used again", 300)
	h.Swap(used.Index, MakeWord(Ready, 0), MakeWord(Ready, 7))
	vectors[len(vectors)-1].epoch = 7
	slice("gone", used, 0, 300) // in epoch 0
	vectors = append(vectors, vector{"gone", 24, 0, "no header", 0, 1, 0})

	at, _ := h.TakeBump(ClassBytes(0), Segment)
	offered, _ := h.TakeHeader()
	h.Offer(0, offered, at, ClassBytes(0), 5)
	h.SetUsed(50)
	for _, r := range []*Reservation{&small, &exact} {
		a := h.AnnounceOf(r, 2)
		h.Tell(&a)
	}
	h.u32(ctlRingHead).Add(1) // a producer that has not written yet
	return h, vectors
}

// The vectors that Python and C++ read.
func TestGeneratedVectors(t *testing.T) {
	h, objects := image(t)
	golden.File(t, vectors+"arena.bin", h.b)

	var b strings.Builder
	b.WriteString("# Objects of arena.bin, made by keep/store/arena: verdict, header, epoch, key in hexadecimal, first byte, bytes, seed of the payload.\n" +
		"# Byte i of a payload is seed + 31 i + i / 256, of which the lowest eight bits.\n")
	for _, v := range objects {
		fmt.Fprintf(&b, "%s %d %d %x %d %d %d\n", v.verdict, v.index, v.epoch, v.key, v.from, v.bytes, v.seed)
	}
	golden.File(t, vectors+"objects.txt", []byte(b.String()))

	b.Reset()
	b.WriteString("# Records of arena.bin, made by keep/store/arena: name, offset, fields.\n")
	writeRecord(&b, h, 0, 0)
	for i := range h.UsedHeaders() {
		writeRecord(&b, h, 1, h.HeaderOffset(i))
	}
	for n := range h.Waiting() {
		writeRecord(&b, h, 2, h.place(n))
	}
	golden.File(t, vectors+"records.txt", []byte(b.String()))

	b.Reset()
	b.WriteString("# Made by keep/store/arena: a length, XXH3-64 of a payload of seed 0 with that length, and its checksum.\n")
	for _, n := range []int{0, 1, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 144, 240, 241, 256, 1023, 1024, 1025, 4095, 4096, 4097, 20000} {
		fmt.Fprintf(&b, "%d %016x %016x\n", n, xxh3.Hash(pattern(0, n)), checksumOf(pattern(0, n)))
	}
	golden.File(t, vectors+"hashes.txt", []byte(b.String()))

	b.Reset()
	b.WriteString("# Made by keep/store/arena: bytes of a payload, of a key; alignment; where sums and key begin, size of the extent.\n")
	for _, n := range []uint64{1, 7, 8, 63, 64, 4095, 4096, 4097, 8192, 262144, 1 << 30} {
		for _, key := range []int{1, 40, MaxKey} {
			e := ExtentOf(n, key)
			fmt.Fprintf(&b, "%d %d %d %d %d %d\n", n, key, e.Align, e.Sums, e.Key, e.Size)
		}
	}
	golden.File(t, vectors+"extents.txt", []byte(b.String()))
}

func checksumOf(payload []byte) uint64 {
	h := Heap{b: make([]byte, len(payload)+8+8*len(payload)/Segment+8)}
	return h.CopyIn(0, payload)
}

// writeRecord prints the fields of a record as they lie in an arena.
func writeRecord(b *strings.Builder, h *Heap, kind int, at uint64) {
	fmt.Fprintf(b, "%s %d", Layout[kind].Name, at)
	for _, f := range Layout[kind].Fields {
		field := h.b[at+uint64(f.Offset):][:f.Size]
		fmt.Fprintf(b, " %s=", f.Name)
		if f.Size == 4 {
			fmt.Fprint(b, binary.LittleEndian.Uint32(field))
			continue
		}
		for n := 0; n < f.Size; n += 8 {
			fmt.Fprint(b, strings.Repeat(",", min(n, 1)), binary.LittleEndian.Uint64(field[n:]))
		}
	}
	b.WriteByte('\n')
}

// The committed image is read as the vectors say.
func TestVectors(t *testing.T) {
	image, err := os.ReadFile(vectors + "arena.bin")
	if err != nil {
		t.Fatal(err)
	}
	b := memory(len(image))
	copy(b, image)
	h, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := os.ReadFile(vectors + "objects.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(objects)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var v vector
		var key []byte
		if _, err := fmt.Sscanf(line, "%s %d %d %x %d %d %d", &v.verdict, &v.index, &v.epoch, &key, &v.from, &v.bytes, &v.seed); err != nil {
			t.Fatal(err)
		}
		seen[v.verdict]++
		got := make([]byte, v.bytes)
		err := h.Read(Wanted{v.index, v.epoch, key}, got, v.from)
		if verdict(err) != v.verdict {
			t.Errorf("%sgot %v", line, err)
		}
		if want := pattern(v.seed, int(v.from)+v.bytes)[v.from:]; err == nil && !bytes.Equal(got, want) {
			t.Errorf("%swrong bytes", line)
		}
	}
	if len(seen) != 4 {
		t.Errorf("verdicts %v", seen)
	}
}
