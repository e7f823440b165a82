package owner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meridian/keep/store/arena"
	"meridian/kv"

	"pgregory.net/rapid"
)

// lastLetter and firstWord are ways to tell tenants apart, lastButOne to tell parts.
func lastLetter(key []byte) []byte { return key[len(key)-1:] }

func lastButOne(key []byte) []byte { return key[max(0, len(key)-2) : len(key)-1] }

func firstWord(key []byte) []byte {
	tenant, _, _ := strings.Cut(string(key), "/")
	return []byte(tenant)
}

func (w *Owner) mustPut(t interface{ Fatal(...any) }, now kv.Instant, key string, size uint64) {
	p, err := w.Reserve(now, Put{Key: []byte(key), Bytes: size})
	if err == nil {
		err = w.Commit(now, p, sum(w.heap, p))
	}
	if err != nil {
		t.Fatal(key, err)
	}
}

// standings is what each tenant has, and could lose, from the entries alone.
func (w *Owner) standings() (bytes, evictable map[string]uint64) {
	bytes, evictable = make(map[string]uint64), make(map[string]uint64)
	for i := range w.entries {
		e := &w.entries[i]
		if e.state != ready && e.state != writing && e.state != doomed {
			continue
		}
		header := w.header(uint32(i), arena.PageSize)
		tenant := string(w.options.Tenant(w.heap.Key(&header)))
		bytes[tenant] += w.room(e)
		if e.state == ready && e.readers == 0 && !e.pinned {
			evictable[tenant] += w.room(e)
		}
	}
	return bytes, evictable
}

// Who is below the fair share never loses while another above it has something to lose;
// what is pinned or read stays; and what is evicted is the object that its tenant alone
// would have lost.
func TestFairEviction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, heap, _ := open(t, 512<<10, arena.Options{Headers: 256}, Options{Tenant: firstWord, High: 1, Low: 0.99, Policy: Policy(rapid.IntRange(0, 2).Draw(t, "policy"))})
		held := make(map[string]LeaseID)
		for n := range rapid.IntRange(1, 60).Draw(t, "objects") {
			key := fmt.Sprintf("%d/%d", rapid.IntRange(0, 4).Draw(t, "tenant"), n)
			p, err := w.Reserve(0, Put{Key: []byte(key), Bytes: rapid.Uint64Range(1, 20_000).Draw(t, "bytes"), Pinned: rapid.IntRange(0, 5).Draw(t, "pinned") == 0, Priority: rapid.Uint8Range(0, 2).Draw(t, "priority")})
			if err != nil {
				continue
			}
			if rapid.IntRange(0, 5).Draw(t, "commit") == 0 {
				continue
			}
			if err := w.Commit(0, p, sum(heap, p)); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 3).Draw(t, "read") == 0 {
				_, held[key], _ = w.Lease(0, []byte(key))
			}
		}
		w.Gone()
		for {
			bytes, evictable := w.standings()
			share := w.toShare() / uint64(max(1, len(bytes)))
			names := make(map[uint64]string)
			for i := range w.entries {
				if w.entries[i].state == ready {
					header := w.header(uint32(i), arena.PageSize)
					names[w.entries[i].hash] = string(w.heap.Key(&header))
				}
			}
			if !w.evictOne(0) {
				if len(evictable) > 0 {
					t.Fatalf("nothing leaves, and %v could", evictable)
				}
				break
			}
			gone := w.Gone()
			if len(gone) != 1 {
				t.Fatalf("%d left", len(gone))
			}
			lost := names[gone[0]]
			if _, is := held[lost]; is {
				t.Fatalf("%s was read, and evicted", lost)
			}
			loser := string(firstWord([]byte(lost)))
			for other := range evictable {
				if bytes[loser] <= share && bytes[other] > share {
					t.Fatalf("%s lost with %d bytes, while %s has %d; a fair share is %d", loser, bytes[loser], other, bytes[other], share)
				}
				if bytes[other] > bytes[loser] {
					t.Fatalf("%s lost with %d bytes, while %s has %d", loser, bytes[loser], other, bytes[other])
				}
			}
		}
		w.check(t)
	})
}

