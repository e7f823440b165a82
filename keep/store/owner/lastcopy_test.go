package owner

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"meridian/keep/store/arena"
)

func secondCopy(key []byte) bool { return strings.HasSuffix(string(key), "#2") }

// The last copy that is left of something leaves in its turn, like what it is a copy of did,
// and not before everything else; when there is another again, it is a copy as any.
func TestSoleCopyLeavesInItsTurn(t *testing.T) {
	for _, again := range []bool{false, true} {
		w, _, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord, Copy: secondCopy})
		for n := range 10 {
			w.mustPut(t, 0, fmt.Sprintf("a/%d#2", n), 8000)
		}
		for n := range 40 {
			w.mustPut(t, 0, fmt.Sprintf("a/%d", n+100), 8000)
		}
		w.SetLastCopy(0, []byte("a/3#2"), "", true)
		if again {
			w.SetLastCopy(0, []byte("a/3#2"), "", false)
		}
		w.SetLastCopy(0, []byte("a/100"), "", true) // is none
		w.SetLastCopy(0, []byte("a/99#2"), "", true)
		for left := w.Stats().Ready; left > 31; left = w.Stats().Ready { // the copies, and ten of the others
			if !w.evictOne(0) {
				t.Fatal("nothing can leave")
			}
		}
		if w.Has([]byte("a/3#2")) == again || w.Has([]byte("a/4#2")) || w.Has([]byte("a/100")) || !w.Has([]byte("a/139")) {
			t.Errorf("again %v: the sole copy is there: %v", again, w.Has([]byte("a/3#2")))
		}
		w.EvictUntilBelow(0, 0)
		if w.Stats().Ready != 0 {
			t.Errorf("%d stay for ever", w.Stats().Ready)
		}
	}
}

// A tenant that has all it may have gets no more by that.
func TestSoleCopiesWithinTheQuota(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 256}, Options{Tenant: firstWord, Copy: secondCopy, TenantQuota: 0.25})
	for n := range 60 {
		w.mustPut(t, 0, fmt.Sprintf("a/%d#2", n), 8000)
	}
	for n := range 60 {
		w.SetLastCopy(0, fmt.Appendf(nil, "a/%d#2", n), "", true)
	}
	number, _, _ := w.order.of(w.payerOf("", []byte("a/0#2")))
	total := heap.Bounds().Limit - heap.Bounds().Base
	if has := w.order.all[number].bytes; has > total/4 || has < total/5 || w.Stats().Evictions != 0 {
		t.Errorf("%d of %d bytes are the tenant's", has, total)
	}
}

// However copies become sole and copies again, are read, pinned and leave: what accounts say
// is what there is.
func TestSoleCopiesAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, _, _ := open(t, 1<<20, arena.Options{Headers: 64}, Options{Tenant: firstWord, Copy: secondCopy})
		var leases []LeaseID
		for range rapid.IntRange(1, 80).Draw(r, "steps") {
			key := fmt.Sprintf("%s/%d%s", rapid.SampledFrom([]string{"a", "b"}).Draw(r, "tenant"), rapid.IntRange(0, 5).Draw(r, "key"), rapid.SampledFrom([]string{"", "#2"}).Draw(r, "copy"))
			switch rapid.IntRange(0, 6).Draw(r, "what") {
			case 0, 1:
				if !w.Has([]byte(key)) {
					w.mustPut(t, 0, key, 3000)
				}
			case 2:
				w.SetLastCopy(0, []byte(key), "", rapid.Bool().Draw(r, "sole"))
			case 3:
				if _, lease, err := w.Lease(0, []byte(key)); err == nil {
					leases = append(leases, lease)
				}
			case 4:
				_ = w.SetPinned([]byte(key), rapid.Bool().Draw(r, "pinned"))
			case 5:
				w.evictOne(0)
			case 6:
				if len(leases) > 0 {
					w.Release(leases[0])
					leases = leases[1:]
				}
			}
			var objects uint32
			var bytes, evictable uint64
			for i := range w.order.all {
				objects, bytes, evictable = objects+w.order.all[i].objects, bytes+w.order.all[i].bytes, evictable+w.order.all[i].evictable
			}
			var there, takes, could uint64
			for i := range w.entries {
				if e := &w.entries[i]; e.state == ready || e.state == doomed {
					there, takes = there+1, takes+w.room(e)
					if e.state == ready && e.readers == 0 && !e.pinned {
						could += w.room(e)
					}
				}
			}
			if uint64(objects) != there || bytes != takes || evictable != could || w.evictable != could {
				r.Fatalf("accounts have %d objects of %d bytes, %d of which could leave; there are %d of %d, %d", objects, bytes, evictable, there, takes, could)
			}
		}
	})
}
