package policy

import "meridian/kv"

// Classes of a ranking are below rest. A request with rest in its class is left
// out of the step and the first to give its blocks up; gone marks a victim of
// this step; out means that a copy is under way, so nothing can be asked of it.
const (
	rest = 32
	gone = 64
	out  = 255
)

// ranking is a step in which requests take part by class, the lowest first, and
// within a class as they came. A policy gives the classes; the ranking admits,
// recalls, and finds victims for those who lack blocks.
//
// It keeps the bounds of ADR-0008: in one step at most PreemptMaxFraction of
// those who hold blocks lose them; none loses them again before it has found
// the tokens it is owed; and if that would leave a step without any work, the last
// of all goes nevertheless, so that the first goes on.
type ranking struct {
	draft
	class []uint8
	order []int32
	// reasons say why one of a class is a victim.
	reasons [2 * rest]Reason
	// guests is the first class whose members take blocks from others only to go
	// on, not to come in.
	guests uint8
	// backwards: of a class the last in order are the first to lose their blocks,
	// not the least recently served.
	backwards bool
	// backfill is for how long after its arrival others may come in before one
	// that does not fit.
	backfill Instant
	victims  victims
	// lost of mayLose have lost their blocks.
	lost, mayLose int32
	// coming blocks are free once they are copied, and no request counts on them yet.
	coming int32
	// changed: a request came or went, so the next step differs.
	changed bool
	// next of order is the first that was not asked; blocked: one could not come
	// in, and no other comes in before it.
	next    int
	blocked bool
	// leaving blocks are free once they are copied.
	leaving int32
	// contended: a request that might have taken part does not. Then the order of
	// classes matters, and a decision holds only as long as they do.
	contended bool
	// tight: a request asked for room, and the answer may be another if others hold
	// a block more; asked is how many blocks were left when the first one did.
	tight bool
	asked int32
	// resumed: one that was left out takes part, so who is a victim rather than
	// whom may be another after this step.
	resumed bool
	// owed is in how many steps, at the earliest, one can be a victim that cannot
	// now; 0 means that all can.
	owed int32
}

// rank begins a step. classify says the class of a request; out leaves it out.
func (k *ranking) rank(s *Snapshot, d *Decision, classify func(*Request) uint8) {
	k.begin(s, d)
	n := len(s.Requests)
	if cap(k.class) < n {
		k.class, k.order = make([]uint8, n+n/2), make([]int32, n+n/2)
	}
	k.class, k.order = k.class[:n], k.order[:n]
	k.next, k.blocked = 0, false
	k.lost, k.changed = 0, false
	k.victims.reset()
	k.leaving, k.contended, k.tight, k.resumed, k.owed = 0, false, false, false, 0
	var counts [out + 1]int32
	holding := int32(0)
	for i := range s.Requests {
		r := &s.Requests[i]
		c := uint8(out)
		switch r.State {
		case Leaving:
			k.leaving += r.uncopied()
		case Recalling:
		default:
			c = classify(r)
			if r.Holds() {
				holding++
				if owed := r.owed(); owed > 0 && (k.owed == 0 || owed < k.owed) {
					k.owed = owed
				}
			}
		}
		k.class[i] = c
		counts[c]++
	}
	k.coming = k.leaving
	k.mayLose = max(1, int32(s.Limits.PreemptMaxFraction*float64(holding)))
	at := int32(0)
	for c, count := range counts {
		counts[c] = at
		at += count
	}
	for i, c := range k.class {
		k.order[counts[c]] = int32(i)
		counts[c]++
	}
}

// serve lets all classes take part, as far as the limits go.
func (k *ranking) serve() {
	k.serveBelow(rest)
	k.finish()
}

// serveBelow lets the classes below one take part that have not yet.
func (k *ranking) serveBelow(class uint8) {
	for ; k.next < len(k.order); k.next++ {
		i := k.order[k.next]
		c := k.class[i]
		if c&gone != 0 && c != out {
			continue
		}
		if c >= class {
			return
		}
		served := false
		r := &k.s.Requests[i]
		switch {
		case k.full():
		case r.Holds():
			served = k.run(i) || k.makeRoom(k.missing(r)) && k.run(i)
		case k.blocked:
		case r.State == Away:
			served = k.recall(i)
			k.blocked = !served
		default:
			served = k.admit(i)
			k.blocked = !served && k.s.Now-k.s.Requests[i].Arrived >= k.backfill
		}
		k.resumed = k.resumed || served && r.State == Paused
		k.contended = k.contended || !served
		if !served && r.State == Running {
			k.changed = true // it pauses, and may be of another class then
		}
	}
}

