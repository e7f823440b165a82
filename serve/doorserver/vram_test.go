package doorserver_test

import (
	"errors"
	"fmt"
	"testing"

	"meridian/internal/until"
	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// gpus is a machine with GPUs, on which the agents and engines of a test are
// processes.
type gpus struct {
	*cudatest.Machine
	t    testing.TB
	uuid cuda.UUID
}

func newGPUs(t testing.TB) *gpus {
	machine := cudatest.NewMachine(1, 1<<30)
	list, err := cuda.List(machine.Process())
	if err != nil {
		t.Fatal(err)
	}
	return &gpus{machine, t, list[0].UUID}
}

// pool is for one process. At the end of the test it has nothing open.
func (g *gpus) pool() (*vram.Pool, *cudatest.Process) {
	process := g.Process()
	pool := vram.NewPool(process)
	g.t.Cleanup(func() {
		if err := pool.Close(); err != nil && !process.Killed() {
			g.t.Error(err)
		}
		if n := process.Open(); n != 0 {
			g.t.Errorf("a process has %d things open at the end", n)
		}
	})
	return pool, process
}

// agent lets the door of an agent take GPU memory.
func (g *gpus) agent() (*vram.Pool, func(*doorserver.Options)) {
	pool, _ := g.pool()
	return pool, func(o *doorserver.Options) { o.VRAM = pool }
}

// engine registers an engine whose ranks have their memory on the GPU.
func (g *gpus) engine(id string, at *node, shape cut) (*engine, *cudatest.Process) {
	g.t.Helper()
	pool, process := g.pool()
	e := &engine{id: id, Publication: shape.publication(), changed: make(chan struct{})}
	for rank := range e.Parallelism.Ranks() {
		size, err := sideOf(e.Publication).MemoryBytes(rank)
		if err != nil {
			g.t.Fatal(err)
		}
		section, err := pool.Alloc(g.uuid, uint64(size), 0)
		if err != nil {
			g.t.Fatal(err)
		}
		e.sections = append(e.sections, section)
		e.memory = append(e.memory, process.Bytes(vram.Of(section).At, uint64(size)))
	}
	var err error
	if e.Client, err = door.Open(soon(g.t), e.options(at.socket)); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { e.leave(g.t) })
	return e, process
}

// moveToGPU gives the ranks memory of the first GPU. What they have is then a mirror
// of that.
func (e *engine) moveToGPU() error {
	list, err := cuda.List(nil)
	if err != nil {
		return err
	}
	pool := vram.NewPool(nil)
	for i, s := range e.sections {
		if e.sections[i], err = pool.Alloc(list[0].UUID, s.Size(), 0); err != nil {
			return err
		}
	}
	return e.flush()
}

// flush copies the mirror to the GPU, and fetch what is there to the mirror; where
// the memory is the ranks' own, neither has anything to do.
func (e *engine) flush() (err error) {
	for i, s := range e.sections {
		if s.Kind() == mem.VRAM {
			err = errors.Join(err, s.WriteAt(e.memory[i], 0))
		}
	}
	return err
}

func (e *engine) fetch() (err error) {
	for i, s := range e.sections {
		if s.Kind() == mem.VRAM {
			err = errors.Join(err, s.ReadAt(e.memory[i], 0))
		}
	}
	return err
}

// Caches in GPU memory are handed over, from it and into it, also to and from an
// engine whose memory is the host's.
func TestVRAMThroughTheDoor(t *testing.T) {
	for _, push := range []bool{false, true} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) {
			g := newGPUs(t)
			c := newCell(t, "tcp")
			atP, optionsP := g.agent()
			atD, optionsD := g.agent()
			p, d := c.start("p", optionsP), c.start("d", optionsD)
			from, _ := g.engine("prefill", p, prefillCut)
			to, _ := g.engine("decode", d, decodeCut)
			other := c.engine("host", d, decodeCut)
			for _, tokens := range []int{1, 200} {
				handOver(t, from, to, tokens, push)
				handOver(t, from, other, tokens, push)
				handOver(t, other, from, tokens, push)
			}
			if n := atP.Counts().Imports; n != len(from.sections) {
				t.Errorf("%d imports of %d ranks", n, len(from.sections))
			}
			from.leave(t)
			to.leave(t)
			until.True(t, "both agents have closed what was lent", func() bool { return atP.Counts().Imports+atD.Counts().Imports == 0 })
		})
	}
}

