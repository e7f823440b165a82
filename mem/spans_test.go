package mem

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type piece struct{ offset, length uint64 }

// naive is what Spans promises to be, without any cleverness.
func naive(pieces []piece) (all []uint64) {
	for _, p := range pieces {
		for i := range p.length {
			all = append(all, p.offset+i)
		}
	}
	return all
}

func build(t interface{ Fatal(...any) }, pieces []piece) *Spans {
	var s Spans
	for _, p := range pieces {
		if err := s.Add(p.offset, p.length); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

func walk(c Cursor, limit func() uint64) (all []uint64) {
	for {
		offset, length := c.Next(limit())
		if length == 0 {
			return all
		}
		for i := range length {
			all = append(all, offset+i)
		}
	}
}

func drawPieces(t *rapid.T) []piece {
	kind := rapid.SampledFrom([]string{"random", "strided", "dense", "mixed"}).Draw(t, "kind")
	n := rapid.IntRange(0, 40).Draw(t, "n")
	offset := rapid.Uint64Max(1000)
	length := rapid.Uint64Max(20)
	pieces := make([]piece, n)
	stride, fixed := rapid.Uint64Range(1, 50).Draw(t, "stride"), rapid.Uint64Range(1, 20).Draw(t, "length")
	for i := range pieces {
		switch {
		case kind == "strided", kind == "mixed" && i%7 < 4:
			pieces[i] = piece{uint64(i) * stride, fixed}
		case kind == "dense":
			pieces[i] = piece{uint64(i) * fixed, fixed}
		default:
			pieces[i] = piece{offset.Draw(t, "offset"), length.Draw(t, "len")}
		}
	}
	return pieces
}

func TestSpansAreTheirPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := drawPieces(t)
		s := build(t, pieces)
		want := naive(pieces)
		if s.Bytes() != uint64(len(want)) {
			t.Fatalf("%d bytes, want %d", s.Bytes(), len(want))
		}
		limits := rapid.Uint64Range(1, 30)
		if got := walk(s.Cursor(), func() uint64 { return limits.Draw(t, "limit") }); !slices.Equal(got, want) {
			t.Fatalf("walked %v, want %v (runs %+v)", got, want, s.Runs())
		}
		skip := rapid.IntRange(0, len(want)).Draw(t, "skip")
		c := s.Cursor()
		c.Skip(uint64(skip))
		if c.Left() != uint64(len(want)-skip) {
			t.Fatalf("%d left after %d of %d", c.Left(), skip, len(want))
		}
		if got := walk(c, func() uint64 { return math.MaxUint64 }); !slices.Equal(got, want[skip:]) {
			t.Fatalf("after skipping %d: %v, want %v (runs %+v)", skip, got, want[skip:], s.Runs())
		}
	})
}

func TestOverlapsAgreesWithCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := drawPieces(t)
		s := build(t, pieces)
		seen := make(map[uint64]bool)
		twice := false
		for _, at := range naive(pieces) {
			twice = twice || seen[at]
			seen[at] = true
		}
		if s.Overlaps() != twice {
			t.Fatalf("Overlaps is %v for %+v", s.Overlaps(), s.Runs())
		}
	})
}

func TestSpansOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(t, drawPieces(t))
		wire := s.AppendTo(nil)
		back, rest, err := ParseSpans(append(wire, 0xEE), 1000)
		if err != nil || !bytes.Equal(rest, []byte{0xEE}) || back.Bytes() != s.Bytes() || back.Pieces() != s.Pieces() {
			t.Fatalf("%+v came back as %+v, %d left, %v", s, back, len(rest), err)
		}
		all := func() uint64 { return math.MaxUint64 }
		if !slices.Equal(walk(back.Cursor(), all), walk(s.Cursor(), all)) {
			t.Fatalf("%+v came back as %+v", s.Runs(), back.Runs())
		}
		for n := range wire {
			if _, _, err := ParseSpans(wire[:n], 1000); !errors.Is(err, ErrSpans) {
				t.Fatalf("the first %d bytes: %v", n, err)
			}
		}
	})
}

func TestManyBlocksCostLittle(t *testing.T) {
	var strided, dense Spans
	for i := range uint64(100_000) {
		if err := errors.Join(strided.Add(i*32<<10, 16<<10), dense.Add(i*16<<10, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if len(strided.Runs()) != 1 || len(dense.Runs()) != 1 || dense.Pieces() != 1 || strided.Pieces() != 100_000 {
		t.Errorf("%d and %d runs", len(strided.Runs()), len(dense.Runs()))
	}
	if wire := strided.AppendTo(nil); len(wire) > 16 {
		t.Errorf("%d bytes on the wire", len(wire))
	}
}

func TestSpansRefuseNonsense(t *testing.T) {
	var s Spans
	if err := s.Add(math.MaxUint64, 2); !errors.Is(err, ErrSpans) {
		t.Errorf("wrapping piece: %v", err)
	}
	for _, r := range []Run{
		{Offset: 1, Length: 1, Stride: math.MaxUint64, Count: 3},
		{Offset: math.MaxUint64 - 5, Length: 1, Stride: 4, Count: 3},
		{Offset: 0, Length: 1 << 60, Stride: 1, Count: 1 << 10},
	} {
		if err := s.AddRun(r); !errors.Is(err, ErrSpans) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if s.Bytes() != 0 || s.Pieces() != 0 {
		t.Errorf("something of the nonsense stayed: %+v", s)
	}
	if err := build(t, []piece{{0, 10}, {20, 10}, {40, 10}}).Check(49); !errors.Is(err, ErrBounds) {
		t.Errorf("out of bounds by one: %v", err)
	}
	if err := build(t, []piece{{0, 10}, {20, 10}, {40, 10}}).Check(50); err != nil {
		t.Error(err)
	}
	if _, _, err := ParseSpans(build(t, []piece{{0, 1}, {9, 2}}).AppendTo(nil), 1); !errors.Is(err, ErrSpans) {
		t.Errorf("more runs than allowed: %v", err)
	}
}

func FuzzParseSpans(f *testing.F) {
	f.Add([]byte{1, 0, 4, 1}, uint64(100))
	f.Add(build(f, []piece{{0, 10}, {20, 10}, {7, 3}}).AppendTo(nil), uint64(30))
	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		s, _, err := ParseSpans(b, 100)
		if err != nil || s.Check(size) != nil {
			return
		}
		c := s.Cursor()
		for steps := 0; steps < 10_000; steps++ {
			offset, length := c.Next(1 << 40)
			if length == 0 {
				if c.Left() != 0 {
					t.Fatalf("%d bytes left at the end", c.Left())
				}
				return
			}
			if offset+length > size || offset+length < offset {
				t.Fatalf("[%d,+%d) is outside %d although Check passed", offset, length, size)
			}
		}
	})
}

func BenchmarkAddScattered(b *testing.B) {
	var s Spans
	offsets := make([]uint64, 10_000)
	for i := range offsets {
		offsets[i] = uint64(i*7919%10_000) * 32 << 10
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Reset()
		for _, o := range offsets {
			if err := s.Add(o, 16<<10); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(offsets)), "ns/descriptor")
}
