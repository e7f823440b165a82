package tcp

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// gpu counts kernels, and can hang at one.
type gpu struct {
	*cudatest.Process
	launches atomic.Int64
	hangAt   atomic.Int64
	resume   func() // what hangAt made hang, once Waiting says that it does
}

func (g *gpu) Launch(c cuda.ContextHandle, s cuda.StreamHandle, l cuda.Launch) error {
	if n := g.launches.Add(1); n == g.hangAt.Load() {
		g.resume = g.Hang()
	}
	return g.Process.Launch(c, s, l)
}

// hangIn has the GPU hang at the kernel that comes after so many others.
func (g *gpu) hangIn(kernels int64) { g.hangAt.Store(g.launches.Load() + kernels + 1) }

// awaitHung waits until a kernel hangs.
func (g *gpu) awaitHung(t *testing.T) {
	t.Helper()
	until.True(t, "a kernel hangs", func() bool { return g.Waiting() > 0 })
}

// newGPU is a pool of one GPU that has opened all that it keeps, and how to make memory
// of it.
func newGPU(t *testing.T) (*gpu, func(t testing.TB, sizeBytes uint64) *mem.Section) {
	t.Helper()
	machine := cudatest.NewMachine(1, 1<<40)
	process := &gpu{Process: machine.Process()}
	pool, section := warmPool(t, process)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if machine.Taken(0) != 0 {
			t.Errorf("%d bytes of the GPU are still taken", machine.Taken(0))
		}
	})
	return process, section
}

// warmPool has the first GPU of a driver opened, and all that a pool keeps of it: a case
// of the suite looks for what is left of it.
func warmPool(t *testing.T, driver cuda.Driver) (*vram.Pool, func(t testing.TB, sizeBytes uint64) *mem.Section) {
	t.Helper()
	pool := vram.NewPool(driver)
	uuid, err := pool.First()
	if err != nil {
		t.Fatal(err)
	}
	d, err := pool.Device(uuid)
	if err != nil {
		t.Fatal(err)
	}
	var movers []*vram.Mover
	for range 32 {
		m, err := pool.Mover(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Pinned(); err != nil {
			t.Fatal(err)
		}
		movers = append(movers, m)
	}
	for _, m := range movers {
		pool.GiveBack(m)
	}
	section := func(t testing.TB, sizeBytes uint64) *mem.Section {
		s, err := pool.Alloc(uuid, sizeBytes, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := section(t, 1) // what a device opens for the first bytes stays open
	if err := errors.Join(first.WriteAt([]byte{1}, 0), first.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return pool, section
}

// GPU memory is staged, and held to the same contract.
func TestSuiteVRAM(t *testing.T) {
	_, section := newGPU(t)
	o := suite(Options{Streams: 2})
	o.Brief, o.Sums, o.Patience = true, false, time.Minute
	o.NearSection, o.FarSection = section, section
	fabrictest.Run(t, o)
}

// hangs is two agents with a GPU each, and a link between them.
type hangs struct {
	fabrics   [2]*Fabric
	processes [2]*gpu
	memory    [2]*mem.Section
	link      fabric.Link
}

// hungBytes is three chunks and a bit.
const hungBytes = 3*stagedBytes + 123

func newHangs(t *testing.T) *hangs {
	t.Helper()
	h := &hangs{}
	for i, name := range []string{"near", "far"} {
		process, section := newGPU(t)
		f, err := Open(t.Context(), Options{Agent: name, Incarnation: kv.ID{byte(i + 1)}, Listen: "127.0.0.1:0", Streams: 1, Events: &heard{notes: make(chan fabric.Notification, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		h.fabrics[i], h.processes[i], h.memory[i] = f, process, section(t, hungBytes)
		t.Cleanup(func() {
			if err := errors.Join(f.Close(context.Background()), h.memory[i].Close(context.Background())); err != nil {
				t.Error(err)
			}
		})
		if err := f.Register(fabric.Region{ID: 1, Epoch: 7, Section: h.memory[i]}); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if h.link, err = h.fabrics[0].Connect(t.Context(), fabric.Peer{Name: "far", Incarnation: kv.ID{2}, Address: h.fabrics[1].Address()}); err != nil {
		t.Fatal(err)
	}
	return h
}

// stuck posts a transfer that hangs on one side's GPU.
func (h *hangs) stuck(t *testing.T, op fabric.Op, on *gpu) *fabric.Transfer {
	t.Helper()
	transfer := h.post(t, op, 1, 1<<20)
	on.awaitHung(t)
	return transfer
}

// post posts a transfer of the first bytes of a region.
func (h *hangs) post(t *testing.T, op fabric.Op, region, bytes uint64) *fabric.Transfer {
	t.Helper()
	list := fabric.List{{Region: region, Epoch: 7}}
	if err := list[0].Spans.Add(0, bytes); err != nil {
		t.Fatal(err)
	}
	p, err := h.link.Prepare(op, list, list)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	transfer, err := h.link.Post(context.Background(), p, fabric.PostOptions{ID: newID()})
	if err != nil {
		t.Fatal(err)
	}
	return transfer
}

// A source whose GPU hangs is quiet at once: what is read late does no harm.
func TestHungSource(t *testing.T) {
	h := newHangs(t)
	for i, op := range []fabric.Op{fabric.Write, fabric.Read} {
		resume := h.processes[i].Hang()
		stuck := h.stuck(t, op, h.processes[i])
		if err := stuck.Cancel(t.Context()); err != nil {
			t.Errorf("%v: %v", op, err)
		}
		if state, err := stuck.Status(); !errors.Is(err, fabric.ErrCancelled) {
			t.Errorf("%v: it is %v, %v", op, state, err)
		}
		resume()
	}
}

// A destination whose GPU hangs is not quiet, so its transfer has not ended: a cancel and
// a fence wait as long as their caller does, and it ends when the GPU works again.
func TestHungDestination(t *testing.T) {
	h := newHangs(t)
	resume := h.processes[0].Hang()
	stuck := h.stuck(t, fabric.Read, h.processes[0])
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := stuck.Cancel(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled while the GPU has it: %v", err)
	}
	if err := h.fabrics[0].Deregister(brief, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fenced while the GPU has it: %v", err)
	}
	if state, _ := stuck.Status(); state.Ended() {
		t.Errorf("it is %v while the GPU has it", state)
	}
	resume()
	if err := stuck.Await(t.Context()); !errors.Is(err, fabric.ErrCancelled) {
		t.Errorf("it ends with %v", err)
	}
	want, got := make([]byte, 1<<20), make([]byte, 1<<20)
	if err := h.memory[0].WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	until.True(t, "no kernel waits", func() bool { return h.processes[0].Waiting() == 0 })
	if err := h.memory[0].ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("memory changed after the cancel: wrong bytes, %v", err)
	}
}
