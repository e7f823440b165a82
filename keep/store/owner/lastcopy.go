package owner

import "meridian/kv"

// SetLastCopy says of a copy that no other owner has what it is of any more, so that it stands in
// for that, or that one has it again. A copy leaves before anything else; one that stands in is
// its tenant's, as what it is a copy of was, and leaves in its turn; an empty tenant is the key's. It counts as use where something changes. What is
// no copy, is not here, or would be more than its tenant may have stays as it is.
func (w *Owner) SetLastCopy(now kv.Instant, key []byte, tenant string, sole bool) {
	i, err := w.find(key)
	if err != nil || !w.isCopy(key) {
		return
	}
	e := &w.entries[i]
	if room := w.room(e); sole == (e.account != copies) || sole && !w.mayHave(w.payerOf(tenant, key), room) {
		return
	}
	counts := !e.pinned && e.readers == 0 // as something that could leave
	w.order.remove(w.entries, i)
	if counts {
		w.mayNotLeave(e)
	}
	w.order.discharge(e.account, w.room(e))
	if sole {
		e.account = w.order.charge(now, w.payerOf(tenant, key), w.room(e))
	} else {
		e.account = copies
		w.order.chargeTo(copies, now, w.room(e))
	}
	if counts {
		w.mayLeave(e)
	}
	w.order.add(w.entries, i)
}

// mayHave reports whether so many bytes more are within a payer's quota.
func (w *Owner) mayHave(p payer, bytes uint64) bool {
	if w.options.TenantQuota == 0 {
		return true
	}
	has := uint64(0)
	if number, _, stands := w.order.of(p); stands {
		has = w.order.all[number].bytes
	}
	return has+bytes <= w.quota()
}
