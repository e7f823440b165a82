package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"meridian/move/checksum"
	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
)

// world is VRAM on a device, and what it should hold.
type world struct {
	device   *cuda.Device
	mover    *cuda.Mover
	stream   *cuda.Stream
	from, to *cuda.Memory
	near     *cuda.Pinned // as large as each
	source   []byte
	want     []byte
}

func newWorld(t *testing.T, d *cuda.Device, size uint64, random *rand.Rand) *world {
	t.Helper()
	w := &world{device: d, source: make([]byte, size), want: make([]byte, size)}
	var err error
	w.mover, err = d.Mover()
	check(t, err)
	w.stream, err = d.Stream()
	check(t, err)
	w.from, err = d.Alloc(size)
	check(t, err)
	w.to, err = d.Alloc(size)
	check(t, err)
	w.near, err = d.Pin(size)
	check(t, err)
	for i := 0; i+8 <= len(w.source); i += 8 {
		binary.LittleEndian.PutUint64(w.source[i:], random.Uint64())
	}
	copy(w.near.Bytes(), w.source)
	s := w.stream
	check(t, s.Copy(w.from.At(), w.near.At(), size), s.Fill(w.to.At(), 0, size), s.Synchronize())
	t.Cleanup(func() { check(t, w.mover.Close(), w.stream.Close(), w.from.Close(), w.to.Close(), w.near.Close()) })
	return w
}

// run does moves, given as offsets, as often as there are shifts, or once, and compares
// all bytes and sums.
func (w *world) run(t *testing.T, name string, work cuda.Work, list []cuda.Move, shifts ...cuda.Shift) {
	t.Helper()
	var moves cuda.Moves
	var stream []byte
	for _, m := range list {
		m.From += w.from.At()
		m.To += w.to.At()
		check(t, moves.AddRun(m))
	}
	rounds := shifts
	if len(shifts) > 0 {
		check(t, moves.Repeat(shifts))
	} else {
		rounds = make([]cuda.Shift, 1)
	}
	for _, round := range rounds {
		for _, m := range list {
			for piece := range m.Count {
				from, to := uint64(m.From)+round.From+piece*m.FromStride, uint64(m.To)+round.To+piece*m.ToStride
				stream = append(stream, w.source[from:from+m.Length]...)
				if work&cuda.Copying != 0 {
					copy(w.want[to:to+m.Length], w.source[from:from+m.Length])
				}
			}
		}
	}
	var told []byte // launch by launch
	bytesTold := uint64(0)
	sums, err := w.mover.Do(work, &moves, nil, &cuda.Course{LaunchBytes: 64 << 10, Done: func(bytes uint64, sums []byte) error {
		bytesTold += bytes
		if work&cuda.Summing != 0 {
			told = append(told, sums...)
		}
		return nil
	}})
	check(t, err)
	if bytesTold != moves.Bytes() || !bytes.Equal(told, sums) {
		t.Fatalf("%s: launches of %d bytes and %d sums were told, of %d and %d", name, bytesTold, len(told), moves.Bytes(), len(sums))
	}
	var want []byte
	if work&cuda.Summing != 0 {
		want = checksum.AppendSums(nil, stream)
	}
	if !bytes.Equal(sums, want) {
		i := 0
		for i+8 <= min(len(sums), len(want)) && bytes.Equal(sums[i:i+8], want[i:i+8]) {
			i += 8
		}
		t.Fatalf("%s: %d sums where there are to be %d, and number %d is wrong", name, len(sums)/8, len(want)/8, i/8)
	}
	s := w.stream
	check(t, s.Copy(w.near.At(), w.to.At(), uint64(len(w.want))), s.Synchronize())
	if got := w.near.Bytes(); !bytes.Equal(got, w.want) {
		i := 0
		for got[i] == w.want[i] {
			i++
		}
		t.Fatalf("%s: byte %d is %#x and should be %#x", name, i, got[i], w.want[i])
	}
}

// randomMoves is a list whose destinations do not overlap; everything is a multiple
// of unit.
func randomMoves(random *rand.Rand, size, unit uint64) (list []cuda.Move) {
	to := unit * random.Uint64N(4)
	for range 1 + random.IntN(12) {
		length := unit * (1 + random.Uint64N([]uint64{4, 64, 4096, 8192}[random.IntN(4)]/unit+1))
		gap := unit * random.Uint64N(64) * random.Uint64N(2)
		count := 1 + random.Uint64N(40)*random.Uint64N(2)
		fromStride := unit * random.Uint64N(300)
		from := unit * random.Uint64N(size/2/unit)
		if to+count*(length+gap) > size || from+count*fromStride+length > size {
			continue
		}
		list = append(list, cuda.Move{From: cuda.Pointer(from), To: cuda.Pointer(to), FromStride: fromStride, ToStride: length + gap, Length: length, Count: count})
		to += count * (length + gap)
	}
	return list
}

