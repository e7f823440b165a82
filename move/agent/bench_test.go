package agent_test

import (
	"context"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// BenchmarkPrepareAndPost10k is what a request of 10,000 scattered descriptors
// costs its caller until Post returns: no byte need have moved by then.
func BenchmarkPrepareAndPost10k(b *testing.B) {
	const n, size = 10_000, 4 << 10
	open := func(name string) (*agent.Agent, *mem.Arena, agent.RegionInfo) {
		a, err := agent.Open(b.Context(), agent.Options{Name: name, Fabrics: []agent.Opener{overTCP}})
		if err != nil {
			b.Fatal(err)
		}
		arena, err := mem.NewArena(mem.ArenaOptions{Name: name, SizeBytes: 2 * n * size, NUMANode: -1})
		if err != nil {
			b.Fatal(err)
		}
		region, err := a.Register(arena.Section, "")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := a.Close(ctx); err != nil {
				b.Error(err)
			}
			if err := arena.Close(ctx); err != nil {
				b.Error(err)
			}
		})
		return a, arena, region
	}
	here, _, mine := open("here")
	there, _, theirs := open("there")
	peer, err := here.LoadMetadata(there.MetadataBlob())
	if err != nil {
		b.Fatal(err)
	}
	scattered := func(base uint64, step int) []agent.Descriptor {
		all := make([]agent.Descriptor, n)
		for i := range all {
			all[i] = agent.Descriptor{Address: base + uint64(i*step%n)*2*size, Length: size}
		}
		return all
	}
	local, err := here.Local(scattered(mine.Address, 7919))
	if err != nil {
		b.Fatal(err)
	}
	remote, err := peer.Remote(scattered(theirs.Address, 6133))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var calling time.Duration
	for b.Loop() {
		start := time.Now()
		r, err := here.Prepare(fabric.Write, agent.Side{List: local}, agent.Side{List: remote})
		if err != nil {
			b.Fatal(err)
		}
		t, err := r.Post(b.Context(), agent.PostOptions{})
		if err != nil {
			b.Fatal(err)
		}
		calling += time.Since(start)
		if err := t.Await(b.Context()); err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
	b.ReportMetric(float64(calling.Nanoseconds())/float64(b.N)/n, "ns/descriptor")
}