// finish leaves the others out, and says for how long all this holds.
func (k *ranking) finish() {
	k.pause(k.order[k.next:])
	if len(k.d.Run) == 0 && len(k.d.Recall) == 0 && k.leaving == 0 {
		k.lastResort()
	}
	// Who goes on again may be of another class then, which matters to those left out.
	if k.changed || k.resumed && k.contended {
		return
	}
	k.d.Steps = k.steps()
	switch {
	case !k.tight:
	case k.resumed || k.blocks != k.asked: // others take blocks with this very step
		k.d.Steps = 1
	default:
		k.d.Steps = min(k.d.Steps, k.untilBlock())
	}
	if k.contended && k.owed > 0 {
		k.d.Steps = min(k.d.Steps, k.owed)
	}
}

// pause leaves those who rest out.
func (k *ranking) pause(resting []int32) {
	for _, i := range resting {
		if c := k.class[i]; c&gone == 0 && k.s.Requests[i].State == Running {
			k.d.Victims = append(k.d.Victims, Victim{Request: i, Reclaim: Keep, Reason: k.reasons[c]})
			k.changed = true
		}
	}
}

// untilBlock is how many steps pass until a request takes a block.
func (k *ranking) untilBlock() int32 {
	for i, takes := range k.slack {
		if takes > 0 {
			return int32(i) + 1
		}
	}
	return forever
}

// missing is how many blocks r lacks for its share of the step.
func (k *ranking) missing(r *Request) int32 {
	return k.s.Limits.need(r, k.share(r)) - k.blocks
}

// admit lets a Waiting one in, if all it must compute fits.
func (k *ranking) admit(i int32) bool {
	r := &k.s.Requests[i]
	if k.share(r) <= 0 {
		return false
	}
	more := k.s.Limits.need(r, r.Pending)
	if more > k.blocks && (!k.invite(i, more-k.blocks) || more > k.blocks) {
		return false
	}
	k.changed = true
	return k.run(i)
}

// recall fetches one that is Away, with a block to go on, unless it holds all
// there are.
func (k *ranking) recall(i int32) bool {
	r := &k.s.Requests[i]
	more := min(r.Blocks+1, k.s.Limits.Blocks)
	if more > k.blocks && (!k.invite(i, more-k.blocks) || more > k.blocks) {
		return false
	}
	k.blocks -= r.Blocks
	k.d.Recall = append(k.d.Recall, i)
	k.changed = true
	return true
}

// invite makes room for one that is to come in, if its class may ask for it.
func (k *ranking) invite(i, missing int32) bool {
	if k.class[i] >= k.guests {
		return false
	}
	return k.makeRoom(missing)
}

// makeRoom takes so many blocks from those behind the one that asks: it says whether
// they can be had, now or once they are copied, and takes none otherwise.
func (k *ranking) makeRoom(missing int32) bool {
	if !k.tight {
		k.tight, k.asked = true, k.blocks
	}
	if missing > k.coming && int64(missing-k.coming) > k.obtainable() {
		return false
	}
	for {
		use := min(missing, k.coming)
		k.coming -= use
		if missing -= use; missing <= 0 {
			return true
		}
		missing = max(0, missing-k.take(k.order[k.victims.line[k.lost]]))
	}
}

// take makes a victim of request v and says how many blocks that gives at once.
func (k *ranking) take(v int32) int32 {
	r := &k.s.Requests[v]
	how := k.reclaim(r)
	k.d.Victims = append(k.d.Victims, Victim{Request: v, Reclaim: how, Reason: k.reasons[k.class[v]]})
	k.class[v] |= gone
	k.lost++
	k.changed = true
	now := r.Blocks
	if how == Offload {
		now -= r.uncopied()
		k.coming += r.uncopied()
	}
	k.blocks += now
	return now
}

// uncopied is how many of r's blocks have no copy, whatever was told of copies of others
// that it had: a victim gives as many blocks as it holds, now and later.
func (r *Request) uncopied() int32 { return max(0, r.Blocks-max(0, r.Copied)) }

// reclaim is the cheaper way to take r's blocks; an answer is never computed
// anew where it can be copied.
func (k *ranking) reclaim(r *Request) Reclaim {
	c := &k.s.Costs
	if c.CopiedBlock == 0 {
		return Recompute
	}
	copying := Instant(r.uncopied())*c.CopiedBlock + Instant(r.Blocks)*c.RecalledBlock
	if r.Phase != kv.Output && copying > Instant(r.Length)*c.PrefillToken {
		return Recompute
	}
	return Offload
}

// lastResort takes the blocks of the very last, whatever it has found since, so
// that the others have something to go on with.
func (k *ranking) lastResort() {
	last := int32(-1)
	for place := range int32(len(k.order)) {
		i := k.order[place]
		if r := &k.s.Requests[i]; r.Holds() && r.Blocks > 0 && k.class[i]&gone == 0 && (last < 0 || k.before(place, last)) {
			last = place
		}
	}
	if last >= 0 && k.lost < k.mayLose {
		k.take(k.order[last])
	}
}
