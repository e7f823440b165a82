package owner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"meridian/keep/store/arena"
	"meridian/keep/store/extent"
	"meridian/kv"

	"pgregory.net/rapid"
)

func memory(size int) []byte {
	words := make([]uint64, size/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
}

func open(t interface{ Fatal(...any) }, size int, a arena.Options, o Options) (*Owner, *arena.Heap, []byte) {
	b := memory(size)
	heap, err := arena.Format(b, a)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(heap, o)
	if err != nil {
		t.Fatal(err)
	}
	return w, heap, b
}

// sum does for a reservation what its writer's agent does.
func sum(heap *arena.Heap, p Plan) uint64 { return heap.SumPayload(p.Offset, p.Bytes) }

// admitAll is a master that lets every producer have its key.
func (w *Owner) admitAll() {
	for _, hash := range w.Arrived() {
		if plan, unsummed := w.Unsummed(hash); unsummed {
			_ = w.Commit(0, plan, w.heap.SumPayload(plan.Offset, plan.Bytes))
		}
		w.Admit(hash)
	}
}

// check demands that the owner's books agree with one another.
func (w *Owner) check(t *rapid.T) {
	var used, pending, pinned, evictable uint64
	seen := map[extent.ID]uint32{}
	books := make(map[uint8]account)
	counts := map[state]uint64{}
	for i := range w.entries {
		e := &w.entries[i]
		counts[e.state]++
		if (e.extent == extent.None) != (e.state == unknown || e.state == idle) {
			t.Fatalf("header %d: %+v", i, e)
		}
		if e.extent == extent.None {
			continue
		}
		if other, is := seen[e.extent]; is {
			t.Fatalf("headers %d and %d share an extent", i, other)
		}
		seen[e.extent] = uint32(i)
		_, size := w.space.At(e.extent)
		used += size
		if e.state != offered {
			one := books[e.account]
			one.objects++
			one.bytes += size
			if !e.pinned && e.state == ready && e.readers == 0 {
				one.evictable += size
			}
			books[e.account] = one
		}
		if e.pinned {
			pinned += e.bytes
		} else if e.state == ready && e.readers == 0 {
			evictable += size
		}
		if at, is := w.index[e.hash]; (e.state == ready || e.state == writing || e.state == unclaimed || e.state == unsummed) && (!is || at != uint32(i)) {
			t.Fatalf("header %d is not found by its key", i)
		}
	}
	w.space.Pending(func(_, size uint64) { pending += size })
	if b := w.heap.Bounds(); pinned != w.pinned || float64(pinned) > w.options.MaxPinned*float64(b.Limit-b.Base) {
		t.Fatalf("%d bytes are pinned, the books say %d", pinned, w.pinned)
	}
	if evictable != w.evictable {
		t.Fatalf("%d bytes could leave, the books say %d", evictable, w.evictable)
	}
	for n, one := range w.order.all {
		if want := books[uint8(n)]; one.objects != want.objects || one.bytes != want.bytes || one.evictable != want.evictable {
			t.Fatalf("account %d has %+v, its books say %+v", n, want, one)
		}
	}
	if used+pending != w.usedBytes() {
		t.Fatalf("extents of %d bytes and %d pending, but %d are used", used, pending, w.usedBytes())
	}
	if counts[ready] != w.stats.Ready || counts[writing] != w.stats.Writing || uint64(len(w.index)) != counts[ready]+counts[writing]+counts[unclaimed]+counts[unsummed] ||
		counts[idle] != uint64(len(w.spare)) || counts[offered] != uint64(len(w.offers.class)) {
		t.Fatalf("%v, but %+v, %d in the index, %d spare, %d offered", counts, w.stats, len(w.index), len(w.spare), len(w.offers.class))
	}
}

// world is an owner, its users, and what they remember.
type world struct {
	owner  *Owner
	heap   *arena.Heap
	now    kv.Instant
	put    map[string][]byte // acknowledged and not removed
	plans  map[string]Plan
	values map[string][]byte
	leases map[LeaseID]Location
	lost   uint64 // objects that the world knows to have been evicted
}

func (w *world) payload(t *rapid.T) []byte {
	b := make([]byte, rapid.IntRange(1, 20_000).Draw(t, "bytes"))
	seed := rapid.Byte().Draw(t, "seed")
	for i := range b {
		b[i] = seed + byte(i)
	}
	return b
}

func (w *world) key(t *rapid.T) string {
	return fmt.Sprint("key-", rapid.IntRange(0, 30).Draw(t, "key"))
}

func (w *world) reserve(t *rapid.T) {
	key, payload := w.key(t), w.payload(t)
	_, stands := w.put[key]
	begun := false
	if p, is := w.plans[key]; is {
		_, stale := w.owner.written(p)
		begun = stale == nil
	}
	p, err := w.owner.Reserve(w.now, Put{Key: []byte(key), Bytes: uint64(len(payload)), Priority: uint8(len(key)), Pinned: len(payload)%17 == 0})
	switch {
	case errors.Is(err, ErrExists):
		if !stands {
			t.Fatalf("%s exists, and was never put", key)
		}
	case errors.Is(err, ErrBusy):
		if !begun {
			t.Fatalf("%s is said to be written, and no write was begun", key)
		}
	case err == nil:
		if stands || begun {
			t.Fatalf("%s was reserved a second time", key)
		}
		w.plans[key], w.values[key] = p, payload
	case !errors.Is(err, ErrFull):
		t.Fatal(err)
	}
}

func (w *world) commit(t *rapid.T, write func(Plan, []byte)) {
	key := w.key(t)
	p, is := w.plans[key]
	if !is {
		t.Skip()
	}
	write(p, w.values[key])
	var checksum uint64
	if _, stale := w.owner.written(p); stale == nil {
		checksum = sum(w.heap, p)
	}
	if err := w.owner.Commit(w.now, p, checksum); err == nil {
		w.put[key] = w.values[key]
	} else if !errors.Is(err, ErrStale) {
		t.Fatal(err)
	}
	delete(w.plans, key)
}

// read takes a lease and compares what is there.
func (w *world) read(t *rapid.T) {
	key := w.key(t)
	at, id, err := w.owner.Lease(w.now, []byte(key))
	want, stands := w.put[key]
	switch {
	case err == nil && !stands:
		t.Fatalf("%s is there, and was never put or is removed", key)
	case err == nil:
		got := make([]byte, at.Bytes)
		if err := w.heap.Read(arena.Wanted{Index: at.Header, Epoch: at.Epoch, Key: []byte(key)}, got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %v", key, err)
		}
		w.leases[id] = at
	case stands:
		t.Fatalf("%s is lost: %v", key, err)
	}
}

// account demands that what is gone was evicted, and counted.
func (w *world) account(t *rapid.T) {
	gone := uint64(0)
	for key := range w.put {
		if !w.owner.Has([]byte(key)) {
			delete(w.put, key)
			gone++
		}
	}
	if evicted := w.owner.stats.Evictions - w.lost; gone != evicted {
		t.Fatalf("%d objects are gone, %d were evicted", gone, evicted)
	}
	w.lost = w.owner.stats.Evictions
}

// produce writes an object as a producer that maps the arena, and may die on the
// way.
func (w *world) produce(t *rapid.T) {
	key, payload := w.key(t), w.payload(t)
	_, stands := w.put[key]
	_, begun := w.plans[key]
	if stands || begun {
		t.Skip()
	}
	dies := rapid.IntRange(0, 5).Draw(t, "dies")
	r, err := w.heap.Reserve(arena.HashKey([]byte(key)), uint64(len(payload)), len(key), arena.PageSize)
	if err != nil || dies == 1 {
		return
	}
	copy(w.heap.Payload(&r), payload)
	if dies == 2 || !w.heap.Seal(&r, []byte(key)) {
		return
	}
	w.put[key] = payload
	if dies == 3 { // before it announces: a scan finds it
		w.owner.Scan(w.now)
		w.owner.admitAll()
		return
	}
	a := w.heap.AnnounceOf(&r, 0)
	w.heap.Tell(&a)
	w.owner.Ingest(w.now, 100)
	w.owner.admitAll()
}

func TestOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner, heap, _ := open(t, 512<<10, arena.Options{Headers: 40, Ring: 4}, Options{
			Policy: Policy(rapid.IntRange(0, 2).Draw(t, "policy")), Offers: rapid.IntRange(0, 2).Draw(t, "offers"),
			Tenant: lastLetter, Part: rapid.SampledFrom([]func([]byte) []byte{nil, lastButOne}).Draw(t, "parts"), TenantQuota: rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "quota"),
		})
		w := &world{owner: owner, heap: heap, put: map[string][]byte{}, plans: map[string]Plan{}, values: map[string][]byte{}, leases: map[LeaseID]Location{}}
		base := heap.Bounds().Base
		t.Repeat(map[string]func(*rapid.T){
			"":        func(t *rapid.T) { owner.check(t); w.account(t) },
			"reserve": w.reserve,
			"commit": func(t *rapid.T) {
				w.commit(t, func(p Plan, b []byte) {
					r := arena.Reservation{Index: p.Header, Header: arena.Header{PayloadBase: p.Offset, Bytes: p.Bytes}}
					if _, err := owner.written(p); err == nil { // a writer that is overdue is stopped by its agent
						copy(heap.Payload(&r), b)
					}
				})
			},
			"abort": func(t *rapid.T) {
				key := w.key(t)
				if p, is := w.plans[key]; is {
					if err := owner.Abort(p); err != nil && !errors.Is(err, ErrStale) {
						t.Fatal(err)
					}
					delete(w.plans, key)
				}
			},
			"read": w.read,
			"release": func(t *rapid.T) {
				for id := range w.leases {
					owner.Release(id)
					owner.Release(id)
					delete(w.leases, id)
					return
				}
			},
			"remove": func(t *rapid.T) {
				key := w.key(t)
				if err := owner.Remove([]byte(key)); err == nil {
					delete(w.put, key)
				} else if !errors.Is(err, ErrMissing) {
					t.Fatal(err)
				}
			},
			"pin": func(t *rapid.T) {
				key, on := []byte(w.key(t)), rapid.Bool().Draw(t, "on")
				before, there := owner.Inspect(w.now, key)
				switch err := owner.SetPinned(key, on); {
				case !there && errors.Is(err, ErrMissing), there && on && !before.Pinned && errors.Is(err, ErrFull):
				case !there || err != nil:
					t.Fatalf("pinning %s, which is there: %v: %v", key, there, err)
				default:
					if after, _ := owner.Inspect(w.now, key); after.Pinned != on || after.AgeSeconds != before.AgeSeconds {
						t.Fatalf("%+v became %+v", before, after)
					}
				}
			},
			"evict":   func(t *rapid.T) { owner.EvictUntilBelow(w.now, rapid.Float64Range(0, 1).Draw(t, "below")) },
			"produce": w.produce,
			"time": func(t *rapid.T) {
				w.now += kv.Instant(rapid.IntRange(1, 20_000).Draw(t, "ms")) * kv.Second / 1000
				owner.Scan(w.now)
				owner.admitAll()
			},
			"stuck": func(t *rapid.T) { // a producer takes bytes and dies
				if at, ok := heap.TakeBump(uint64(rapid.IntRange(1, 9000).Draw(t, "taken")), 64); ok && at < base {
					t.Fatal("below the heap")
				}
			},
		})
	})
}

