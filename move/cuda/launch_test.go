package cuda

import (
	"math/rand/v2"
	"testing"
)

// place is where a byte of moves comes from and goes to.
func (m *Moves) place(at uint64) (from, to Pointer) {
	if n := uint64(len(m.shifts)); n > 0 {
		each := m.bytes / n
		shift := m.shifts[at/each]
		from, to = (&Moves{list: m.list}).place(at % each)
		return from + Pointer(shift.From), to + Pointer(shift.To)
	}
	for _, r := range m.list {
		if total := r.Length * r.Count; at >= total {
			at -= total
			continue
		}
		piece, within := at/r.Length, at%r.Length
		return r.From + Pointer(piece*r.FromStride+within), r.To + Pointer(piece*r.ToStride+within)
	}
	panic("beyond the moves")
}

// place is the same of a launch, by what a kernel reads.
func (l *launch) place(t *testing.T, at uint32) (from, to Pointer) {
	var shift Shift
	if l.period > 0 {
		round := uint32(uint64(at) / Segment / l.period)
		shift = l.shifts[round]
		at -= round * uint32(l.period*Segment)
	}
	i := l.row(at / Segment)
	if l.rows[i].start > at/Segment*Segment {
		t.Fatalf("segment %d begins before its first row", at/Segment)
	}
	for ; ; i++ {
		r := l.rows[i]
		if piece := (at - r.start) / r.length; piece < r.count {
			within := uint64((at - r.start) % r.length)
			return Pointer(r.from + shift.From + uint64(piece)*r.fromStride + within), Pointer(r.to + shift.To + uint64(piece)*r.toStride + within)
		}
	}
}

// row is the row in which a segment of the first round begins.
func (l *launch) row(segment uint32) uint32 {
	if l.each > 0 {
		return segment / uint32(l.each)
	}
	return l.first[segment]
}

// Moves of any size are cut into launches that are bounded, end with segments and
// say the same of every byte.
func TestLaunchesAreTheMoves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		var moves Moves
		unit := uint64(1) << random.IntN(8)
		for range 1 + random.IntN(30) {
			length := unit * (1 + random.Uint64N([]uint64{3, 512, 1 << 14, 1 << 22}[random.IntN(4)]))
			count := 1 + random.Uint64N(max(1, (64<<20)/length))
			r := Move{From: Pointer(random.Uint64()), To: Pointer(random.Uint64()), FromStride: random.Uint64(), ToStride: random.Uint64(), Length: length, Count: count}
			if err := moves.AddRun(r); err != nil {
				t.Fatal(err)
			}
		}
		repeat(t, &moves, random)
		var l launch
		c := moves.cutter(1 << (20 + random.IntN(9)))
		done := uint64(0)
		for c.fill(&l) {
			checkLaunch(t, &l)
			for range 100 {
				at := random.Uint64N(l.bytes)
				wantFrom, wantTo := moves.place(done + at)
				if from, to := l.place(t, uint32(at)); from != wantFrom || to != wantTo {
					t.Fatalf("seed %d: byte %d goes from %#x to %#x, not from %#x to %#x", seed, done+at, from, to, wantFrom, wantTo)
				}
			}
			if done += l.bytes; done < moves.Bytes() && l.bytes%Segment != 0 {
				t.Fatalf("seed %d: a launch of %d bytes ends within a segment", seed, l.bytes)
			}
		}
		if done != moves.Bytes() {
			t.Fatalf("seed %d: launches move %d bytes of %d", seed, done, moves.Bytes())
		}
	}
}

