package owner

import (
	"fmt"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// maxTenants is how many tenants have an account of their own. Who names a key names a
// tenant, so there is no end of them: those beyond share one account.
const maxTenants = 254

// rest is the account of the tenants beyond, copies that of objects that are elsewhere, too,
// whichever tenant's they are; the others are those between.
const (
	rest   = 0
	copies = 1
)

// idleAfter is when a tenant whose objects were not asked for counts as gone: its share is
// the others' then, and what it has leaves before theirs.
const idleAfter = 600 * kv.Second

// account is what a tenant has of an arena.
type account struct {
	tenant    uint64 // hash of its name
	objects   uint32 // with those that are being written, or still read
	bytes     uint64 // they take
	evictable uint64 // of these, of objects that could leave now
	used      kv.Instant
	// lists are who leaves first: one list, or one for each priority.
	lists []links // before: the front, after: the back
}

// accounts are those of all tenants.
type accounts struct {
	lists  int // of each
	all    []account
	number map[uint64]uint8 // by the hash of the tenant's name
	live   []uint8          // accounts of one tenant that have objects
	free   []uint8          // that have none
}

func newAccounts(p Policy) accounts {
	a := accounts{lists: 1, all: make([]account, 2, 3), number: make(map[uint64]uint8)}
	if p == ByPriority {
		a.lists = 256
	}
	a.all[rest].lists, a.all[copies].lists = make([]links, a.lists), make([]links, a.lists)
	return a
}

// of is the account that objects of a tenant are counted in, and whether it stands: one
// that does not is opened by the first object.
func (a *accounts) of(tenant uint64) (number uint8, stands bool) {
	number, stands = a.number[tenant]
	return number, stands || len(a.live) >= maxTenants
}

// charge counts an object of a tenant, which is one of its account from now on.
func (a *accounts) charge(now kv.Instant, tenant, bytes uint64) uint8 {
	number, stands := a.of(tenant)
	if !stands {
		number = a.open(tenant)
	}
	a.chargeTo(number, now, bytes)
	return number
}

func (a *accounts) chargeTo(number uint8, now kv.Instant, bytes uint64) {
	one := &a.all[number]
	one.objects++
	one.bytes += bytes
	one.used = now
}

func (a *accounts) open(tenant uint64) (number uint8) {
	if n := len(a.free); n > 0 {
		number, a.free = a.free[n-1], a.free[:n-1]
	} else {
		number = uint8(len(a.all))
		a.all = append(a.all, account{lists: make([]links, a.lists)})
	}
	a.all[number].tenant = tenant
	a.number[tenant] = number
	a.live = append(a.live, number)
	return number
}

// discharge ends that. An account that has no object any more is another tenant's next.
func (a *accounts) discharge(number uint8, bytes uint64) {
	one := &a.all[number]
	one.objects--
	one.bytes -= bytes
	if one.objects > 0 || number == rest || number == copies {
		return
	}
	delete(a.number, one.tenant)
	for i := range a.live {
		if a.live[i] == number {
			a.live[i] = a.live[len(a.live)-1]
			a.live = a.live[:len(a.live)-1]
			break
		}
	}
	a.free = append(a.free, number)
}

// loser is the account that loses an object when room is needed: that of the copies, or else,
// of those that have an object that can leave, the one that is most above its fair share, and
// whether it is above it, and not alone. The tenants in use share alike; the rest together
// have half, so that a client that invents tenants gets no more. Who is idle has no share.
func (a *accounts) loser(now kv.Instant, bytes uint64) (number uint8, above, ok bool) {
	if a.all[copies].evictable > 0 {
		return copies, false, true
	}
	inUse, most, idle := uint64(0), -1, -1
	larger := func(than int, n uint8) int {
		if a.all[n].evictable == 0 || than >= 0 && a.all[n].bytes <= a.all[than].bytes {
			return than
		}
		return int(n)
	}
	for _, n := range a.live {
		if a.idle(n, now) {
			idle = larger(idle, n)
			continue
		}
		inUse++
		most = larger(most, n)
	}
	shared := bytes
	if a.all[rest].objects > 0 && !a.idle(rest, now) {
		shared /= 2
	}
	excess := int64(0)
	choose := func(n int, share uint64) {
		if n < 0 || a.all[n].evictable == 0 {
			return
		}
		if over := int64(a.all[n].bytes) - int64(share); !ok || over > excess {
			number, excess, ok = uint8(n), over, true
		}
	}
	choose(idle, 0)
	choose(most, shared/max(inUse, 1))
	choose(rest, bytes-shared)
	return number, excess > 0 && (len(a.live) > 1 || a.all[rest].objects > 0), ok
}

func (a *accounts) idle(n uint8, now kv.Instant) bool { return now-a.all[n].used > idleAfter }

// toShare is what tenants share: what is left when room was made. So while room is made
// some tenant is above its share, unless what is above is pinned or read.
func (w *Owner) toShare() uint64 {
	b := w.heap.Bounds()
	return uint64(w.options.Low * float64(b.Limit-b.Base))
}

// tenantOf is the hash of the name of a key's tenant.
func (w *Owner) tenantOf(key []byte) uint64 {
	if w.options.Tenant == nil {
		return 0
	}
	return arena.HashKey(w.options.Tenant(key))
}

// isCopy reports whether a key is of an object that is elsewhere, too.
func (w *Owner) isCopy(key []byte) bool { return w.options.Copy != nil && w.options.Copy(key) }

// chargeKey counts an object of a key that takes so many bytes, in its account.
func (w *Owner) chargeKey(now kv.Instant, key []byte, bytes uint64) uint8 {
	if w.isCopy(key) {
		w.order.chargeTo(copies, now, bytes)
		return copies
	}
	return w.order.charge(now, w.tenantOf(key), bytes)
}

// makeCopyRoom lets copies go until there is room for another. For a copy nothing else
// leaves: it has the room that is spare.
func (w *Owner) makeCopyRoom(bytes uint64) error {
	b := w.heap.Bounds()
	heap := b.Limit - b.Base
	for float64(w.usedBytes()+bytes) > w.options.High*float64(heap) {
		if !w.evictCopyOne() {
			w.stats.OutOfMemory++
			return fmt.Errorf("%w: %d bytes are wanted for a copy, and %d of %d are used", ErrFull, bytes, w.usedBytes(), heap)
		}
	}
	return nil
}

// evictFor lets one object go for a new one.
func (w *Owner) evictFor(now kv.Instant, isCopy bool) bool {
	if isCopy {
		return w.evictCopyOne()
	}
	return w.evictOne(now)
}

func (w *Owner) evictCopyOne() bool {
	i, ok := w.order.first(w.entries, copies)
	if ok {
		w.evictCopy(i)
	}
	return ok
}

func (w *Owner) evictCopy(i uint32) {
	w.drop(i)
	w.stats.Evictions++
	w.stats.EvictedCopies++
}

// quota is how many bytes one tenant may have.
func (w *Owner) quota() uint64 {
	b := w.heap.Bounds()
	return uint64(w.options.TenantQuota * float64(b.Limit-b.Base))
}

// makeOwnRoom lets objects of a tenant go until so many bytes more are within its quota. If
// that cannot be, none goes.
func (w *Owner) makeOwnRoom(tenant, bytes uint64) error {
	if w.options.TenantQuota == 0 {
		return nil
	}
	number, stands := w.order.of(tenant)
	var has, stay uint64
	if stands {
		has, stay = w.order.all[number].bytes, w.order.all[number].bytes-w.order.all[number].evictable
	}
	if quota := w.quota(); stay+bytes > quota {
		w.stats.OutOfMemory++
		return fmt.Errorf("%w: %d bytes are wanted by a tenant that has %d, %d of them pinned, read or being written, and may have %d (store.tenant_quota)", ErrFull, bytes, has, stay, quota)
	}
	if stands { // else number is that of the rest, who exceed nothing by this
		w.trim(number, bytes)
	}
	return nil
}

// trim lets objects of an account go until so many bytes more are within its quota, as far
// as there are any that can.
func (w *Owner) trim(number uint8, bytes uint64) {
	if w.options.TenantQuota == 0 || number == copies { // which are no tenant's, and leave first
		return
	}
	for w.order.all[number].evictable > 0 && w.order.all[number].bytes+bytes > w.quota() {
		i, ok := w.order.first(w.entries, number)
		if !ok {
			return
		}
		w.drop(i)
		w.stats.Evictions++
		w.stats.EvictedByQuota++
	}
}