// A single tenant's objects leave in the order of the policy alone, as if there were no
// tenants.
func TestOneTenantLeavesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy(rapid.IntRange(0, 2).Draw(t, "policy"))
		o := Options{Policy: policy, High: 1, Low: 0.99}
		if rapid.Bool().Draw(t, "named") {
			o.Tenant = firstWord
		}
		w, heap, _ := open(t, 512<<10, arena.Options{Headers: 256}, o)
		type object struct {
			key      string
			priority uint8
		}
		var order []object // the first leaves first
		for n := range rapid.IntRange(1, 40).Draw(t, "objects") {
			one := object{fmt.Sprint("a/", n), rapid.Uint8Range(0, 3).Draw(t, "priority")}
			p, err := w.Reserve(0, Put{Key: []byte(one.key), Bytes: 100, Priority: one.priority})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(0, p, sum(heap, p)); err != nil {
				t.Fatal(err)
			}
			order = append(order, one)
			if rapid.Bool().Draw(t, "touch") {
				i := rapid.IntRange(0, len(order)-1).Draw(t, "which")
				touched := order[i]
				if _, err := w.Locate(kv.Instant(n)*kv.Second*100, []byte(touched.key)); err != nil {
					t.Fatal(err)
				}
				if policy != FIFO {
					order = append(slices.Delete(order, i, i+1), touched)
				}
			}
		}
		if policy == ByPriority {
			slices.SortStableFunc(order, func(a, b object) int { return int(a.priority) - int(b.priority) })
		}
		w.Gone()
		for _, want := range order {
			w.evictOne(0)
			if gone := w.Gone(); len(gone) != 1 || gone[0] != arena.HashKey([]byte(want.key)) {
				t.Fatalf("%v: %s was to leave", policy, want.key)
			}
		}
		if s := w.Stats(); s.EvictedByShare != 0 || s.EvictedByQuota != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// A tenant that floods an arena takes room from itself.
func TestFloodLeavesOthersAlone(t *testing.T) {
	w, _, _ := open(t, 2<<20, arena.Options{Headers: 4096}, Options{Tenant: firstWord})
	for n := range 60 {
		w.mustPut(t, 0, fmt.Sprint("small/", n), 8000) // about a quarter
	}
	for n := range 3000 {
		w.mustPut(t, kv.Instant(n)*kv.Millisecond, fmt.Sprint("flood/", n), 8000)
	}
	for n := range 60 {
		if !w.Has(fmt.Append(nil, "small/", n)) {
			t.Fatalf("small/%d had to leave", n)
		}
	}
	if s := w.Stats(); s.Evictions == 0 || s.EvictedByShare != s.Evictions {
		t.Errorf("%+v", s)
	}
}

// Tenants without end have bounded books, and no more than the half of an arena that others
// want: who has an account keeps what is within its share.
func TestInventedTenants(t *testing.T) {
	w, _, _ := open(t, 2<<20, arena.Options{Headers: 4096}, Options{Tenant: firstWord})
	half := w.toShare() / 2
	flood := func(from int) {
		for n := range 3000 {
			w.mustPut(t, 0, fmt.Sprintf("new%d/x", from+n), 1000)
		}
	}
	for n := range maxTenants {
		w.mustPut(t, 0, fmt.Sprintf("old%d/0", n), 1000)
	}
	flood(0)
	if w.order.all[rest].bytes < half {
		t.Errorf("the rest has %d bytes, and the room that is spare is not theirs", w.order.all[rest].bytes)
	}
	each := int(half / maxTenants / w.order.all[copies+1].bytes)
	for n := range maxTenants {
		for k := 1; k < each; k++ {
			w.mustPut(t, 0, fmt.Sprintf("old%d/%d", n, k), 1000)
		}
	}
	flood(3000)
	if len(w.order.all) > maxTenants+2 || len(w.order.number) > maxTenants || each < 2 {
		t.Errorf("%d accounts, %d objects each", len(w.order.all), each)
	}
	for n := range maxTenants {
		for k := range each {
			if !w.Has(fmt.Appendf(nil, "old%d/%d", n, k)) {
				t.Fatalf("old%d/%d had to leave", n, k)
			}
		}
	}
	for w.EvictUntilBelow(0, 0) > 0 {
	}
	if w.order.live != 0 || len(w.order.tenants) != 0 || len(w.order.number) != 0 || w.order.all[rest].bytes != 0 {
		t.Errorf("nothing is left, and %d accounts are", w.order.live)
	}
	w.mustPut(t, 0, "late/x", 1000) // it finds an account
	if number, _, stands := w.order.of(w.payerOf("", []byte("late/x"))); !stands || number == rest {
		t.Error("an account that is free is not given out")
	}
}

