package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/move/cuda"
	"meridian/move/cuda/cudatest"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// gpus is a machine with GPUs, and the pools of two processes on it.
type gpus struct {
	*cudatest.Machine
	processes [2]*cudatest.Process
	pools     [2]*vram.Pool
	uuids     []cuda.UUID
}

func newGPUs(t testing.TB, count int) *gpus {
	t.Helper()
	g := &gpus{Machine: cudatest.NewMachine(count, 1<<40)}
	list, err := cuda.List(g.Process())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		g.uuids = append(g.uuids, d.UUID)
	}
	for i := range g.pools {
		g.processes[i] = g.Process()
		g.pools[i] = vram.NewPool(g.processes[i])
		g.warm(t, g.pools[i])
	}
	t.Cleanup(func() {
		for _, p := range g.pools {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		for i := range count {
			if g.Taken(i) != 0 {
				t.Errorf("%d bytes of GPU %d are still taken", g.Taken(i), i)
			}
		}
	})
	return g
}

// warm has a pool make what it keeps: a case of the suite looks for what is left of it.
func (g *gpus) warm(t testing.TB, p *vram.Pool) {
	t.Helper()
	for _, uuid := range g.uuids {
		d, err := p.Device(uuid)
		if err != nil {
			t.Fatal(err)
		}
		one, err := d.Alloc(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Read(make([]byte, 1), one.At()), one.Close()); err != nil { // makes its bounce
			t.Fatal(err)
		}
		var all []*vram.Mover
		for range gpuCopiers {
			m, err := p.Mover(d)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		for _, m := range all {
			p.GiveBack(m)
		}
	}
}

// section makes VRAM of one of the processes.
func (g *gpus) section(process, device int) func(t testing.TB, sizeBytes uint64) *mem.Section {
	return func(t testing.TB, sizeBytes uint64) *mem.Section {
		t.Helper()
		s, err := g.pools[process].Alloc(g.uuids[device], sizeBytes, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// suite is the suite of fabrics whose agents are the two processes.
func (g *gpus) suite(t testing.TB, o Options) fabrictest.Options {
	s := suite(t, o)
	s.Open = func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
		o := o
		if o.GPUs = g.pools[0]; self.Name != "near" {
			o.GPUs = g.pools[1]
		}
		return suite(t, o).Open(t, self, events, guard)
	}
	return s
}

func TestSuiteGPU(t *testing.T) {
	g := newGPUs(t, 1)
	o := g.suite(t, Options{Workers: 2})
	o.Brief = true
	o.NearSection, o.FarSection = g.section(0, 0), g.section(1, 0)
	fabrictest.Run(t, o)
}

// pair is two agents, each with a region 1 of its own memory, and a link from the first
// to the second.
func (g *gpus) pair(t *testing.T, near, far *mem.Section) (a, b *agent, l fabric.Link) {
	t.Helper()
	for i, section := range []*mem.Section{near, far} {
		n := newAgent(t, []string{"near", "far"}[i], 1<<20, Options{Workers: 2, GPUs: g.pools[i]})
		if err := n.Register(fabric.Region{ID: 2, Epoch: 7, Section: section}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := section.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		if a == nil {
			a = n
		} else {
			b = n
		}
	}
	return a, b, a.connect(t, b.peer())
}

// of is the first bytes of a region, in pieces of so many that are so far apart.
func of(region, pieces, length, stride uint64) fabric.List {
	l := fabric.List{{Region: region, Epoch: 7}}
	if err := l[0].Spans.AddRun(mem.Run{Length: length, Stride: stride, Count: pieces}); err != nil {
		panic(err)
	}
	return l
}

func post(t *testing.T, l fabric.Link, op fabric.Op, local, remote fabric.List) *fabric.Transfer {
	t.Helper()
	p, err := l.Prepare(op, local, remote)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	transfer, err := l.Post(context.Background(), p, fabric.PostOptions{ID: newID()})
	if err != nil {
		t.Fatal(err)
	}
	return transfer
}

// fill writes a pattern, and holds tells whether bytes are of it.
func fill(t *testing.T, s *mem.Section, seed byte) {
	t.Helper()
	b := make([]byte, s.Size())
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed
	}
	if err := s.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, s *mem.Section) []byte {
	t.Helper()
	b := make([]byte, s.Size())
	if err := s.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// Heads cut out of blocks, between host memory and GPUs in one list, whether the GPU
// sees the host memory or not, and from one GPU to another.
func TestGPUMixedLists(t *testing.T) {
	for _, c := range []struct {
		name         string
		far          int // device of the far side
		unregistered bool
	}{{"one GPU", 0, false}, {"two GPUs", 1, false}, {"memory that no GPU sees", 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPUs(t, 2)
			for _, p := range g.processes {
				p.Unregistered = c.unregistered
			}
			near, far := g.section(0, 0)(t, 1<<20), g.section(1, c.far)(t, 1<<20)
			a, b, l := g.pair(t, near, far)
			for round, op := range []fabric.Op{fabric.Read, fabric.Write} {
				for i, s := range []*mem.Section{near, far, a.memory.Section, b.memory.Section} {
					fill(t, s, byte(16*round+i))
				}
				// 100 pieces of 512 bytes, 300 of 1,001, on either side once of a GPU and once of a host.
				local := append(of(2, 100, 512, 2048), of(1, 300, 1001, 1003)...)
				remote := append(of(1, 300, 1001, 1001), of(2, 100, 512, 777)...)
				destination, want := [2][]byte{contents(t, near), contents(t, a.memory.Section)}, [2][]byte{contents(t, far), contents(t, b.memory.Section)}
				from, to := want, destination
				fromList, toList := remote, local
				if op == fabric.Write {
					from, to, fromList, toList = destination, want, local, remote
				}
				move(fromList, toList, from, to)
				if err := post(t, l, op, local, remote).Await(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := [2][]byte{contents(t, near), contents(t, a.memory.Section)}
				if op == fabric.Write {
					got = [2][]byte{contents(t, far), contents(t, b.memory.Section)}
				}
				for i := range got {
					if !bytes.Equal(got[i], to[i]) {
						t.Errorf("%v: wrong bytes in region %d", op, 2-i)
					}
				}
			}
		})
	}
}

// move is what a transfer does, byte by byte; regions 2 and 1 are the first and the second.
func move(from, to fabric.List, source, destination [2][]byte) {
	f, t := from.Walk(), to.Walk()
	for {
		a := f.Next(1)
		b := t.Next(1)
		if a.Length == 0 {
			return
		}
		destination[2-to[b.Part].Region][b.Offset] = source[2-from[a.Part].Region][a.Offset]
	}
}

// A GPU that hangs keeps the transfers that it works on from ending, and nothing else: a
// cancel and a fence wait as long as their caller does, other transfers go on, and what
// was to be quiet is, when the GPU works again.
func TestGPUHangs(t *testing.T) {
	g := newGPUs(t, 1)
	near, far := g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20)
	a, _, l := g.pair(t, near, far)
	fill(t, far, 1)
	resume := g.processes[0].Hang()
	stuck := post(t, l, fabric.Read, of(2, 1, 1<<20, 0), of(2, 1, 1<<20, 0))
	until.True(t, "the GPU has it", func() bool { return g.busy(a) > 0 })
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if err := stuck.Cancel(brief()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled while the GPU has it: %v", err)
	}
	if err := post(t, l, fabric.Read, dense(1<<20, 7), dense(1<<20, 7)).Await(t.Context()); err != nil {
		t.Errorf("a transfer beside it: %v", err)
	}
	if err := a.Deregister(brief(), 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fenced while the GPU has it: %v", err)
	}
	if state, _ := stuck.Status(); state.Ended() {
		t.Errorf("it is %v while the GPU has it", state)
	}
	resume()
	if err := stuck.Await(t.Context()); !errors.Is(err, fabric.ErrCancelled) {
		t.Errorf("it ends with %v", err)
	}
	fill(t, near, 9)
	before := contents(t, near)
	until.True(t, "the GPU has nothing", func() bool { return g.busy(a) == 0 })
	if !bytes.Equal(before, contents(t, near)) {
		t.Error("memory changed after the cancel: wrong bytes")
	}
}

// Host memory that is fenced while a GPU writes it stays mapped until the GPU has let go
// of it, and is let go of then, though the fence has long given up.
func TestGPUHangsOnHostMemory(t *testing.T) {
	g := newGPUs(t, 1)
	near, far := g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20)
	a, _, l := g.pair(t, near, far)
	if err := post(t, l, fabric.Read, of(2, 1, 1<<20, 0), of(2, 1, 1<<20, 0)).Await(t.Context()); err != nil {
		t.Fatal(err) // so that the loan is open, and what is opened below is the host memory
	}
	before := g.processes[0].Open()
	resume := g.processes[0].Hang()
	stuck := post(t, l, fabric.Read, dense(1<<20, 7), of(2, 1, 1<<20, 0))
	until.True(t, "the GPU has it", func() bool { return g.busy(a) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Deregister(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fenced while the GPU has it: %v", err)
	}
	if err := a.memory.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unmapped while the GPU has it: %v", err)
	}
	resume()
	if err := stuck.Await(t.Context()); err == nil {
		t.Error("a transfer into memory that was fenced went well")
	}
	until.Well(t, "the GPU sees no memory that was fenced", func() string {
		if open := g.processes[0].Open(); open > before {
			return fmt.Sprintf("%d mappings and contexts, %d before", open, before)
		}
		return ""
	})
	if err := a.memory.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// busy is how many parts copiers of the GPU hold right now.
func (g *gpus) busy(a *agent) (n int) {
	for i := range gpuCopiers {
		if a.page.cells[a.options.Workers+i].Load() != 0 {
			n++
		}
	}
	return n
}

// What a GPU has placed is read back, and what is not the source's is an error.
func TestGPUFlippedByte(t *testing.T) {
	g := newGPUs(t, 1)
	near, far := g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20)
	_, _, l := g.pair(t, near, far)
	g.processes[0].Flip(vram.Of(near).At + 70_000)
	err := post(t, l, fabric.Read, of(2, 1, 1<<20, 0), of(2, 1, 1<<20, 0)).Await(t.Context())
	if !errors.Is(err, fabric.ErrChecksum) || !strings.Contains(err.Error(), "region 2 at [69632,+4096)") {
		t.Errorf("a byte was flipped on the way: %v", err)
	}
}

// The same in host memory, which the CPU reads back.
func TestGPUFlippedByteOnTheHost(t *testing.T) {
	g := newGPUs(t, 1)
	near, far := g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20)
	_, b, l := g.pair(t, near, far)
	for _, flip := range []bool{false, true} {
		if flip {
			g.processes[1].Flip(cuda.Pointer(b.memory.Base()) + 70_000)
		}
		err := post(t, l, fabric.Write, of(2, 1, 1<<20, 0), dense(1<<20, 7)).Await(t.Context())
		if flip != errors.Is(err, fabric.ErrChecksum) || flip && !strings.Contains(err.Error(), "region 1 at [69632,+4096)") || !flip && err != nil {
			t.Errorf("flipped %v: %v", flip, err)
		}
	}
}

// 64 bytes that name nothing, or another process's memory that is too short, are refused
// before a byte was placed.
func TestGPURefusesLoans(t *testing.T) {
	g := newGPUs(t, 1)
	near, far := g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20)
	vram.Of(far).Handle[5]++
	_, b, l := g.pair(t, near, far)
	err := post(t, l, fabric.Read, of(2, 1, 1<<20, 0), of(2, 1, 1<<20, 0)).Await(t.Context())
	if !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("a handle of nothing: %v", err)
	}
	if err := b.Deregister(t.Context(), 2); err != nil {
		t.Error(err)
	}
}
