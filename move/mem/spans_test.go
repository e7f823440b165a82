package mem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
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
		e, self := s.extent()
		if self {
			return
		}
		if s.overlapsByTicking(e) != twice || s.overlapsBySorting() != twice || e.ascending && twice {
			t.Fatalf("twice is %v, by ticking %v, by sorting %v, ascending is %v for %+v",
				twice, s.overlapsByTicking(e), s.overlapsBySorting(), e.ascending, s.Runs())
		}
	})
}

// Spans that overlap by one granule, or just do not, in every way of finding it.
func TestOverlapsAtTheEdge(t *testing.T) {
	const far = 1 << 50
	for name, c := range map[string]struct {
		pieces []piece
		want   bool
	}{
		"nothing":                {nil, false},
		"neighbours, backwards":  {[]piece{{8192, 4096}, {4096, 4096}, {0, 4096}}, false},
		"one byte, backwards":    {[]piece{{8192, 4096}, {4097, 4096}}, true},
		"odd distance from zero": {[]piece{{8192 + 7, 4096}, {4096 + 7, 4096}}, false},
		"a long piece, later":    {[]piece{{1 << 20, 64}, {0, 1<<20 + 64}}, true},
		"a long piece, beside":   {[]piece{{1 << 20, 64}, {0, 1 << 20}}, false},
		"far apart":              {[]piece{{far, 4096}, {0, 4096}, {far + 4096, 1}, {8192, 3}}, false},
		"far apart, twice":       {[]piece{{far, 4096}, {0, 4096}, {far + 4095, 2}, {8192, 3}}, true},
		"interleaved":            {[]piece{{0, 64}, {256, 64}, {512, 64}, {128, 64}, {384, 64}, {640, 64}}, false},
		"interleaved, twice":     {[]piece{{0, 64}, {256, 64}, {512, 64}, {128, 64}, {384, 64}, {576, 64}, {640, 64}, {540, 8}}, true},
		"up to the last byte":    {[]piece{{math.MaxUint64 - 8, 8}, {math.MaxUint64 - 16, 8}, {0, 8}}, false},
	} {
		if s := build(t, c.pieces); s.Overlaps() != c.want {
			t.Errorf("%s: Overlaps is %v for %+v", name, !c.want, s.Runs())
		}
	}
}

// A run ends before its offsets wrap around, wherever the next piece is.
func TestRunsDoNotWrap(t *testing.T) {
	const stride = 1<<63 + 16
	s := build(t, []piece{{0, 8}, {stride, 8}, {32, 8}}) // 2 × stride is 32, modulo 2^64
	if got := walk(s.Cursor(), func() uint64 { return 1 }); got[16] != 32 || len(s.Runs()) != 2 {
		t.Errorf("piece 2 begins at %d: %+v", got[16], s.Runs())
	}
	for _, r := range s.Runs() {
		if _, fits := r.End(); !fits {
			t.Errorf("%+v wraps around", r)
		}
	}
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
		s = Spans{runs: s.runs[:0]}
		for _, o := range offsets {
			if err := s.Add(o, 16<<10); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(offsets)), "ns/descriptor")
}

func BenchmarkOverlaps(b *testing.B) {
	const n, size = 10_000, 16 << 10
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for _, c := range []struct {
		name string
		at   func(i int) uint64
	}{
		{"ascending", func(i int) uint64 { return uint64(i) * 3 / 2 * size }},
		{"scattered", func(i int) uint64 { return uint64(order[i]) * 2 * size }},
		{"unaligned", func(i int) uint64 { return uint64(order[i])*2*size + uint64(i%7) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var s Spans
			for i := range n {
				if err := s.Add(c.at(i), size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if s.Overlaps() {
					b.Fatal("they do not")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/descriptor")
		})
	}
}

// A walk by runs, and passing over them, say the same as a walk piece by piece.
func TestCursorRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Spans
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			length := rapid.Uint64Range(1, 9).Draw(t, "length")
			r := Run{Offset: rapid.Uint64Range(0, 1000).Draw(t, "offset"), Length: length, Stride: length + rapid.Uint64Range(0, 5).Draw(t, "gap"), Count: rapid.Uint64Range(1, 5).Draw(t, "count")}
			if err := s.AddRun(r); err != nil {
				t.Fatal(err)
			}
		}
		byRun, byPiece := s.Cursor(), s.Cursor()
		for byRun.Left() > 0 {
			if rapid.Bool().Draw(t, "pass") {
				limit, runs := rapid.Uint64Range(0, 30).Draw(t, "limit"), rapid.IntRange(0, 3).Draw(t, "most")
				passed, n := byRun.Pass(limit, runs)
				if passed > limit || n > runs {
					t.Fatalf("%d bytes in %d runs were passed, at most %d in %d", passed, n, limit, runs)
				}
				byPiece.Skip(passed)
			}
			r := byRun.Run()
			if byRun.Left() != byPiece.Left() || byRun.Left() > 0 && r.Count == 0 {
				t.Fatalf("%d and %d bytes are left, %+v", byRun.Left(), byPiece.Left(), r)
			}
			for i := range r.Count {
				if offset, length := byPiece.Next(1 << 20); offset != r.Offset+i*r.Stride || length != r.Length {
					t.Fatalf("piece %d of %+v is [%d,+%d)", i, r, offset, length)
				}
			}
			byRun.Skip(r.Length * r.Count)
		}
	})
}

// Numbers are read as encoding/binary reads them, however long they are and whatever is
// behind them.
func TestNumbersOfSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64().Draw(t, "value") >> rapid.IntRange(0, 63).Draw(t, "shift")
		rest := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "rest")
		got, left, err := uvarint(append(binary.AppendUvarint(nil, v), rest...))
		if err != nil || got != v || !bytes.Equal(left, rest) {
			t.Fatalf("%d is read as %d, with %x behind it: %v", v, got, left, err)
		}
		if b := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "any"); true {
			want, n := binary.Uvarint(b)
			got, left, err := uvarint(b)
			if (err == nil) != (n > 0) || err == nil && (got != want || len(left) != len(b)-n) {
				t.Fatalf("%x is read as %d, %d left, %v, and is %d of %d bytes", b, got, len(left), err, want, n)
			}
		}
	})
}