// What a tenant has that is not asked for is not kept from those that are in use.
func TestIdleTenantLosesFirst(t *testing.T) {
	w, _, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord})
	w.mustPut(t, 0, "gone/0", 8000)
	now := idleAfter + 2*kv.Second
	for n := range 50 {
		w.mustPut(t, now, fmt.Sprint("busy/", n), 8000)
	}
	w.evictOne(now)
	if w.Has([]byte("gone/0")) {
		t.Error("a tenant whose objects are not asked for keeps its share")
	}
	w.mustPut(t, now, "back/0", 8000)
	if w.evictOne(now); !w.Has([]byte("back/0")) {
		t.Error("a tenant in use lost below its share")
	}
}

// A quota is a tenant's own affair: its own objects leave for it, and when none can, it is
// refused, and none does.
func TestTenantQuota(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord, TenantQuota: 0.25})
	quota := (heap.Bounds().Limit - heap.Bounds().Base) / 4
	w.mustPut(t, 0, "b/0", 8000)
	for n := range 100 {
		w.mustPut(t, 0, fmt.Sprint("a/", n), 8000)
		if bytes, _ := w.standings(); bytes["a"] > quota {
			t.Fatalf("%d bytes, the quota is %d", bytes["a"], quota)
		}
	}
	s := w.Stats()
	if !w.Has([]byte("b/0")) || !w.Has([]byte("a/99")) || w.Has([]byte("a/0")) || s.EvictedByQuota == 0 || s.EvictedByQuota != s.Evictions {
		t.Errorf("%+v", s)
	}
	if _, _, err := w.Lease(0, []byte("a/99")); err != nil {
		t.Fatal(err)
	}
	for _, size := range []uint64{quota + 1, quota - 100} {
		if _, err := w.Reserve(0, Put{Key: []byte("a/large"), Bytes: size}); !errors.Is(err, ErrFull) {
			t.Errorf("%d bytes beside one that is read: %v", size, err)
		}
	}
	if after := w.Stats(); after.Evictions != s.Evictions {
		t.Error("objects left in vain")
	}
	for _, bad := range []float64{-0.1, 1.1} {
		if _, err := New(heap, Options{TenantQuota: bad}); err == nil {
			t.Errorf("a quota of %v", bad)
		}
	}
}

// What producers write without a question is within the quota as soon as it can be found.
func TestProducersHaveAQuota(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord, TenantQuota: 0.25})
	quota := (heap.Bounds().Limit - heap.Bounds().Base) / 4
	for n := range 60 {
		key := fmt.Append(nil, "a/", n)
		r, err := heap.Reserve(arena.HashKey(key), 8000, len(key), arena.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		heap.Seal(&r, key)
		a := heap.AnnounceOf(&r, 0)
		heap.Tell(&a)
		w.Ingest(0, 1)
		w.admitAll()
		if bytes, _ := w.standings(); bytes["a"] > quota {
			t.Fatalf("%d bytes, the quota is %d", bytes["a"], quota)
		}
	}
}

