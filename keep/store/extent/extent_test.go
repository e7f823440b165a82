package extent

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// check demands that the extents cover what has grown without gap or overlap,
// that no two free ones touch, and that bins and sums agree.
func (a *Allocator) check(t interface{ Fatalf(string, ...any) }) {
	var at, freed uint64
	var pendings []ID
	before, wasFree := None, false
	var all []ID
	for id := a.last; id != None; id = a.at(id).before {
		all = append(all, id)
	}
	slices.Reverse(all)
	for _, id := range all {
		e := *a.at(id)
		if e.offset != at || e.size == 0 || e.before != before {
			t.Fatalf("%+v stands at %d behind %d", e, at, before)
		}
		switch e.state {
		case free:
			if wasFree {
				t.Fatalf("two free extents touch at %d", at)
			}
			freed += e.size
			level, class := binOf(e.size)
			found := false
			for other := a.bins[level][class]; other != None; other = a.at(other).greater {
				found = found || other == id
			}
			if !found {
				t.Fatalf("%+v is in no bin", e)
			}
		case pending:
			pendings = append(pendings, id)
		}
		at, before, wasFree = at+e.size, id, e.state == free
	}
	if at != a.grown || freed != a.freed || !slices.Equal(pendings, slices.Collect(a.pendings.all())) {
		t.Fatalf("extents end at %d of %d; %d free of %d; pending %v of %v", at, a.grown, freed, a.freed, pendings, a.pendings)
	}
}

func TestAllocator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := New(1 << 20)
		taken := map[ID][2]uint64{}
		take := func(id ID) {
			if id != None {
				offset, size := a.At(id)
				taken[id] = [2]uint64{offset, size}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				a.check(t)
				for id, was := range taken {
					if offset, size := a.At(id); offset != was[0] || size != was[1] || a.at(id).state != used {
						t.Fatalf("%d moved from %v to %d, %d", id, was, offset, size)
					}
				}
			},
			"grow": func(t *rapid.T) {
				to := a.grown + Granule*rapid.Uint64Range(0, 300).Draw(t, "by")
				if err := a.Grow(to); (err == nil) != (to <= a.size) {
					t.Fatal(err)
				}
			},
			"claim": func(t *rapid.T) {
				offset := Granule * rapid.Uint64Range(0, a.size/Granule).Draw(t, "offset")
				size := Granule * rapid.Uint64Range(0, 40).Draw(t, "size")
				inside := false
				a.Pending(func(o, s uint64) { inside = inside || size > 0 && offset >= o && offset+size <= o+s })
				id, err := a.Claim(offset, size)
				if (err == nil) != inside {
					t.Fatalf("%d bytes at %d: %v", size, offset, err)
				}
				take(id)
			},
			"allocate": func(t *rapid.T) {
				size := rapid.Uint64Range(0, 20_000).Draw(t, "size")
				align := uint64(1) << rapid.IntRange(0, 14).Draw(t, "align")
				id := a.Allocate(size, align)
				if id == None {
					return
				}
				if offset, got := a.At(id); offset%align != 0 || got < size || got-size >= Granule && size > 0 {
					t.Fatalf("%d bytes at %d for %d at a multiple of %d", got, offset, size, align)
				}
				take(id)
			},
			"free": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip()
				}
				ids := make([]ID, 0, len(taken))
				for id := range taken {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				id := rapid.SampledFrom(ids).Draw(t, "id")
				a.Free(id)
				delete(taken, id)
			},
			"reclaim": func(t *rapid.T) {
				var runs [][2]uint64
				a.Pending(func(o, s uint64) { runs = append(runs, [2]uint64{o, s}) })
				if len(runs) == 0 {
					t.Skip()
				}
				run := rapid.SampledFrom(runs).Draw(t, "run")
				if err := a.Reclaim(run[0], run[1]); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// Producers announce in an order of their own: each claim takes a few steps,
// however many runs others have left.
func TestClaimsInAnyOrder(t *testing.T) {
	const count = 100_000
	a := New(count * 2 * Granule)
	if err := a.Grow(count * 2 * Granule); err != nil {
		t.Fatal(err)
	}
	for n, at := range rand.New(rand.NewPCG(1, 2)).Perm(count) {
		if _, err := a.Claim(uint64(at)*2*Granule, Granule); err != nil {
			t.Fatal(err)
		}
		if n%(count/4) == 0 {
			a.check(t)
		}
	}
	a.check(t)
	for _, at := range rand.New(rand.NewPCG(3, 4)).Perm(count) {
		if err := a.Reclaim(uint64(at)*2*Granule+Granule, Granule); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.pendings.rows) != 0 || a.FreeBytes() != count*Granule {
		t.Errorf("%d rows are left, %d bytes are free", len(a.pendings.rows), a.FreeBytes())
	}
}

func TestFreedTwice(t *testing.T) {
	a := New(1 << 20)
	if err := a.Grow(4096); err != nil {
		t.Fatal(err)
	}
	id, err := a.Claim(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(id)
	defer func() {
		if recover() == nil {
			t.Error("freed twice, and nothing was said")
		}
	}()
	a.Free(id)
}

// However long objects of mixed sizes came and went, nine tenths of the arena can
// be taken by the objects that come next.
func TestChurnLeavesRoom(t *testing.T) {
	const arena = 256 << 20
	a, random := New(arena), rand.New(rand.NewPCG(1, 2))
	if err := a.Grow(arena); err != nil {
		t.Fatal(err)
	}
	if err := a.Reclaim(0, arena); err != nil {
		t.Fatal(err)
	}
	sizeOf := func() (size, align uint64) {
		if random.IntN(4) == 0 {
			return random.Uint64N(4096), Granule
		}
		return random.Uint64N(512 << 10), 4096
	}
	var live []ID
	drop := func() {
		at := random.IntN(len(live))
		a.Free(live[at])
		live[at] = live[len(live)-1]
		live = live[:len(live)-1]
	}
	for range 200_000 {
		size, align := sizeOf()
		id := a.Allocate(size, align)
		for id == None {
			drop()
			id = a.Allocate(size, align)
		}
		live = append(live, id)
		if random.IntN(100) == 0 {
			drop()
		}
	}
	a.check(t)
	if used := float64(arena-a.FreeBytes()) / arena; used < 0.9 {
		t.Errorf("an allocation failed while only %.0f %% of the arena were taken", 100*used)
	}
}

func BenchmarkAllocateFree(b *testing.B) {
	a := New(1 << 36)
	if err := a.Grow(1 << 36); err != nil {
		b.Fatal(err)
	}
	if err := a.Reclaim(0, 1<<36); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	live := make([]ID, 1_000_000)
	for i := range live {
		live[i] = a.Allocate(random.Uint64N(40<<10), 4096)
	}
	b.ResetTimer()
	for range b.N {
		at := random.IntN(len(live))
		a.Free(live[at])
		live[at] = a.Allocate(random.Uint64N(40<<10), 4096)
	}
}

// Claims in an order that no honest producers would have.
func BenchmarkClaimsInAnyOrder(b *testing.B) {
	const count = 1_000_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(count)
	for b.Loop() {
		a := New(count * Granule)
		if err := a.Grow(count * Granule); err != nil {
			b.Fatal(err)
		}
		for _, at := range order {
			if _, err := a.Claim(uint64(at)*Granule, Granule); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/claim")
}
