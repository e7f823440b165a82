package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/move/mem"
)

// at names one byte: what a list is, without any cleverness.
type at struct{ region, epoch, offset uint64 }

type piece struct{ region, offset, length uint64 }

const epochOf = 7 // the epoch of every region in these tests, plus its ID

func naive(pieces []piece) (all []at) {
	for _, p := range pieces {
		for i := range p.length {
			all = append(all, at{p.region, epochOf + p.region, p.offset + i})
		}
	}
	return all
}

// listOf opens a new part now and then even where the region stays, as a caller
// may.
func listOf(t interface{ Fatal(...any) }, pieces []piece, split func() bool) (l List) {
	for _, p := range pieces {
		if n := len(l); n == 0 || l[n-1].Region != p.region || split() {
			l = append(l, Part{Region: p.region, Epoch: epochOf + p.region})
		}
		if err := l[len(l)-1].Spans.Add(p.offset, p.length); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func drawList(t *rapid.T) (List, []at) {
	pieces := make([]piece, rapid.IntRange(0, 30).Draw(t, "pieces"))
	offset, length := rapid.Uint64Max(500), rapid.Uint64Max(20)
	stride := rapid.Uint64Range(1, 40).Draw(t, "stride")
	for i := range pieces {
		pieces[i].region = rapid.Uint64Range(1, 3).Draw(t, "region")
		if rapid.Bool().Draw(t, "strided") {
			pieces[i].offset, pieces[i].length = uint64(i)*stride, 5
		} else {
			pieces[i].offset, pieces[i].length = offset.Draw(t, "offset"), length.Draw(t, "length")
		}
	}
	l := listOf(t, pieces, func() bool { return rapid.IntRange(0, 5).Draw(t, "split") == 0 })
	return l, naive(pieces)
}

func walked(l List, w Walk, limit func() uint64) (all []at) {
	for {
		cut := w.Next(limit())
		if cut.Length == 0 {
			return all
		}
		for i := range cut.Length {
			all = append(all, at{l[cut.Part].Region, l[cut.Part].Epoch, cut.Offset + i})
		}
	}
}

func whole() uint64 { return math.MaxUint64 }

func TestWalkVisitsEveryByteInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, want := drawList(t)
		if l.Bytes() != uint64(len(want)) {
			t.Fatalf("%d bytes, want %d", l.Bytes(), len(want))
		}
		limits := rapid.Uint64Range(1, 25)
		if got := walked(l, l.Walk(), func() uint64 { return limits.Draw(t, "limit") }); !slices.Equal(got, want) {
			t.Fatalf("walked %v, want %v", got, want)
		}
		var pieces uint64
		for w := l.Walk(); w.Next(math.MaxUint64).Length > 0; {
			pieces++
		}
		if pieces != l.Pieces() {
			t.Fatalf("walked %d pieces, Pieces says %d", pieces, l.Pieces())
		}
		skip := rapid.IntRange(0, len(want)).Draw(t, "skip")
		w := l.Walk()
		w.Skip(uint64(skip))
		if w.Left() != uint64(len(want)-skip) {
			t.Fatalf("%d left after %d of %d", w.Left(), skip, len(want))
		}
		if got := walked(l, w, whole); !slices.Equal(got, want[skip:]) {
			t.Fatalf("after skipping %d: %v, want %v", skip, got, want[skip:])
		}
	})
}

// Two lists cut differently pair byte n with byte n: what every fabric does.
func TestTwoWalksStayInStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here, wantHere := drawList(t)
		there, wantThere := drawList(t)
		a, b := here.Walk(), there.Walk()
		for done := 0; ; {
			n := min(next(a), next(b))
			if n == 0 {
				break
			}
			cutA, cutB := a.Next(n), b.Next(n)
			if cutA.Length != cutB.Length {
				t.Fatalf("cuts of %d and %d bytes", cutA.Length, cutB.Length)
			}
			if cutA.Offset != wantHere[done].offset || cutB.Offset != wantThere[done].offset {
				t.Fatalf("byte %d pairs %d with %d, want %v with %v", done, cutA.Offset, cutB.Offset, wantHere[done], wantThere[done])
			}
			done += int(n)
		}
		if a.Left() > 0 && b.Left() > 0 {
			t.Fatalf("stopped with %d and %d bytes left", a.Left(), b.Left())
		}
	})
}

// next is the length of the next piece, asked of a copy.
func next(w Walk) uint64 { return w.Next(math.MaxUint64).Length }

func TestSliceIsAPartOfTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, want := drawList(t)
		from := rapid.IntRange(0, len(want)).Draw(t, "from")
		length := rapid.IntRange(0, len(want)-from).Draw(t, "length")
		cut, err := l.Slice(nil, uint64(from), uint64(length))
		if err != nil {
			t.Fatal(err)
		}
		if got := walked(cut, cut.Walk(), whole); !slices.Equal(got, want[from:from+length]) {
			t.Fatalf("[%d,+%d) is %v, want %v", from, length, got, want[from:from+length])
		}
		// Slices put one after the other are the list again.
		both, err := l.Slice(slices.Clone(cut)[:len(cut):len(cut)], uint64(from+length), uint64(len(want)-from-length))
		if err != nil {
			t.Fatal(err)
		}
		if got := walked(both, both.Walk(), whole); !slices.Equal(got, want[from:]) {
			t.Fatalf("joined: %v, want %v", got, want[from:])
		}
		if _, err := l.Slice(nil, uint64(from), uint64(len(want)-from+1)); !errors.Is(err, errList) {
			t.Fatalf("a slice past the end: %v", err)
		}
	})
}

func TestListOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, want := drawList(t)
		wire := l.AppendTo([]byte("prefix"))[len("prefix"):]
		back, err := ParseList(wire)
		if err != nil {
			t.Fatal(err)
		}
		if got := walked(back, back.Walk(), whole); !slices.Equal(got, want) || back.Pieces() != l.Pieces() {
			t.Fatalf("came back as %v, want %v", got, want)
		}
		for n := range wire {
			if _, err := ParseList(wire[:n]); err == nil {
				t.Fatalf("%d of %d bytes made a list", n, len(wire))
			}
		}
		if _, err := ParseList(append(slices.Clone(wire), 0)); !errors.Is(err, errList) {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

func TestOverlapAcrossParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, want := drawList(t)
		seen := make(map[at]bool)
		twice := false
		for _, a := range want {
			twice = twice || seen[a]
			seen[a] = true
		}
		if err := l.checkOverlap(); errors.Is(err, ErrOverlap) != twice {
			t.Fatalf("names a byte twice: %v, but got %v", twice, err)
		}
		if got := walked(l, l.Walk(), whole); !slices.Equal(got, want) {
			t.Fatal("looking for overlaps changed the list")
		}
	})
}