// Copies take room that is spare: they leave before all else, and nothing but others of
// them leaves for one.
func TestCopiesLeaveFirst(t *testing.T) {
	isCopy := func(key []byte) bool { return strings.HasSuffix(string(key), "#2") }
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord, Copy: isCopy, TenantQuota: 0.9})
	total := heap.Bounds().Limit - heap.Bounds().Base
	copyOf := func(n int) []byte { return fmt.Appendf(nil, "a/%d#2", n) }
	for n := range 20 {
		w.mustPut(t, 0, string(copyOf(n)), 8000)
	}
	if got := w.order.all[copies]; got.objects != 20 || w.order.live != 0 {
		t.Fatalf("%+v", got)
	}
	n := 0
	for ; float64(w.usedBytes()) < 0.94*float64(total); n++ {
		w.mustPut(t, 0, fmt.Sprintf("%d/%d", n%2, n), 8000)
	}
	if s := w.Stats(); s.Evictions != 0 {
		t.Fatalf("%+v", s)
	}
	w.mustPut(t, 0, "0/more", 16000) // above the high watermark: down to the low one
	s := w.Stats()
	if s.EvictedCopies == 0 || s.EvictedCopies != s.Evictions || w.Has(copyOf(0)) || !w.Has(copyOf(19)) {
		t.Fatalf("%+v", s)
	}
	for k := range n {
		if !w.Has(fmt.Appendf(nil, "%d/%d", k%2, k)) {
			t.Fatalf("%d left while there were copies", k)
		}
	}
	w.EvictUntilBelow(0, 0.5)
	sole := w.Stats().Ready
	if w.Has(copyOf(19)) {
		t.Fatal("objects left before a copy")
	}
	for k := range 200 { // copies replace one another, and end where the watermark is
		if p, err := w.Reserve(0, Put{Key: copyOf(100 + k), Bytes: 8000}); err != nil || w.Commit(0, p, sum(heap, p)) != nil {
			t.Fatal(err)
		}
	}
	if s := w.Stats(); s.Ready-uint64(w.order.all[copies].objects) != sole || float64(w.usedBytes()) > 0.95*float64(total) {
		t.Fatalf("%+v, %d were there", s, sole)
	}
	if _, err := w.Reserve(0, Put{Key: copyOf(1000), Bytes: total * 2 / 3}); !errors.Is(err, ErrFull) {
		t.Fatalf("a copy that there is no room for: %v", err)
	}
	if w.Stats().Ready-uint64(w.order.all[copies].objects) != sole {
		t.Fatal("an object left for a copy")
	}
}

// A tenant that is new makes no room among those that have no account of their own.
func TestNewTenantLeavesTheRestAlone(t *testing.T) {
	w, _, _ := open(t, 8<<20, arena.Options{Headers: 1024}, Options{Tenant: firstWord, High: 1, Low: 0.99, TenantQuota: 0.05})
	for i := range maxTenants {
		w.mustPut(t, 0, fmt.Sprintf("%d/x", i), 100)
	}
	for i := range 3 {
		w.mustPut(t, 0, fmt.Sprintf("beyond%d/x", i), 100_000)
	}
	if err := w.Remove([]byte("7/x")); err != nil {
		t.Fatal(err)
	}
	before := w.order.all[rest].objects
	w.mustPut(t, 0, "new/x", 300_000)
	if after := w.order.all[rest].objects; after != before || w.stats.EvictedByQuota != 0 {
		t.Errorf("of %d objects of others %d are left; %d went for a quota that no tenant exceeds; %v used", before, after, w.stats.EvictedByQuota, w.Used())
	}
}

