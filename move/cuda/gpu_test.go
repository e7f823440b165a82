//go:build accel

package cuda_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/move/cuda"
)

func init() { puppet = exporter }

// gpu opens the first GPU of this machine. At the end of the test nothing may be
// open.
func gpu(t testing.TB) *cuda.Device {
	t.Helper()
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		require.Skip(t, "gpu", err.Error())
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestGPUIsDescribed(t *testing.T) {
	d := gpu(t)
	free, total, err := d.Free()
	check(t, err)
	t.Logf("%s, %s, compute capability %d.%d, %d multiprocessors, %d of %d MiB free", d.Name, d.UUID, d.Major, d.Minor, d.Multiprocessors, free>>20, total>>20)
	if d.Name == "" || d.UUID == (cuda.UUID{}) || d.Multiprocessors == 0 || d.Major < 7 || free == 0 || free > total {
		t.Error("that is no GPU")
	}
	if _, err := d.Alloc(1 << 50); !errors.Is(err, cuda.OutOfMemory) {
		t.Errorf("a petabyte: %v", err)
	}
	if _, err := d.Import(cuda.IPCHandle{1, 2, 3}); err == nil {
		t.Error("64 bytes of nothing were imported")
	} else {
		t.Log(err)
	}
	memory, err := d.Alloc(4096)
	check(t, err)
	own, err := memory.Export()
	check(t, err)
	if _, err := d.Import(own); err == nil {
		t.Error("a process imported its own memory")
	} else {
		t.Log(err)
	}
	check(t, memory.Close())
}

func TestGPUMoves(t *testing.T) {
	exercise(t, gpu(t), 600, 1<<22)
}

// Launches follow one another, with two tables: more bytes than one may move.
func TestGPUMovesManyLaunches(t *testing.T) {
	d := gpu(t)
	const size, block = 3*cuda.LaunchBytes + 12345*16, 4096
	random := rand.New(rand.NewPCG(3, 3))
	w := newWorld(t, d, size, random)
	var list []cuda.Move
	for i, j := range random.Perm(size / block) {
		list = append(list, cuda.Move{From: cuda.Pointer(i * block), To: cuda.Pointer(j * block), Length: block, Count: 1})
	}
	w.run(t, "many blocks", cuda.CopySummed, list)
	w.run(t, "all at once", cuda.CopySummed, []cuda.Move{{Length: size, Count: 1}})
}

// exporter lends VRAM until its input ends.
func exporter() {
	d, err := cuda.Open(cuda.Options{})
	var m *cuda.Memory
	var s *cuda.Stream
	var h cuda.IPCHandle
	if err == nil {
		m, err = d.Alloc(exportedBytes)
	}
	if err == nil {
		s, err = d.Stream()
	}
	if err == nil {
		err = errors.Join(s.Fill(m.At(), 0xA1, exportedBytes), s.Synchronize())
	}
	if err == nil {
		h, err = m.Export()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(hex.EncodeToString(h[:]))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

const exportedBytes = 1 << 30

// lender starts an exporter and returns its handle.
func lender(t *testing.T) (*exec.Cmd, cuda.IPCHandle) {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), "MERIDIAN_CUDA_PUPPET=1")
	stdin, err := command.StdinPipe()
	check(t, err)
	stdout, err := command.StdoutPipe()
	check(t, err, command.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	check(t, err)
	var h cuda.IPCHandle
	if n, err := hex.Decode(h[:], []byte(strings.TrimSpace(line))); n != len(h) || err != nil {
		t.Fatalf("the exporter says %s", line)
	}
	return command, h
}

// Two processes: bytes of the other one are read, and written; it is killed while
// kernels read its memory, which is free once the import is closed.
func TestGPUImports(t *testing.T) {
	d := gpu(t)
	other, h := lender(t)
	i, err := d.Import(h)
	check(t, err)
	again, err := d.Import(h)
	check(t, err)
	if again != i || i.Bytes() != exportedBytes || d.Counts().Imports != 1 {
		t.Fatalf("%d bytes imported as %d imports", i.Bytes(), d.Counts().Imports)
	}
	check(t, again.Close())
	if got := peek(t, d, i.At()+exportedBytes-1); got != 0xA1 {
		t.Errorf("the other's last byte is %#x", got)
	}
	m, err := d.Mover()
	check(t, err)
	mine, err := d.Alloc(exportedBytes)
	check(t, err)
	var there, back cuda.Moves
	check(t, back.Add(i.At(), mine.At(), exportedBytes), there.Add(mine.At(), i.At(), 1<<20))
	s, err := d.Stream()
	check(t, err)
	check(t, s.Fill(mine.At(), 0x17, 1<<20), s.Synchronize(), s.Close())
	_, err = m.Do(cuda.Copying, &there, nil, nil)
	check(t, err)
	if got := peek(t, d, i.At()+4711); got != 0x17 {
		t.Errorf("the other's memory was to be written, and reads %#x", got)
	}
	before, _, err := d.Free()
	check(t, err)
	for round := range 200 {
		if round == 20 {
			check(t, other.Process.Kill())
		}
		_, err = m.Do(cuda.CopySummed, &back, nil, nil)
		check(t, err)
	}
	if got := peek(t, d, mine.At()+exportedBytes-1); got != 0xA1 {
		t.Errorf("of the dead one's memory arrived %#x", got)
	}
	check(t, i.Close(), m.Close(), mine.Close())
	until.Well(t, "the dead one's memory is free", func() string {
		after, _, err := d.Free()
		check(t, err)
		if after < before+2*exportedBytes-(64<<20) {
			return fmt.Sprintf("%d MiB were free and %d are", before>>20, after>>20)
		}
		return ""
	})
	if c := d.Counts(); c.Allocations+c.Imports+c.Events != 0 {
		t.Errorf("open at the end: %s", c)
	}
}

func BenchmarkGPU(b *testing.B) {
	d := gpu(b)
	const size = 4 << 30
	must := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
	}
	m, err := d.Mover()
	must(err)
	from, err := d.Alloc(size)
	must(err)
	to, err := d.Alloc(size)
	must(err)
	host, err := d.Pin(1 << 30)
	must(err)
	s, err := d.Stream()
	must(err)
	must(s.Fill(from.At(), 3, size), s.Synchronize())
	rate := func(name string, bytes uint64, do func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				do()
			}
		})
	}
	rate("memcpy", size, func() { must(s.Copy(to.At(), from.At(), size), s.Synchronize()) })
	moved := func(name string, bytes uint64, moves *cuda.Moves, work cuda.Work) {
		var sums []byte
		rate(name, bytes, func() {
			sums, err = m.Do(work, moves, sums[:0], nil)
			must(err)
		})
	}
	for _, block := range []uint64{4 << 10, 16 << 10, 64 << 10} {
		var moves, out, in cuda.Moves
		for i, j := range rand.New(rand.NewPCG(1, 1)).Perm(int(size / block)) {
			must(moves.Add(from.At()+cuda.Pointer(uint64(i)*block), to.At()+cuda.Pointer(uint64(j)*block), block))
			if at := cuda.Pointer(uint64(i) * block); uint64(at) < 1<<30 {
				must(out.Add(from.At()+cuda.Pointer(uint64(j)*block), host.At()+at, block))
				must(in.Add(host.At()+at, to.At()+cuda.Pointer(uint64(j)*block), block))
			}
		}
		moved(fmt.Sprintf("copy/%dKiB", block>>10), size, &moves, cuda.Copying)
		moved(fmt.Sprintf("copysum/%dKiB", block>>10), size, &moves, cuda.CopySummed)
		moved(fmt.Sprintf("sum/%dKiB", block>>10), size, &moves, cuda.Summing)
		moved(fmt.Sprintf("tohost/%dKiB", block>>10), 1<<30, &out, cuda.Copying)
		moved(fmt.Sprintf("fromhost/%dKiB", block>>10), 1<<30, &in, cuda.Copying)
	}
	for _, piece := range []uint64{256, 512, 1024} {
		// Half the heads of every token, of blocks in another order.
		var moves cuda.Moves
		const block = 32 << 10
		for i, j := range rand.New(rand.NewPCG(1, 1)).Perm(size / block) {
			must(moves.AddRun(cuda.Move{From: from.At() + cuda.Pointer(i*block), To: to.At() + cuda.Pointer(j*block/2), FromStride: 2 * piece, ToStride: piece, Length: piece, Count: block / 2 / piece}))
		}
		moved(fmt.Sprintf("heads/%dB", piece), size/2, &moves, cuda.Copying)
		moved(fmt.Sprintf("heads-summed/%dB", piece), size/2, &moves, cuda.CopySummed)
	}
	// Blocks in random order, the same in every layer.
	const layers = 128
	for _, block := range []uint64{4 << 10, 16 << 10} {
		var moves cuda.Moves
		for i, j := range rand.New(rand.NewPCG(1, 1)).Perm(int(size / layers / block)) {
			must(moves.Add(from.At()+cuda.Pointer(uint64(i)*block), to.At()+cuda.Pointer(uint64(j)*block), block))
		}
		var shifts []cuda.Shift
		for i := range uint64(layers) {
			shifts = append(shifts, cuda.Shift{From: i * size / layers, To: i * size / layers})
		}
		must(moves.Repeat(shifts))
		moved(fmt.Sprintf("layers/%dKiB", block>>10), size, &moves, cuda.Copying)
		moved(fmt.Sprintf("layers-summed/%dKiB", block>>10), size, &moves, cuda.CopySummed)
		moved(fmt.Sprintf("layers-verified/%dKiB", block>>10), size, &moves, cuda.Verified)
	}
	var one cuda.Moves
	must(one.Add(from.At(), to.At(), 16<<10))
	moved("one/16KiB", 16<<10, &one, cuda.Copying)
	moved("one-summed/16KiB", 16<<10, &one, cuda.CopySummed)
	must(m.Close(), s.Close(), from.Close(), to.Close(), host.Close())
}