// An object that is read stays in memory although it was removed, and its room
// comes back with its last reader, however long that takes.
func TestReadersKeepTheirBytes(t *testing.T) {
	w, heap, _ := open(t, 256<<10, arena.Options{}, Options{})
	key, value := []byte("key"), bytes.Repeat([]byte{7}, 50_000)
	put(t, w, heap, key, value)
	used := w.usedBytes()
	_, first, err := w.Lease(0, key)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := w.Lease(0, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(key); err != nil {
		t.Fatal(err)
	}
	if w.EvictUntilBelow(0, 0); w.usedBytes() != used {
		t.Fatal("bytes were freed under a reader")
	}
	w.Release(first)
	w.Release(first) // it has none any more
	if w.Scan(7200 * kv.Second); w.usedBytes() != used {
		t.Fatal("bytes were freed under a reader")
	}
	if w.Release(second); w.usedBytes() != 0 {
		t.Fatal("the bytes of the last reader are never freed")
	}
}

func put(t testing.TB, w *Owner, heap *arena.Heap, key, value []byte) Plan {
	t.Helper()
	p, err := w.Reserve(0, Put{Key: key, Bytes: uint64(len(value))})
	if err != nil {
		t.Fatal(err)
	}
	copy(heap.Payload(&arena.Reservation{Index: p.Header, Header: arena.Header{PayloadBase: p.Offset, Bytes: p.Bytes}}), value)
	if err := w.Commit(0, p, sum(heap, p)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestVictims(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		want   string
	}{{LRU, "b"}, {FIFO, "a"}, {ByPriority, "c"}} {
		w, heap, _ := open(t, 256<<10, arena.Options{}, Options{Policy: c.policy})
		for n, key := range []string{"a", "b", "c", "d"} {
			p, err := w.Reserve(0, Put{Key: []byte(key), Bytes: 10, Priority: []uint8{9, 8, 1, 0}[n], Pinned: key == "d"})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(0, p, sum(heap, p)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Locate(0, []byte("a")); err != nil {
			t.Fatal(err)
		}
		w.evictOne(0)
		for _, key := range []string{"a", "b", "c", "d"} {
			if w.Has([]byte(key)) == (key == c.want) {
				t.Errorf("%v: %s is there: %v", c.policy, key, w.Has([]byte(key)))
			}
		}
		w.EvictUntilBelow(0, 0)
		if !w.Has([]byte("d")) {
			t.Errorf("%v: what is pinned was evicted", c.policy)
		}
		_ = heap
	}
}

// Whatever a producer scribbles, the owner goes on, reads nothing outside, and
// keeps its books.
func FuzzScribbledHeap(f *testing.F) {
	f.Add(uint64(1), []byte{0, 0, 255, 255, 1, 2, 3, 4})
	f.Fuzz(surviveScribbles)
}

func surviveScribbles(t *testing.T, seed uint64, scribble []byte) {
	w, heap, b := open(t, 512<<10, arena.Options{Headers: 64, Ring: 8}, Options{Offers: 2})
	random := rand.New(rand.NewPCG(seed, 2))
	now := kv.Instant(0)
	for n := 0; n < 200; n++ {
		key := binary.LittleEndian.AppendUint32(nil, uint32(random.IntN(40)))
		value := bytes.Repeat(key, 1+random.IntN(3000))
		switch random.IntN(7) {
		case 0:
			if p, err := w.Reserve(now, Put{Key: key, Bytes: uint64(len(value))}); err == nil && random.IntN(3) > 0 {
				copy(b[p.Offset:], value)
				if err := w.Commit(now, p, sum(heap, p)); err != nil {
					t.Fatal(err)
				}
			}
		case 1:
			if r, err := heap.Reserve(arena.HashKey(key), uint64(len(value)), len(key), arena.PageSize); err == nil {
				copy(heap.Payload(&r), value)
				heap.Seal(&r, key)
				a := heap.AnnounceOf(&r, 0)
				heap.Tell(&a)
			}
		case 2:
			w.Ingest(now, 8)
		case 3:
			now += kv.Instant(random.IntN(60)) * kv.Second
			w.Scan(now)
		case 6:
			w.admitAll()
		case 4:
			if at, err := w.Locate(now, key); err == nil {
				_ = heap.Read(arena.Wanted{Index: at.Header, Epoch: at.Epoch, Key: key}, make([]byte, at.Bytes), 0)
			}
		case 5:
			if n := min(len(scribble), 8); n > 0 { // mostly control, headers and ring
				copy(b[random.IntN(12<<10):], scribble[:n])
				scribble = scribble[n:]
			}
		}
	}
	now += 3600 * kv.Second
	w.EvictUntilBelow(0, 0)
	w.Scan(now)
}

func BenchmarkIndexOfAMillion(b *testing.B) {
	w, heap, _ := open(b, 1<<30, arena.Options{Headers: 1 << 20}, Options{})
	for n := range uint64(1_000_000) {
		p, err := w.Reserve(0, Put{Key: binary.LittleEndian.AppendUint64(nil, n), Bytes: 512})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Commit(0, p, sum(heap, p)); err != nil {
			b.Fatal(err)
		}
	}
	n := uint64(0)
	for b.Loop() {
		if _, err := w.Locate(0, binary.LittleEndian.AppendUint64(nil, n%1_000_000)); err != nil {
			b.Fatal(err)
		}
		n += 7919
	}
}

// The fuzzer finds its way into control block and headers slowly; these go there
// at once.
func TestScribbles(t *testing.T) {
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 9))
		scribble := make([]byte, 800)
		for i := range scribble {
			scribble[i] = byte(random.IntN([]int{1, 4, 256}[random.IntN(3)]))
		}
		surviveScribbles(t, seed, scribble)
	}
}

// What can never fit lets nothing go.
func TestNothingLeavesInVain(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 64}, Options{})
	for i := range 20 {
		put(t, w, heap, []byte{byte(i)}, make([]byte, 8000))
	}
	heapBytes := heap.Bounds().Limit - heap.Bounds().Base
	for _, size := range []uint64{heapBytes, heapBytes - 100, heapBytes + 1, 1 << 60} {
		if _, err := w.Reserve(0, Put{Key: []byte("large"), Bytes: size}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes of %d: %v", size, heapBytes, err)
		}
	}
	if _, err := w.Reserve(0, Put{Key: []byte("pinned"), Bytes: heapBytes / 3, Pinned: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Reserve(0, Put{Key: []byte("large"), Bytes: heapBytes * 3 / 4}); !errors.Is(err, ErrFull) {
		t.Errorf("more than can be made free: %v", err)
	}
	if s := w.Stats(); s.Ready != 20 || s.Evictions != 0 {
		t.Errorf("%+v", s)
	}
}
