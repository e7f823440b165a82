package sim

import (
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// taken is told of every byte before it is read from a source.
func (w *world) taken(by *process, id kv.ID, section *mem.Section, cut fabric.Cut) {
	if by.dead {
		return
	}
	t, r := w.transfers[id], w.sections[section]
	w.note(by, t, "takes %d bytes at %d of region %d", cut.Length, cut.Offset, r.id)
	w.tally.Taken += cut.Length
	w.checkAccess(by, t, r, cut, fabric.Write)
}

// placed is told of every byte before it is written to a destination.
func (w *world) placed(by *process, id kv.ID, section *mem.Section, cut fabric.Cut) {
	if by.dead {
		return
	}
	t, r := w.transfers[id], w.sections[section]
	w.note(by, t, "places %d bytes at %d of region %d", cut.Length, cut.Offset, r.id)
	w.tally.Placed += cut.Length
	w.checkAccess(by, t, r, cut, fabric.Read)
	switch {
	case t == nil:
	case t.wasDone && t.op == fabric.Write:
		w.violate("what is done stays done", t, "%v was done before, and %v writes it again", t, by)
	case t.over && !t.doubtful(), t.frozen:
		w.violate("an end is an end", t, "%v ended as %v, and %v still places bytes of it", t, t.state, by)
	}
}

// checkAccess judges an access to memory. local is the operation whose own side this
// is: a write takes from the poster's memory, a read places there.
func (w *world) checkAccess(by *process, t *transfer, r *region, cut fabric.Cut, local fabric.Op) {
	if t == nil || r == nil {
		w.violate("only what was posted moves", t, "%v touches memory for a transfer that was not posted", by)
		return
	}
	pieces := t.source
	if local == fabric.Read {
		pieces = t.destination
	}
	p := find(pieces, r, cut)
	switch {
	case t.op != local && by != t.to:
		w.violate("a stale incarnation never succeeds", t, "it was meant for %v, and %v serves it", t.to, by)
	case r.process != by:
		w.violate("everybody touches his own memory", t, "%v touches memory of %v", by, r.process)
	case p == nil:
		w.violate("only what was listed moves", t, "[%d,+%d) of region %d of %v is on no list", cut.Offset, cut.Length, r.id, by)
	case !r.registered:
		w.violate("nothing is touched after Deregister", t, "region %d of %v is not registered any more", r.id, by)
	case r.epoch != p.epoch:
		w.violate("a stale epoch never succeeds", t, "region %d of %v is at epoch %d, the list says %d", r.id, by, r.epoch, p.epoch)
	case t.op != local && find(t.grant.opens, r, cut) == nil:
		w.violate("nothing is touched without a grant", t, "[%d,+%d) of region %d of %v is not open to it: %v", cut.Offset, cut.Length, r.id, by, t.forbidden)
	case t.op == local && (t.over || t.cancelled):
		w.violate("the caller's memory is quiet at the end", t, "%v has ended as %v (cancelled: %t), and %v still touches its memory", t, t.state, t.cancelled, by)
	case t.op != local && t.grant.revoked:
		w.violate("nothing is touched after Revoke", t, "its grant was revoked")
	}
}
