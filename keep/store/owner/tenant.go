package owner

import (
	"fmt"
	"slices"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// maxTenants is how many accounts there are of tenants, or of parts of one. What is beyond
// shares one account.
const maxTenants = 254

// maxParts is how many of these may be of parts of tenants. Who names a key names its part, so
// there is no end of parts: those beyond are their tenant's without one, and no tenant is
// without an account because another divides its share.
const maxParts = maxTenants / 2

// rest is the account of the tenants beyond, copies that of objects that are elsewhere, too,
// whichever tenant's they are; the others are those between.
const (
	rest   = 0
	copies = 1
)

// idleAfter is when a tenant whose objects were not asked for counts as gone: its share is
// the others' then, and what it has leaves before theirs.
const idleAfter = 600 * kv.Second

// payer is whose an object is, as hashes of names: the tenant that has a share, and the part of
// it that divides that share; 0 for none. That they are apart keeps a part, which a client
// invents, from being made to look like another tenant.
type payer struct{ tenant, part uint64 }

// account is what a tenant, or a part of one, has of an arena.
type account struct {
	payer
	objects   uint32 // with those that are being written, or still read
	bytes     uint64 // they take
	evictable uint64 // of these, of objects that could leave now
	used      kv.Instant
	// lists are who leaves first: one list, or one for each priority.
	lists []links // before: the front, after: the back
}

// tenant is one that has objects, by the accounts of its parts.
type tenant struct {
	hash     uint64
	accounts []uint8
}

// accounts are those of all tenants.
type accounts struct {
	lists   int // of each
	all     []account
	number  map[payer]uint8
	tenants []tenant
	live    int     // accounts of a tenant that have objects
	parts   int     // of these, of parts
	free    []uint8 // that have none
}

func newAccounts(p Policy) accounts {
	a := accounts{lists: 1, all: make([]account, 2, 3), number: make(map[payer]uint8)}
	if p == ByPriority {
		a.lists = 256
	}
	a.all[rest].lists, a.all[copies].lists = make([]links, a.lists), make([]links, a.lists)
	return a
}

// of is the account that objects of a payer are counted in, whose that is, and whether it
// stands: one that does not is opened by the first object.
func (a *accounts) of(p payer) (number uint8, as payer, stands bool) {
	if number, stands = a.number[p]; stands {
		return number, p, true
	}
	if p.part != 0 && a.parts >= maxParts {
		p.part = 0
		number, stands = a.number[p]
	}
	return number, p, stands || a.live >= maxTenants
}

// charge counts an object of a payer, which is one of its account from now on.
func (a *accounts) charge(now kv.Instant, p payer, bytes uint64) uint8 {
	number, p, stands := a.of(p)
	if !stands {
		number = a.open(p)
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

func (a *accounts) open(p payer) (number uint8) {
	if n := len(a.free); n > 0 {
		number, a.free = a.free[n-1], a.free[:n-1]
	} else {
		number = uint8(len(a.all))
		a.all = append(a.all, account{lists: make([]links, a.lists)})
	}
	a.all[number].payer = p
	a.number[p] = number
	a.live++
	if p.part != 0 {
		a.parts++
	}
	i := slices.IndexFunc(a.tenants, func(t tenant) bool { return t.hash == p.tenant })
	if i < 0 {
		i = len(a.tenants)
		a.tenants = append(a.tenants, tenant{hash: p.tenant})
	}
	a.tenants[i].accounts = append(a.tenants[i].accounts, number)
	return number
}

// discharge ends that. An account that has no object any more is another's next.
func (a *accounts) discharge(number uint8, bytes uint64) {
	one := &a.all[number]
	one.objects--
	one.bytes -= bytes
	if one.objects > 0 || number == rest || number == copies {
		return
	}
	delete(a.number, one.payer)
	a.live--
	if one.part != 0 {
		a.parts--
	}
	i := slices.IndexFunc(a.tenants, func(t tenant) bool { return t.hash == one.tenant })
	of := a.tenants[i].accounts
	if of = slices.DeleteFunc(of, func(n uint8) bool { return n == number }); len(of) > 0 {
		a.tenants[i].accounts = of
	} else {
		a.tenants = slices.Delete(a.tenants, i, i+1)
	}
	a.free = append(a.free, number)
}

// standing is what one of those has who share.
type standing struct {
	bytes, evictable uint64
	idle             bool
}

// mostAbove is who of n, who share so many bytes alike, is the most above its share, of those
// that have an object that can leave. Who is idle has no share.
func mostAbove(n int, bytes uint64, at func(int) standing) (loser int, excess int64, ok bool) {
	inUse := uint64(0)
	for i := range n {
		if !at(i).idle {
			inUse++
		}
	}
	for i := range n {
		s := at(i)
		if s.evictable == 0 {
			continue
		}
		over := int64(s.bytes)
		if !s.idle {
			over -= int64(bytes / inUse)
		}
		if !ok || over > excess {
			loser, excess, ok = i, over, true
		}
	}
	return loser, excess, ok
}

// loser is the account that loses an object when room is needed: that of the copies, or else,
// of those that have an object that can leave, the one that is most above its fair share, and
// whether it is above it, and not alone. The tenants in use share alike, and parts of a tenant
// what it has; the rest together have half, so that tenants without end get no more.
func (a *accounts) loser(now kv.Instant, bytes uint64) (number uint8, above, ok bool) {
	if a.all[copies].evictable > 0 {
		return copies, false, true
	}
	shared := bytes
	if a.all[rest].objects > 0 && !a.idle(rest, now) {
		shared /= 2
	}
	t, excess, ok := mostAbove(len(a.tenants), shared, func(i int) standing { return a.has(now, a.tenants[i].accounts...) })
	if others := a.has(now, rest); others.evictable > 0 {
		if over := int64(others.bytes) - int64(bytes-shared); !ok || over > excess {
			return rest, over > 0 && len(a.tenants) > 0, true
		}
	}
	if !ok {
		return 0, false, false
	}
	parts := a.tenants[t].accounts
	above = excess > 0 && (len(a.tenants) > 1 || a.all[rest].objects > 0)
	if len(parts) == 1 {
		return parts[0], above, true
	}
	p, excess, _ := mostAbove(len(parts), a.has(now, parts...).bytes, func(i int) standing { return a.has(now, parts[i]) })
	return parts[p], above || excess > 0, true
}

// has is what is in accounts together.
func (a *accounts) has(now kv.Instant, numbers ...uint8) standing {
	s := standing{idle: true}
	for _, n := range numbers {
		s.bytes += a.all[n].bytes
		s.evictable += a.all[n].evictable
		s.idle = s.idle && a.idle(n, now)
	}
	return s
}

func (a *accounts) idle(n uint8, now kv.Instant) bool { return now-a.all[n].used > idleAfter }

// toShare is what tenants share: what is left when room was made. So while room is made
// some tenant is above its share, unless what is above is pinned or read.
func (w *Owner) toShare() uint64 {
	b := w.heap.Bounds()
	return uint64(w.options.Low * float64(b.Limit-b.Base))
}

// payerOf is whose the object of a key is: the tenant's that its writer was found to be, or else
// the one's that the key is.
func (w *Owner) payerOf(tenant string, key []byte) (p payer) {
	switch {
	case tenant != "":
		p.tenant = arena.HashKey([]byte(tenant))
	case w.options.Tenant != nil:
		p.tenant = arena.HashKey(w.options.Tenant(key))
	}
	if w.options.Part != nil {
		if part := w.options.Part(key); len(part) > 0 {
			p.part = max(1, arena.HashKey(part))
		}
	}
	return p
}

// isCopy reports whether a key is of an object that is elsewhere, too.
func (w *Owner) isCopy(key []byte) bool { return w.options.Copy != nil && w.options.Copy(key) }

// chargeKey counts an object of a key that takes so many bytes, in its payer's account.
func (w *Owner) chargeKey(now kv.Instant, tenant string, key []byte, bytes uint64) uint8 {
	if w.isCopy(key) {
		w.order.chargeTo(copies, now, bytes)
		return copies
	}
	return w.order.charge(now, w.payerOf(tenant, key), bytes)
}

// makeCopyRoom lets copies go until there is room for another. For a copy nothing else
// leaves: it has the room that is spare.
func (w *Owner) makeCopyRoom(bytes uint64) error {
	b := w.heap.Bounds()
	heap := b.Limit - b.Base
	for evicted := 0; float64(w.usedBytes()+bytes) > w.options.High*float64(heap); evicted++ {
		if evicted == w.options.Batch {
			return ErrMakingRoom
		}
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

// quota is how many bytes one account may have.
func (w *Owner) quota() uint64 {
	b := w.heap.Bounds()
	return uint64(w.options.TenantQuota * float64(b.Limit-b.Base))
}

// makeOwnRoom lets objects of a payer go until so many bytes more are within its quota. If
// that cannot be, none goes.
func (w *Owner) makeOwnRoom(p payer, bytes uint64) error {
	if w.options.TenantQuota == 0 {
		return nil
	}
	number, _, stands := w.order.of(p)
	var has, stay uint64
	if stands {
		has, stay = w.order.all[number].bytes, w.order.all[number].bytes-w.order.all[number].evictable
	}
	if quota := w.quota(); stay+bytes > quota {
		w.stats.OutOfMemory++
		return fmt.Errorf("%w: %d bytes are wanted by a tenant that has %d, %d of them pinned, read or being written, and may have %d (store.tenant_quota)", ErrFull, bytes, has, stay, quota)
	}
	if stands && !w.trim(number, bytes) { // else number is that of the rest, who exceed nothing by this
		return ErrMakingRoom
	}
	return nil
}

// trim lets objects of an account go until so many bytes more are within its quota, as far
// as there are any that can: a batch at most, and then false.
func (w *Owner) trim(number uint8, bytes uint64) (over bool) {
	if w.options.TenantQuota == 0 || number == copies { // which are no tenant's, and leave first
		return true
	}
	for evicted := 0; w.order.all[number].evictable > 0 && w.order.all[number].bytes+bytes > w.quota(); evicted++ {
		if evicted == w.options.Batch {
			return false
		}
		i, ok := w.order.first(w.entries, number)
		if !ok {
			return true
		}
		w.drop(i)
		w.stats.Evictions++
		w.stats.EvictedByQuota++
	}
	return true
}