// exercise is what every device must pass: all kernels, all alignments, all lengths
// of a tail.
func exercise(t *testing.T, d *cuda.Device, rounds int, size uint64) {
	random := rand.New(rand.NewPCG(7, 7))
	w := newWorld(t, d, size, random)
	for length := uint64(1); length <= 300; length++ {
		w.run(t, "short", cuda.CopySummed, []cuda.Move{{From: cuda.Pointer(length), To: cuda.Pointer(length % 16), Length: length, Count: 1}})
	}
	for _, length := range []uint64{1023, 1024, 1025, 1088, 4032, 4095, 4096, 4097, 8192, 12288 + 241, 12288 + 240} {
		for _, work := range []cuda.Work{cuda.Copying, cuda.Summing, cuda.CopySummed} {
			w.run(t, "tail", work, []cuda.Move{{From: 4096, To: 8192, Length: length, Count: 1}})
			w.run(t, "tail, odd", work, []cuda.Move{{From: 4097, To: 8192, Length: length, Count: 1}})
		}
	}
	for range rounds {
		unit := uint64(1) << random.IntN(6)
		work := []cuda.Work{cuda.Copying, cuda.Summing, cuda.CopySummed}[random.IntN(3)]
		w.run(t, "random", work, randomMoves(random, size, unit))
	}
	// Blocks in another order, and heads cut out of them: what hand-offs do.
	blocks := size / 2 / 16384
	var scattered, heads []cuda.Move
	for i, j := range random.Perm(int(blocks)) {
		scattered = append(scattered, cuda.Move{From: cuda.Pointer(i) * 16384, To: cuda.Pointer(j) * 16384, Length: 16384, Count: 1})
		heads = append(heads, cuda.Move{From: cuda.Pointer(i)*16384 + 512, To: cuda.Pointer(j) * 4096, FromStride: 2048, ToStride: 512, Length: 512, Count: 8})
	}
	for _, work := range []cuda.Work{cuda.Copying, cuda.Summing, cuda.CopySummed} {
		w.run(t, "scattered blocks", work, scattered)
		w.run(t, "heads", work, heads)
		w.layers(t, random, work, size)
	}
}

// layers has the same blocks of every layer moved: in whole segments, in pieces of them,
// and in pieces that segments do not end with.
func (w *world) layers(t *testing.T, random *rand.Rand, work cuda.Work, size uint64) {
	t.Helper()
	const count = 8
	layer := size / count
	for _, length := range []uint64{8192, 512, 72} {
		var list []cuda.Move
		for i, j := range random.Perm(int(layer / 8192)) {
			list = append(list, cuda.Move{From: cuda.Pointer(i) * 8192, To: cuda.Pointer(j) * 8192, FromStride: length, ToStride: length, Length: length, Count: 8192 / length})
		}
		var shifts []cuda.Shift
		for _, at := range random.Perm(count) {
			shifts = append(shifts, cuda.Shift{From: uint64(at) * layer, To: uint64(count-1-at) * layer})
		}
		w.run(t, "layers", work, list, shifts...)
	}
}

func TestMovesOnAModel(t *testing.T) {
	t.Parallel()
	exercise(t, open(t, cudatest.NewMachine(1, 1<<30).Process()), 20, 1<<17)
}

// A gate that closes ends the work when what was launched is done.
func TestGate(t *testing.T) {
	t.Parallel()
	p := cudatest.NewMachine(1, 1<<30).Process()
	d := open(t, p)
	w := newWorld(t, d, 1<<20, rand.New(rand.NewPCG(1, 1)))
	var moves cuda.Moves
	check(t, moves.Add(w.from.At(), w.to.At(), 1<<20))
	shut := errors.New("shut")
	if _, err := w.mover.Do(cuda.Copying, &moves, nil, &cuda.Course{Gate: func() error { return shut }}); !errors.Is(err, shut) {
		t.Errorf("a gate that is shut: %v", err)
	}
	if p.Launches() != 0 {
		t.Errorf("%d kernels went through a gate that is shut", p.Launches())
	}
	opened := 0
	if _, err := w.mover.Do(cuda.Copying, &moves, nil, &cuda.Course{Gate: func() error { opened++; return nil }}); err != nil || opened != 1 {
		t.Errorf("asked %d times, %v", opened, err)
	}
}

func TestAnAllocationIsNotOverrun(t *testing.T) {
	t.Parallel()
	d, err := cuda.Open(cuda.Options{Driver: cudatest.NewMachine(1, 1<<30).Process()})
	check(t, err)
	m, err := d.Mover()
	check(t, err)
	memory, err := d.Alloc(8192)
	check(t, err)
	var moves cuda.Moves
	check(t, moves.Add(memory.At(), memory.At()+4096, 8192))
	if _, err := m.Do(cuda.Copying, &moves, nil, nil); !cuda.Lost(err) {
		t.Errorf("a move beyond its allocation: %v", err)
	}
	if err := m.Close(); !cuda.Lost(err) {
		t.Errorf("closing after it: %v", err)
	}
}
