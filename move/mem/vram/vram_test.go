package vram_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// lender is a process that has VRAM, and how it lends all of it.
func lender(t *testing.T, m *cudatest.Machine, bytes uint64) (*cudatest.Process, *cuda.Memory, vram.Lent) {
	t.Helper()
	p := m.Process()
	d, err := cuda.Open(cuda.Options{Driver: p})
	check(t, err)
	a, err := d.Alloc(bytes)
	check(t, err)
	h, err := a.Export()
	check(t, err)
	check(t, d.Write(a.At(), []byte("abcdefgh")))
	return p, a, vram.Lent{UUID: d.UUID, Handle: h, SizeBytes: bytes}
}

func TestLentMemory(t *testing.T) {
	machine := cudatest.NewMachine(1, 1<<24)
	engine, _, lent := lender(t, machine, 1<<20)
	here := machine.Process()
	pool := vram.NewPool(here)
	whole, err := pool.Import(lent)
	check(t, err)
	part := lent
	part.Offset, part.SizeBytes, part.Device = 4, 1000, 3
	second, err := pool.Import(part)
	check(t, err)
	if n := pool.Counts().Imports; n != 1 {
		t.Errorf("two sections of one allocation are %d imports", n)
	}
	got := make([]byte, 4)
	check(t, second.WriteAt([]byte("EF"), 0), whole.ReadAt(got, 3))
	if string(got) != "dEFg" {
		t.Errorf("read %q", got)
	}
	if second.Kind() != mem.VRAM || second.Device() != 3 || vram.Of(second).At != vram.Of(whole).At+4 || vram.Of(second).Offset != 4 {
		t.Errorf("%v memory of device %d", second.Kind(), second.Device())
	}
	engine.Kill()
	check(t, whole.Close(t.Context()))
	if machine.Taken(0) == 0 {
		t.Error("the memory is gone while a section of it is open")
	}
	check(t, second.Close(t.Context()))
	if machine.Taken(0) != 0 {
		t.Error("the dead engine's memory is still taken")
	}
	check(t, pool.Close())
	if n := here.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
	if _, err := pool.Import(lent); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("imported through a closed pool: %v", err)
	}
}

func TestImportRefuses(t *testing.T) {
	machine := cudatest.NewMachine(1, 1<<24)
	engine, _, good := lender(t, machine, 1<<20)
	defer engine.Kill()
	here := machine.Process()
	pool := vram.NewPool(here)
	for name, spoil := range map[string]func(*vram.Lent){
		"no UUID":          func(l *vram.Lent) { l.UUID = cuda.UUID{} },
		"another UUID":     func(l *vram.Lent) { l.UUID[3]++ },
		"no handle":        func(l *vram.Lent) { l.Handle = cuda.IPCHandle{} },
		"nothing":          func(l *vram.Lent) { l.SizeBytes = 0 },
		"too much":         func(l *vram.Lent) { l.SizeBytes++ },
		"too far":          func(l *vram.Lent) { l.Offset = 1<<20 + 1 },
		"too far together": func(l *vram.Lent) { l.Offset = 1 },
		"wraps around":     func(l *vram.Lent) { l.Offset = 1<<64 - 1; l.SizeBytes = 2 },
	} {
		l := good
		spoil(&l)
		if _, err := pool.Import(l); err == nil {
			t.Errorf("%s: imported", name)
		}
	}
	if c := pool.Counts(); c.Total() != 0 {
		t.Errorf("refusals left %s", c)
	}
	if n := here.Open(); n != 0 {
		t.Errorf("refusals left a GPU open: %d things", n)
	}
	check(t, pool.Close())
	if n := here.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
}

func TestOwnMemory(t *testing.T) {
	machine := cudatest.NewMachine(2, 1<<24)
	here, there := machine.Process(), machine.Process()
	list, err := cuda.List(here)
	check(t, err)
	ours, theirs := vram.NewPool(here), vram.NewPool(there)
	s, err := ours.Alloc(list[1].UUID, 1<<20, 5)
	check(t, err)
	if machine.Taken(1) != 1<<20 {
		t.Error("it is not on the device that was asked for")
	}
	m := vram.Of(s)
	other, err := theirs.Import(vram.Lent{UUID: m.Device.UUID, Handle: m.Handle, Offset: m.Offset, SizeBytes: s.Size()})
	check(t, err, s.WriteAt([]byte("hello"), 77))
	got := make([]byte, 5)
	check(t, other.ReadAt(got, 77))
	if string(got) != "hello" {
		t.Errorf("the other process reads %q", got)
	}
	check(t, other.Close(t.Context()), s.Close(t.Context()), ours.Close(), theirs.Close())
	if here.Open()+there.Open() != 0 || machine.Taken(1) != 0 {
		t.Error("something is left")
	}
	if _, err := ours.Alloc(list[0].UUID, 1, 0); err == nil {
		t.Error("a closed pool allocated")
	}
	arena, err := mem.NewArena(mem.ArenaOptions{SizeBytes: 4096, NUMANode: -1})
	check(t, err)
	if vram.Of(arena.Section) != nil {
		t.Error("an arena is VRAM")
	}
	check(t, arena.Close(t.Context()))
}

// Peers decide how many transfers there are at a time, not how much pinned memory.
func TestMoversAreBounded(t *testing.T) {
	process := cudatest.NewMachine(1, 1<<30).Process()
	list, err := cuda.List(process)
	check(t, err)
	pool := vram.NewPool(process)
	s, err := pool.Alloc(list[0].UUID, 1<<20, 5)
	check(t, err)
	device := vram.Of(s).Device
	var lent []*vram.Mover
	for range vram.MaxMovers {
		m, err := pool.Mover(device)
		check(t, err)
		lent = append(lent, m)
	}
	if _, err := pool.Mover(device); !errors.Is(err, vram.ErrBusy) {
		t.Errorf("one more than there may be: %v", err)
	}
	pool.GiveBack(lent[0])
	again, err := pool.Mover(device)
	check(t, err)
	for _, m := range append(lent[1:], again) {
		pool.GiveBack(m)
	}
	check(t, s.Close(t.Context()), pool.Close())
	if n := process.Open(); n != 0 {
		t.Errorf("%d things are open at the end", n)
	}
}
