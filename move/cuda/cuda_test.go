package cuda_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
)

// puppet is what this binary does instead of tests, where a test has started it to
// be another process.
var puppet func()

func TestMain(m *testing.M) {
	if os.Getenv("MERIDIAN_CUDA_PUPPET") != "" {
		puppet()
		return
	}
	goleak.VerifyTestMain(m)
}

// open opens the only GPU of a process. At the end of the test nothing may be open.
func open(t *testing.T, p *cudatest.Process) *cuda.Device {
	t.Helper()
	d, err := cuda.Open(cuda.Options{Driver: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := p.Open(); n != 0 {
			t.Errorf("the driver has %d things open at the end", n)
		}
	})
	return d
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := cuda.Open(cuda.Options{Driver: cudatest.NewMachine(0, 0).Process()}); !errors.Is(err, cuda.NoDevice) || !strings.Contains(err.Error(), "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("without a GPU: %v", err)
	}
	p := cudatest.NewMachine(2, 1<<20).Process()
	if _, err := cuda.Open(cuda.Options{Driver: p, UUID: cuda.UUID{1}}); err == nil || !strings.Contains(err.Error(), "GPU-01000000-0000-0000-0000-000000000000") {
		t.Errorf("an unknown GPU: %v", err)
	}
	list, err := cuda.List(p)
	check(t, err)
	d, err := cuda.Open(cuda.Options{Driver: p, UUID: list[1].UUID})
	check(t, err)
	if d.UUID != list[1].UUID {
		t.Errorf("opened %s, not %s", d.UUID, list[1].UUID)
	}
	check(t, d.Close(), d.Close())
}

func TestMemoryRunsOut(t *testing.T) {
	t.Parallel()
	d := open(t, cudatest.NewMachine(1, 1<<20).Process())
	_, err := d.Alloc(2 << 20)
	var e *cuda.Error
	if !errors.Is(err, cuda.OutOfMemory) || !errors.As(err, &e) || e.Hint() == "" || !strings.Contains(err.Error(), "2097152 bytes: CUDA_ERROR_OUT_OF_MEMORY (") {
		t.Errorf("too much: %v", err)
	}
	if c := d.Counts(); c.Total() != 0 {
		t.Errorf("a refused allocation is counted: %s", c)
	}
	if cuda.Lost(err) {
		t.Error("a refused allocation is said to have lost the context")
	}
}

func TestClosingNamesLeaks(t *testing.T) {
	t.Parallel()
	d, err := cuda.Open(cuda.Options{Driver: cudatest.NewMachine(1, 1<<20).Process()})
	check(t, err)
	m, err := d.Alloc(4096)
	check(t, err)
	e, err := d.Event()
	check(t, err)
	defer func() { _, _ = m.Close(), e.Close() }()
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "1 allocations, 0 pinned, 0 imports, 0 streams, 1 events") {
		t.Errorf("closed with things open: %v", err)
	}
	if _, err := d.Alloc(4096); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("allocated on a closed device: %v", err)
	}
	if _, err := d.Import(cuda.IPCHandle{}); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("imported on a closed device: %v", err)
	}
	if _, err := d.Mover(); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("a mover on a closed device: %v", err)
	}
}

// exported is memory of another process, filled with a value.
func exported(t *testing.T, m *cudatest.Machine, bytes uint64, value byte) (*cudatest.Process, cuda.IPCHandle, cuda.Pointer) {
	t.Helper()
	p := m.Process()
	d, err := cuda.Open(cuda.Options{Driver: p})
	check(t, err)
	memory, err := d.Alloc(bytes)
	check(t, err)
	s, err := d.Stream()
	check(t, err, s.Fill(memory.At(), value, bytes), s.Synchronize(), s.Close())
	h, err := memory.Export()
	check(t, err)
	return p, h, memory.At()
}

func TestImportsAreSharedAndCounted(t *testing.T) {
	t.Parallel()
	machine := cudatest.NewMachine(1, 1<<24)
	one, first, firstAt := exported(t, machine, 1<<20, 0xA1)
	two, second, secondAt := exported(t, machine, 1<<20, 0xB2)
	if firstAt != secondAt {
		t.Fatal("the test wants two processes with equal addresses")
	}
	d := open(t, machine.Process())
	a, err := d.Import(first)
	check(t, err)
	again, err := d.Import(first)
	check(t, err)
	b, err := d.Import(second)
	check(t, err)
	if a != again || a.At() == b.At() || d.Counts().Imports != 2 || a.Bytes() != 1<<20 {
		t.Errorf("imports at %#x, %#x and %#x, counted as %d", a.At(), again.At(), b.At(), d.Counts().Imports)
	}
	check(t, again.Close())

	// The memory of the dead stays as long as it is imported, and no longer.
	one.Kill()
	two.Kill()
	if got := peek(t, d, a.At()+12345); got != 0xA1 {
		t.Errorf("the dead exporter's memory reads %#x", got)
	}
	check(t, a.Close(), b.Close())
	if taken := machine.Taken(0); taken != 0 {
		t.Errorf("%d bytes of dead processes are still taken", taken)
	}
	if _, err := d.Import(first); !errors.Is(err, cuda.InvalidValue) {
		t.Errorf("import from the dead: %v", err)
	}
	if c := d.Counts(); c.Allocations+c.Imports+c.Events != 0 {
		t.Errorf("open at the end: %s", c)
	}
}

func peek(t *testing.T, d *cuda.Device, at cuda.Pointer) byte {
	t.Helper()
	var b [1]byte
	check(t, d.Read(b[:], at))
	return b[0]
}

func TestImportsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	machine := cudatest.NewMachine(1, 1<<24)
	owner, h, _ := exported(t, machine, 1<<20, 1)
	defer owner.Kill()
	d := open(t, machine.Process())
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 200 {
				i, failed := d.Import(h)
				if failed != nil {
					err = errors.Join(err, failed)
					continue
				}
				err = errors.Join(err, i.Close())
			}
			done <- err
		}()
	}
	for range 8 {
		check(t, <-done)
	}
	if _, err := d.Import(cuda.IPCHandle{1, 2, 3}); err == nil {
		t.Error("64 bytes of nothing were imported")
	}
	if c := d.Counts(); c.Total() != 0 {
		t.Errorf("open at the end: %s", c)
	}
}

func TestStreamsWaitForEvents(t *testing.T) {
	t.Parallel()
	d := open(t, cudatest.NewMachine(1, 1<<24).Process())
	a, err := d.Stream()
	check(t, err)
	b, err := d.Stream()
	check(t, err)
	e, err := d.Event()
	check(t, err)
	f, err := d.Event()
	check(t, err)
	m, err := d.Alloc(1 << 20)
	check(t, err)
	for i := range 50 {
		check(t, a.Fill(m.At(), byte(i), 1<<20), e.Record(a), b.Wait(e), b.Fill(m.At(), 0xff, 1), f.Record(b), f.Synchronize())
		if got := peek(t, d, m.At()); got != 0xff {
			t.Fatalf("the stream did not wait: %#x", got)
		}
	}
	if done, err := f.Done(); !done || err != nil {
		t.Errorf("an event that was awaited: %v, %v", done, err)
	}
	check(t, e.Close(), f.Close(), a.Close(), b.Close(), m.Close())
}

func TestABadAddressLosesTheContext(t *testing.T) {
	t.Parallel()
	d, err := cuda.Open(cuda.Options{Driver: cudatest.NewMachine(1, 1<<24).Process()})
	check(t, err)
	s, err := d.Stream()
	check(t, err)
	check(t, s.Fill(0xdead, 1, 1))
	if err := s.Synchronize(); !errors.Is(err, cuda.IllegalAddress) || !cuda.Lost(err) || !strings.Contains(err.Error(), "restart the process") {
		t.Errorf("a bad address: %v", err)
	}
	if _, err := d.Alloc(4096); !cuda.Lost(err) {
		t.Errorf("after a bad address: %v", err)
	}
	if err := s.Close(); !cuda.Lost(err) {
		t.Errorf("closing after it: %v", err)
	}
}

func TestRegisteredMemory(t *testing.T) {
	t.Parallel()
	d := open(t, cudatest.NewMachine(1, 1<<24).Process())
	ours, err := d.Pin(8192)
	check(t, err)
	if _, err := d.Register(ours.Bytes()[:4096], false); !errors.Is(err, cuda.AlreadyRegistered) {
		t.Errorf("registered twice: %v", err)
	}
	arena := slices.Repeat([]byte{7}, 8192)
	r, err := d.Register(arena, true)
	check(t, err)
	if got := peek(t, d, r.At()+100); got != 7 {
		t.Errorf("registered memory reads %d", got)
	}
	check(t, r.Close(), ours.Close())
}

// CUDA pins memory once, for all devices: who registers it again shares that, on
// whichever device, and the last one unpins it.
func TestRegisteredMemoryIsShared(t *testing.T) {
	t.Parallel()
	process := cudatest.NewMachine(2, 1<<24).Process()
	list, err := cuda.List(process)
	check(t, err)
	first := open(t, process)
	second, err := cuda.Open(cuda.Options{Driver: process, UUID: list[1].UUID})
	check(t, err)
	before := process.Open()
	arena := slices.Repeat([]byte{7}, 8192)
	var all []*cuda.Pinned
	for _, d := range []*cuda.Device{first, second, first} {
		r, err := d.Register(arena, false)
		check(t, err)
		all = append(all, r)
	}
	if n := process.Open() - before; n != 1 || first.Counts().Pinned != 2 || second.Counts().Pinned != 1 {
		t.Errorf("%d registrations; %s and %s", n, first.Counts(), second.Counts())
	}
	if _, err := second.Register(arena[:4096], false); !errors.Is(err, cuda.AlreadyRegistered) {
		t.Errorf("a part of it: %v", err)
	}
	check(t, all[0].Close(), all[2].Close())
	if got := peek(t, second, all[1].At()+100); got != 7 {
		t.Errorf("registered memory reads %d", got)
	}
	check(t, all[1].Close())
	if n := process.Open() - before - 2; n > 0 { // of peeking: pinned memory and a stream
		t.Errorf("%d things are left", n)
	}
	again, err := second.Register(arena, true) // it is free again, for other uses
	check(t, err)
	check(t, again.Close(), second.Close())
}

func TestBytesPassThrough(t *testing.T) {
	t.Parallel()
	d := open(t, cudatest.NewMachine(1, 1<<24).Process())
	m, err := d.Alloc(1 << 20)
	check(t, err)
	sent := make([]byte, 700_001)
	for i := range sent {
		sent[i] = byte(i * 7 / 5)
	}
	got := make([]byte, len(sent))
	check(t, d.Write(m.At()+3, sent), d.Read(got, m.At()+3), d.Read(nil, m.At()))
	if !slices.Equal(got, sent) {
		t.Error("other bytes came back")
	}
	check(t, m.Close())
}