func runs(t *testing.T, rs ...mem.Run) (s mem.Spans) {
	t.Helper()
	for _, r := range rs {
		if err := s.AddRun(r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestListLimits(t *testing.T) {
	scattered := mem.Run{Length: 1, Stride: 2, Count: MaxPieces/2 + 1}
	var manyRuns mem.Spans
	for i := range uint64(MaxRuns + 8) {
		if err := manyRuns.Add(i*10+i%2, 1+i%3); err != nil {
			t.Fatal(err)
		}
	}
	for name, l := range map[string]List{
		"parts":  make(List, MaxParts+1),
		"runs":   {{Spans: manyRuns}},
		"pieces": {{Region: 1, Spans: runs(t, scattered)}, {Region: 2, Spans: runs(t, scattered)}},
		"huge":   {{Spans: runs(t, mem.Run{Length: 1, Stride: 2, Count: 1 << 62})}},
		"bytes":  {{Spans: runs(t, mem.Run{Length: math.MaxUint64, Count: 1})}, {Spans: runs(t, mem.Run{Length: 1, Count: 1})}},
	} {
		if err := l.check(); !errors.Is(err, errList) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseList(l.AppendTo(nil)); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}

func FuzzParseList(f *testing.F) {
	var spans mem.Spans
	for i := range uint64(5) {
		_ = spans.Add(i*100+i*i, 10)
	}
	l := List{{Region: 1, Epoch: 2, Spans: spans}, {Region: 3, Epoch: 4}}
	f.Add(l.AppendTo(nil))
	f.Add([]byte{})
	f.Add([]byte{1, 0xff})
	f.Fuzz(func(t *testing.T, wire []byte) {
		l, err := ParseList(wire)
		if err != nil {
			return
		}
		if len(l) > MaxParts || l.Pieces() > MaxPieces {
			t.Fatalf("%d parts, %d pieces", len(l), l.Pieces())
		}
		_ = l.checkOverlap()
		again, err := ParseList(l.AppendTo(nil))
		if err != nil {
			t.Fatalf("what was parsed does not parse: %v", err)
		}
		if !bytes.Equal(again.AppendTo(nil), l.AppendTo(nil)) || again.Bytes() != l.Bytes() {
			t.Fatal("came back another")
		}
		var total uint64
		for w := l.Walk(); ; {
			cut := w.Next(math.MaxUint64)
			if cut.Length == 0 {
				break
			}
			total += cut.Length
		}
		if total != l.Bytes() {
			t.Fatalf("walked %d of %d bytes", total, l.Bytes())
		}
	})
}

// Layers whose places are the same are told once, and stay one list of runs through
// cutting and parsing.
func TestLayersShareTheirPlaces(t *testing.T) {
	t.Parallel()
	var l List
	for i := range uint64(4) {
		p := Part{Region: 1 + i, Epoch: 1}
		for _, at := range []uint64{40960, 8192, 0} {
			if err := p.Spans.Add(at, 4096); err != nil {
				t.Fatal(err)
			}
		}
		l = append(l, p)
	}
	if w := l.Walk(); w.Rounds() != 1 {
		t.Errorf("lists that were made one by one are %d rounds", w.Rounds())
	}
	l.Share()
	parsed, err := ParseList(l.AppendRepeating(nil))
	if err != nil || len(l.AppendRepeating(nil)) > len(l[:1].AppendTo(nil))+3*(16+3) {
		t.Fatalf("%d bytes, %v", len(l.AppendRepeating(nil)), err)
	}
	if plain, err := ParseList(l.AppendTo(nil)); err != nil || !bytes.Equal(plain.AppendTo(nil), parsed.AppendTo(nil)) {
		t.Errorf("the two forms say different things: %v", err)
	}
	middle, err := l.Slice(nil, 12288, 24576)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		list List
		want int
	}{{l, 4}, {parsed, 4}, {middle, 2}} {
		w := c.list.Walk()
		if w.Rounds() != c.want {
			t.Errorf("list %d is %d rounds, not %d", i, w.Rounds(), c.want)
		}
		if w.Skip(4096); w.Rounds() != 1 {
			t.Errorf("list %d is %d rounds within a part", i, w.Rounds())
		}
		if w.Skip(8192); w.Rounds() != c.want-1 {
			t.Errorf("list %d is %d rounds behind the first, not %d", i, w.Rounds(), c.want-1)
		}
	}
	if err := l.checkOverlap(); err != nil {
		t.Error(err)
	}
	bad := List{l[0], {Region: 2, Epoch: 1}, {Region: 3, Epoch: 1}}
	for i := 1; i < 3; i++ {
		_ = bad[i].Spans.Add(4096, 4096)
		_ = bad[i].Spans.Add(4097, 4096)
	}
	if bad.Share(); !errors.Is(bad.checkOverlap(), ErrOverlap) {
		t.Error("layers that overlap in themselves were taken")
	}
	// What is cut off a shared part is a part of its own, and adds nothing to others.
	cut, err := l.Slice(nil, 0, 12288+4096)
	if err != nil || cut[1].Spans.Bytes() != 4096 || l[0].Spans.Bytes() != 12288 || l[1].Spans.Bytes() != 12288 {
		t.Errorf("cut %v, %v", cut, err)
	}
}

// A list that repeats what costs its writer nothing is bounded in what it costs its
// reader, and nothing can be repeated before there is anything.
func TestRepetitionsAreBounded(t *testing.T) {
	t.Parallel()
	var many Part
	for i := range uint64(maxRepeated / 16) {
		if err := many.Spans.Add(8*i, 1+i%2); err != nil {
			t.Fatal(err)
		}
	}
	l := make(List, 18)
	for i := range l {
		l[i] = many
		l[i].Region = uint64(i)
	}
	wire := l.AppendRepeating(nil)
	parsed, err := ParseList(wire)
	if err != nil || parsed.Bytes() != l.Bytes() || !parsed[16].Spans.Same(&parsed[0].Spans) || parsed[17].Spans.Same(&parsed[0].Spans) {
		t.Errorf("sixteen repetitions, and one too many: %v", err)
	}
	first := binary.AppendUvarint(make([]byte, 16), asBefore)
	again := slices.Concat(make([]byte, 16), many.Spans.AppendTo(nil), bytes.Repeat(first, 17))
	if _, err := ParseList(append(binary.AppendUvarint(nil, 18), again...)); err == nil {
		t.Error("as many repeated runs as the writer likes were taken")
	}
	if _, err := ParseList(append(binary.AppendUvarint(nil, 1), first...)); err == nil {
		t.Error("a first part that is as the one before was taken")
	}
}