// repeat has some moves done several times; some of those have rows of equal size.
func repeat(t *testing.T, moves *Moves, random *rand.Rand) {
	t.Helper()
	if random.IntN(3) == 0 {
		return
	}
	if random.IntN(2) == 0 {
		moves.Reset()
		count := 1 + random.Uint64N(4)
		for range 1 + random.IntN(40) {
			r := Move{From: Pointer(random.Uint64()), To: Pointer(random.Uint64()), FromStride: random.Uint64(), ToStride: random.Uint64(), Length: 8192 / count, Count: 2 * count}
			if count == 3 {
				r.Length, r.Count = 12288, 1+random.Uint64N(2)
			}
			if err := moves.AddRun(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	shifts := make([]Shift, 1+random.IntN(5))
	for i := range shifts {
		shifts[i] = Shift{random.Uint64(), random.Uint64()}
	}
	if err := moves.Repeat(shifts); err != nil {
		t.Fatal(err)
	}
}

func checkLaunch(t *testing.T, l *launch) {
	t.Helper()
	if l.bytes > LaunchBytes || len(l.rows) > maxRows || l.each == 0 && len(l.first) != l.segments()/max(1, len(l.shifts)) {
		t.Fatalf("a launch of %d bytes, %d rows and %d segments", l.bytes, len(l.rows), len(l.first))
	}
	if !l.whole {
		return
	}
	for s := range l.bytes / Segment / max(1, uint64(len(l.shifts))) {
		if r := l.rows[l.row(uint32(s))]; (uint32(s*Segment)-r.start)%r.length+Segment > r.length {
			t.Fatalf("segment %d is in pieces, and the launch says that all are whole", s)
		}
	}
}

// A launch of very small pieces is short, because its table is.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	var moves Moves
	for i := range Pointer(3 * launchRows) {
		if err := moves.Add(i*i*64, i*i*i*64, 24); err != nil {
			t.Fatal(err)
		}
	}
	var l launch
	launches := 0
	for c := moves.cutter(0); c.fill(&l); launches++ {
		checkLaunch(t, &l)
	}
	if launches < 2 {
		t.Errorf("%d rows are %d launch", len(moves.list), launches)
	}
}

func TestPiecesBecomeRuns(t *testing.T) {
	t.Parallel()
	var m Moves
	for i := range Pointer(100) {
		_ = m.Add(1<<30+i*4096, 1<<40-i*8192, 512) // backwards at the destination
	}
	if len(m.list) != 1 || m.list[0].Count != 100 || m.Bytes() != 51200 {
		t.Errorf("a hundred pieces at equal distances are %d runs", len(m.list))
	}
	m.Reset()
	for i := range Pointer(100) {
		_ = m.Add(1<<30+i*512, 1<<40+i*512, 512)
	}
	if len(m.list) != 1 || m.list[0].Length != 51200 {
		t.Errorf("a hundred pieces that touch are %d runs", len(m.list))
	}
	if err := m.AddRun(Move{Length: 1 << 40, Count: 1 << 40}); err == nil {
		t.Error("2^80 bytes were taken")
	}
	if err := m.Add(1, 2, 0); err != nil || m.Bytes() != 51200 {
		t.Error("nothing is not nothing")
	}
}

func TestKernelsFitTheirLaunch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		move           Move
		copied, summed string
	}{
		{Move{From: 4096, To: 8192, Length: 1 << 20, Count: 1}, "copy_whole", "copysum_whole"},
		{Move{From: 4096, To: 8192, Length: 4096, FromStride: 1 << 20, ToStride: 4096, Count: 9}, "copy_whole", "copysum_whole"},
		{Move{From: 4096, To: 8192, Length: 512, FromStride: 1 << 20, ToStride: 4096, Count: 90}, "copy16", "copysum8"},
		{Move{From: 4104, To: 8192, Length: 4096, FromStride: 1 << 20, ToStride: 4096, Count: 9}, "copy8", "copysum_whole"},
		{Move{From: 4104, To: 8192, Length: 520, FromStride: 1 << 20, ToStride: 4096, Count: 90}, "copy8", "copysum8"},
		{Move{From: 4100, To: 8192, Length: 512, FromStride: 1 << 20, ToStride: 4096, Count: 90}, "copy4", "copysum1"},
		{Move{From: 4096, To: 8194, Length: 512, FromStride: 1 << 20, ToStride: 4096, Count: 90}, "copy1", "copysum1"},
		{Move{From: 4096, To: 8192, Length: 512, FromStride: 1 << 20, ToStride: 4097, Count: 90}, "copy1", "copysum1"},
	} {
		var l launch
		moves := Moves{list: []Move{c.move}}
		if cut := moves.cutter(0); !cut.fill(&l) {
			t.Fatal("no launch")
		}
		if copied, summed := l.kernel(Copying), l.kernel(CopySummed); copied != c.copied || summed != c.summed {
			t.Errorf("%+v is done by %s and %s, not %s and %s", c.move, copied, summed, c.copied, c.summed)
		}
	}
}