// The memory of an engine that was killed is free again when its agent has fenced
// it, and not only when the agent ends.
func TestVRAMOfTheDead(t *testing.T) {
	g := newGPUs(t)
	c := newCell(t, "tcp")
	pool, options := g.agent()
	n := c.start("n", options)
	from, process := g.engine("prefill", n, prefillCut)
	to, _ := g.engine("decode", n, decodeCut)
	handOver(t, from, to, 100, false)
	left := g.Taken(0) // of the other engine, and of what moves bytes
	for _, s := range from.sections {
		left -= s.Size()
	}
	process.Kill()
	from.sections = nil // no process is left to close them
	if g.Taken(0) <= left {
		t.Fatal("the dead engine's memory is gone while the agent has it open")
	}
	from.leave(t)
	until.True(t, "its memory is free", func() bool { return g.Taken(0) == left })
	if n := pool.Counts().Imports; n != len(to.sections) {
		t.Errorf("%d imports are left of %d", n, len(to.sections))
	}
}

// What is no GPU memory of this machine is refused by name, and leaves nothing.
func TestVRAMIsRefused(t *testing.T) {
	g := newGPUs(t)
	c := newCell(t, "tcp")
	pool, options := g.agent()
	n := c.start("n", options)
	owner, _ := g.pool()
	section, err := owner.Alloc(g.uuid, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer section.Close(t.Context())
	handle := vram.Of(section).Handle
	elsewhere := g.uuid
	elsewhere[0]++
	wire, _ := greet(t, n, &doorpb.Hello{Engine: "e", As: &doorpb.Hello_Rank{Rank: &doorpb.Rank{Ranks: 1}}})
	for i, c := range []struct {
		code   string
		size   uint64
		memory *doorpb.CudaIPC
	}{
		{door.CodeMalformed, 4096, &doorpb.CudaIPC{Handle: handle[:63], Uuid: g.uuid[:]}},
		{door.CodeMalformed, 4096, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:4]}},
		{door.CodeUnsupported, 4096, &doorpb.CudaIPC{Handle: handle[:], Uuid: elsewhere[:]}},
		{door.CodeDenied, 4096, &doorpb.CudaIPC{Handle: make([]byte, 64), Uuid: g.uuid[:]}},
		{door.CodeSize, 1<<20 + 1, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:]}},
		{door.CodeSize, 4096, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:], Offset: 1<<20 - 4095}},
		{door.CodeSize, 4096, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:], Offset: 1<<64 - 1}},
		{door.CodeSize, 0, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:]}},
		{"", 8192, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:]}},
		{"", 8192, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:], Offset: 8192}},
		{door.CodeInternal, 8192, &doorpb.CudaIPC{Handle: handle[:], Uuid: g.uuid[:], Offset: 12288}}, // overlaps
	} {
		lend := &doorpb.Lend{Request: uint64(i + 1), SizeBytes: c.size, More: true, Kind: &doorpb.Lend_CudaIpc{CudaIpc: c.memory}}
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_LEND, lend, nil); err != nil {
			t.Fatal(err)
		}
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := codeOf(t, f); got != c.code {
			t.Errorf("%d: %q, and not %q", i+1, got, c.code)
		}
	}
	if n := pool.Counts().Imports; n != 1 {
		t.Errorf("%d imports of one allocation", n)
	}
	wire.Close()
	until.True(t, "what was lent is closed", func() bool { return pool.Counts().Imports == 0 })
}
