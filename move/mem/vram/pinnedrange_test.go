package vram_test

import (
	"context"
	"errors"
	"testing"

	"meridian/internal/until"
	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// slow is a process whose driver pins memory when it is let.
type slow struct {
	*cudatest.Process
	let chan struct{}
}

func (s *slow) HostRegister(c cuda.ContextHandle, at uintptr, bytes uint64, readOnly bool) error {
	<-s.let
	return s.Process.HostRegister(c, at, bytes, readOnly)
}

func newArena(t *testing.T) (*mem.Arena, []byte) {
	t.Helper()
	a, err := mem.NewArena(mem.ArenaOptions{SizeBytes: 1 << 20, NUMANode: -1})
	check(t, err)
	return a, a.Bytes(0, a.Size())
}

func never(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// Memory of our own is pinned when GPU memory is first lent, or at once where some is;
// until then no GPU is touched.
func TestOwnHostMemoryIsPinned(t *testing.T) {
	machine := cudatest.NewMachine(1, 1<<24)
	engine, _, lent := lender(t, machine, 1<<20)
	defer engine.Kill()
	here := machine.Process()
	pool := vram.NewPool(here)
	first, bytes := newArena(t)
	early := pool.Pin(bytes, never(t))
	unused, _ := newArena(t)
	gone := pool.Pin(unused.Bytes(0, unused.Size()), never(t))
	check(t, gone.Release(t.Context()), unused.Close(t.Context()))
	if n := here.Open(); n != 0 {
		t.Fatalf("a GPU was opened for no use: %d things", n)
	}
	s, err := pool.Import(lent)
	check(t, err)
	until.True(t, "what was there is pinned", func() bool { return pool.Counts().Pinned == 1 })
	second, more := newArena(t)
	late := pool.Pin(more, never(t))
	until.True(t, "what came later is pinned", func() bool { return pool.Counts().Pinned == 2 })
	again, err := vram.Of(s).Device.Register(bytes, false) // as a fabric does
	check(t, err)
	if again.At() != cuda.Pointer(first.Base()) {
		t.Errorf("the device sees it at %#x", uint64(again.At()))
	}
	check(t, early.Release(t.Context()), again.Close(), late.Release(t.Context()), late.Release(t.Context()))
	if n := pool.Counts().Pinned; n != 0 {
		t.Errorf("%d are still pinned", n)
	}
	check(t, first.Close(t.Context()), second.Close(t.Context()), s.Close(t.Context()), pool.Close())
	if n := here.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
}

// What cannot be pinned is told, and is plain memory.
func TestOwnHostMemoryCannotBePinned(t *testing.T) {
	process := cudatest.NewMachine(1, 1<<24).Process()
	process.Unregistered = true
	pool := vram.NewPool(process)
	uuid, err := pool.First()
	check(t, err)
	_, err = pool.Device(uuid)
	check(t, err)
	a, bytes := newArena(t)
	told := make(chan error, 1)
	o := pool.Pin(bytes, func(err error) { told <- err })
	if err := <-told; !errors.Is(err, cuda.NotSupported) {
		t.Errorf("told %v", err)
	}
	check(t, o.Release(t.Context()), a.Close(t.Context()), pool.Close())
	if n := process.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
}

// A GPU that takes its time keeps the memory mapped, and who waits for it no longer than
// he likes.
func TestOwnHostMemoryIsStillBeingPinned(t *testing.T) {
	driver := &slow{Process: cudatest.NewMachine(1, 1<<24).Process(), let: make(chan struct{})}
	pool := vram.NewPool(driver)
	uuid, err := pool.First()
	check(t, err)
	_, err = pool.Device(uuid)
	check(t, err)
	a, bytes := newArena(t)
	o := pool.Pin(bytes, never(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Release(ctx); !errors.Is(err, vram.ErrPinning) || !errors.Is(err, context.Canceled) {
		t.Errorf("released while it is being pinned: %v", err)
	}
	close(driver.let)
	check(t, o.Release(t.Context()), a.Close(t.Context()), pool.Close())
	if n := driver.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
}
