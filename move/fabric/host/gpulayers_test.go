package host

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// firstLayer is the region of the first layer of a cache.
const firstLayer = 10

// layers registers a section for each layer with an agent.
func layers(t *testing.T, a *agent, count int, size uint64, section func(testing.TB, uint64) *mem.Section) (all []*mem.Section) {
	t.Helper()
	for i := range count {
		s := section(t, size)
		all = append(all, s)
		if err := a.Register(fabric.Region{ID: firstLayer + uint64(i), Epoch: 7, Section: s}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = a.Deregister(context.Background(), firstLayer+uint64(i))
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// inLayers is the same runs of every layer.
func inLayers(t *testing.T, count int, runs []mem.Run) (l fabric.List) {
	t.Helper()
	var spans mem.Spans
	for _, r := range runs {
		if err := spans.AddRun(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		l = append(l, fabric.Part{Region: firstLayer + uint64(i), Epoch: 7, Spans: spans})
	}
	return l
}

// blocksOf is blocks in random order, whole or cut into heads.
func blocksOf(random *rand.Rand, size, block, piece uint64) (runs []mem.Run) {
	stride := 2 * piece
	if piece == block {
		stride = piece
	}
	for _, i := range random.Perm(int(size / (stride * (block / piece)))) {
		at := uint64(i) * stride * (block / piece)
		runs = append(runs, mem.Run{Offset: at, Length: piece, Stride: stride, Count: block / piece})
	}
	return runs
}

// The layers of a cache go over as one of them does, however the two sides are cut, and
// in few launches.
func TestGPULayers(t *testing.T) {
	const count, size, moved = 6, 256 << 10, 96 << 10
	for _, c := range []struct {
		name           string
		local, remote  uint64 // pieces of a block of 16 KiB
		host, launches bool   // the near side is host memory; few launches are enough
	}{
		{"blocks", 16 << 10, 16 << 10, false, true},
		{"heads", 16 << 10, 512, false, true},
		{"pieces that do not fit", 1 << 10, 768, false, false},
		{"very small pieces", 7, 5, false, false},
		{"host memory", 16 << 10, 16 << 10, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPUs(t, 1)
			a, b, l := g.pair(t, g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20))
			nearSection := g.section(0, 0)
			if c.host {
				nearSection = ordinary
			}
			near, far := layers(t, a, count, size, nearSection), layers(t, b, count, size, g.section(1, 0))
			random := rand.New(rand.NewPCG(1, 2))
			for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
				local, remote := inLayers(t, count, fit(blocksOf(random, size, 16<<10, c.local), moved)), inLayers(t, count, fit(blocksOf(random, size, 16<<10, c.remote), moved))
				from, to, fromList, toList := far, near, remote, local
				if op == fabric.Write {
					from, to, fromList, toList = near, far, local, remote
				}
				for i := range count {
					fill(t, from[i], byte(i+1))
					fill(t, to[i], byte(0x80+i))
				}
				want := moveLayers(t, fromList, toList, from, to)
				launches := g.processes[0].Launches() + g.processes[1].Launches()
				if err := post(t, l, op, local, remote).Await(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i := range count {
					if !bytes.Equal(contents(t, to[i]), want[i]) {
						t.Errorf("%v: wrong bytes in layer %d", op, i)
					}
				}
				if launches = g.processes[0].Launches() + g.processes[1].Launches() - launches; c.launches && launches > 2 {
					t.Errorf("%v: %d launches for what one table says", op, launches)
				}
			}
		})
	}
}

// fit is the first so many bytes of runs.
func fit(runs []mem.Run, bytes uint64) (out []mem.Run) {
	for _, r := range runs {
		if r.Count = min(r.Count, bytes/r.Length); r.Count > 0 {
			out = append(out, r)
		} else if bytes > 0 {
			out = append(out, mem.Run{Offset: r.Offset, Length: bytes, Count: 1})
			return out
		}
		bytes -= r.Count * r.Length
	}
	return out
}

func ordinary(t testing.TB, size uint64) *mem.Section {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "layer", SizeBytes: size, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	return arena.Section
}

// moveLayers is what a transfer makes of the layers of its destination.
func moveLayers(t *testing.T, from, to fabric.List, source, destination []*mem.Section) (want [][]byte) {
	t.Helper()
	var have [][]byte
	for i := range source {
		have, want = append(have, contents(t, source[i])), append(want, contents(t, destination[i]))
	}
	f, g := from.Walk(), to.Walk()
	for {
		a, b := f.Next(1), g.Next(1)
		if a.Length == 0 {
			return want
		}
		want[b.Part][b.Offset] = have[a.Part][a.Offset]
	}
}

// A byte that is wrong in one of the layers is found there.
func TestGPUFlippedByteInALayer(t *testing.T) {
	g := newGPUs(t, 1)
	a, b, l := g.pair(t, g.section(0, 0)(t, 1<<20), g.section(1, 0)(t, 1<<20))
	near := layers(t, a, 4, 64<<10, g.section(0, 0))
	layers(t, b, 4, 64<<10, g.section(1, 0))
	list := inLayers(t, 4, []mem.Run{{Offset: 32 << 10, Length: 16 << 10, Count: 1}, {Length: 16 << 10, Count: 1}})
	g.processes[0].Flip(vram.Of(near[2]).At + 5000)
	err := post(t, l, fabric.Read, list, list).Await(t.Context())
	if !errors.Is(err, fabric.ErrChecksum) || !strings.Contains(err.Error(), "region 12 at [4096,+4096)") {
		t.Errorf("a byte was flipped in layer 2: %v", err)
	}
}