// Copies belong to no tenant: no quota bounds them while there is room.
func TestCopiesHaveNoQuota(t *testing.T) {
	isCopy := func(key []byte) bool { return key[len(key)-1] == '#' }
	w, _, _ := open(t, 8<<20, arena.Options{Headers: 1024}, Options{Tenant: firstWord, Copy: isCopy, TenantQuota: 0.05})
	for i := range 20 {
		w.mustPut(t, 0, fmt.Sprintf("%d/x#", i), 100_000)
	}
	if w.stats.Evictions != 0 {
		t.Errorf("%d copies of 20 tenants left, %d by a quota, of an arena of which %v is used", w.stats.Evictions, w.stats.EvictedByQuota, w.Used())
	}
}

// charged puts an object as who was found to write it.
func (w *Owner) charged(t *testing.T, now kv.Instant, tenant, key string, size uint64) {
	t.Helper()
	p, err := w.Reserve(now, Put{Key: []byte(key), Bytes: size, Tenant: tenant})
	if err == nil {
		err = w.Commit(now, p, sum(w.heap, p))
	}
	if err != nil {
		t.Fatal(key, err)
	}
}

// However many names a tenant invents for parts of what it has, they divide its own share:
// another keeps what is within its own, and a tenant that comes later finds an account.
func TestInventedPartsDivideTheirTenantsShare(t *testing.T) {
	w, _, _ := open(t, 2<<20, arena.Options{Headers: 4096}, Options{Part: firstWord})
	small := 0
	for ; w.order.tenants == nil || w.order.has(0, w.order.tenants[0].accounts...).bytes < w.toShare()*45/100; small++ {
		w.charged(t, 0, "small", fmt.Sprint("x/small", small), 1000)
	}
	for n := range 10_000 {
		w.charged(t, 0, "inventor", fmt.Sprintf("%d/x", n), 1000)
		if len(w.order.all) > maxTenants+2 || w.order.parts > maxParts {
			t.Fatalf("%d accounts, %d of parts", len(w.order.all), w.order.parts)
		}
	}
	w.charged(t, 0, "late", "y/late", 1000)
	for n := range small {
		if !w.Has(fmt.Append(nil, "x/small", n)) {
			t.Fatalf("object %d of %d, within the fair share of its tenant, had to leave", n, small)
		}
	}
	if s := w.Stats(); s.Evictions == 0 || s.EvictedByShare != s.Evictions {
		t.Errorf("%+v", s)
	}
	if number, _, stands := w.order.of(w.payerOf("late", []byte("y/late"))); !stands || number == rest || !w.Has([]byte("y/late")) {
		t.Error("a tenant that came later has no account of its own")
	}
	for w.EvictUntilBelow(0, 0) > 0 {
	}
	if w.order.live != 0 || w.order.parts != 0 || len(w.order.tenants) != 0 || len(w.order.number) != 0 {
		t.Errorf("nothing is left, and %d accounts of %d tenants are", w.order.live, len(w.order.tenants))
	}
}

// Parts of one tenant share alike what it has.
func TestFloodOfAPartLeavesOtherPartsAlone(t *testing.T) {
	w, _, _ := open(t, 2<<20, arena.Options{Headers: 4096}, Options{Part: firstWord})
	for n := range 60 {
		w.charged(t, 0, "both", fmt.Sprint("small/", n), 8000) // about a quarter
	}
	for n := range 3000 {
		w.charged(t, kv.Instant(n)*kv.Millisecond, "both", fmt.Sprint("flood/", n), 8000)
	}
	for n := range 60 {
		if !w.Has(fmt.Append(nil, "small/", n)) {
			t.Fatalf("small/%d had to leave", n)
		}
	}
	if s := w.Stats(); s.Evictions == 0 || s.EvictedByShare != s.Evictions {
		t.Errorf("%+v", s)
	}
}

func BenchmarkEvictAmongTenants(b *testing.B) {
	for _, tenants := range []int{1, 16, 254} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			w, _, _ := open(b, 64<<20, arena.Options{Headers: 1 << 14}, Options{Tenant: firstWord, High: 1, Low: 0.99})
			n := 0
			for b.Loop() {
				w.mustPut(b, 0, fmt.Sprintf("%d/%d", n%tenants, n), 8000)
				n++
			}
		})
	}
}
