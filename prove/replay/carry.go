package replay

import (
	"slices"

	"meridian/decide/policy"
	"meridian/kv"
)

// line is a link in one direction: it carries one thing after the other.
type line struct{ free ps }

// send says when so many bytes that are ready at now will have been carried.
func (l *line) send(k Link, bytes int64, now ps) ps {
	l.free = max(l.free, now) + k.takes(bytes)
	return l.free
}

// transfer is on its way for a sequence.
type transfer struct {
	done ps
	kind errand
	seq  *sequence
	// blocks is how many it is of; of a copy ahead, those that have one then.
	blocks int32
}

type errand uint8

const (
	copyOut   errand = iota // and then the blocks are freed
	copyAhead               // a copy of what stays
	bringBack               // from a copy, a store or another engine
	leaseEnd                // of a prompt that was computed here for another engine
)

// start puts a transfer on its way.
func (e *engine) start(t transfer) { e.transfers = append(e.transfers, t) }

// land carries out what has arrived by now, in the order of arrival.
func (e *engine) land(now ps) {
	for len(e.transfers) > 0 {
		first := 0
		for i := range e.transfers {
			if e.transfers[i].done < e.transfers[first].done {
				first = i
			}
		}
		t := e.transfers[first]
		if t.done > now {
			return
		}
		e.transfers = slices.Delete(e.transfers, first, first+1)
		e.settle(now)
		e.landed(t, now)
		e.interrupt(now)
	}
}

func (e *engine) landed(t transfer, now ps) {
	if t.kind == leaseEnd {
		t.seq.expire(e, now)
		return
	}
	i := slices.Index(e.seqs, t.seq)
	if i < 0 {
		return // it has ended; a copy of it is of no use
	}
	r, s := &e.snap.Requests[i], t.seq
	switch t.kind {
	case copyOut:
		e.release(s, s.leaving)
		s.leaving = hold{}
		s.shared = 0
		r.State = policy.Away
	case copyAhead:
		if r.Holds() {
			r.Copied = max(r.Copied, min(t.blocks, e.holding(int32(i)).blocks))
		}
	case bringBack:
		r.State = policy.Paused
		s.fetched(now)
	}
}

// preempt takes blocks, or only its turn, from a victim.
func (e *engine) preempt(v policy.Victim, now ps) {
	r, s := &e.snap.Requests[v.Request], e.seqs[v.Request]
	if !r.Holds() {
		e.cell.tally.work.Denied++
		return
	}
	if r.State == policy.Running {
		e.running--
	}
	x := &e.cell.tally.evictions
	if v.Reclaim == policy.Keep {
		r.State = policy.Paused
		x.Keep++
		return
	}
	r.Preemptions++
	r.Since = 0
	tierBlocks(r, e.snap.Limits.BlockTokens, x.count)
	if v.Reclaim == policy.Offload && !e.cell.config.NoOffload {
		x.Offload++
		e.offload(v.Request, now)
		return
	}
	x.Recompute++
	s.lost = r.Length
	if r.Phase == kv.Prefill {
		e.promptTokens += int64(r.Length)
	}
	e.abandon(v.Request)
	r.State, r.Length, r.Blocks, r.Copied = policy.Waiting, 0, 0, 0
	r.Pending = tokens(r)
	e.waiting++
	e.backlog.waits(s)
	e.matched = false
}

// offload copies the blocks of request i out. Those with a copy are free at once.
func (e *engine) offload(i int32, now ps) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	h := e.holding(i)
	free := min(r.Copied, h.blocks)
	e.release(s, hold{blocks: free})
	h.blocks -= free
	if h == (hold{}) {
		r.State = policy.Away
		return
	}
	bytes := int64(r.Blocks-free) * e.cell.blockBytes
	e.cell.tally.moved.Offload += bytes
	s.leaving = h
	r.State = policy.Leaving
	e.start(transfer{done: e.out.send(e.cell.config.Offload, bytes, now), kind: copyOut, seq: s})
}

// recall brings the blocks of request i back.
func (e *engine) recall(i int32, now ps) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	if r.State != policy.Away || r.Blocks > e.snap.FreeBlocks {
		e.cell.tally.work.Denied++
		return
	}
	blocks := r.Blocks
	r.Blocks, r.Copied, r.State = 0, 0, policy.Recalling
	e.take(i, blocks)
	bytes := int64(blocks) * e.cell.blockBytes
	e.cell.tally.moved.Recall += bytes
	r.Since = 0
	e.start(transfer{done: e.in.send(e.cell.config.Offload, bytes, now), kind: bringBack, seq: s})
}

// fetch brings the first tokens of request i from the engine that computed them,
// or from the store.
func (e *engine) fetch(i, tokens int32, now ps) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	r.State, s.fetching = policy.Recalling, true
	bytes := int64(tokens) * e.cell.config.Profile.KVBytesPerToken
	link, moved := e.cell.config.StoreLink, &e.cell.tally.moved.Store
	if s.lender != nil {
		link, moved = e.cell.config.HandOff, &e.cell.tally.moved.HandOff
	}
	*moved += bytes
	e.start(transfer{done: e.in.send(link, bytes, now), kind: bringBack, seq: s})
}

// copyThought makes a copy of what an answer stands on, so that it can be paused
// at little cost.
func (e *engine) copyThought(i int32, now ps) {
	if !e.cell.config.CopyThought || e.cell.config.NoOffload {
		return
	}
	blocks := e.snap.Requests[i].Length / e.snap.Limits.BlockTokens
	bytes := int64(blocks) * e.cell.blockBytes
	e.cell.tally.moved.Copied += bytes
	e.start(transfer{done: e.out.send(e.cell.config.Offload, bytes, now), kind: copyAhead, seq: e.seqs[i], blocks: blocks})
}

// expire: no decode engine has fetched what was computed for s, and its blocks are needed.
func (s *sequence) expire(lender *engine, now ps) {
	if s.lender != lender || s.fetching {
		return
	}
	s.fetched(now)
	s.at.matched = false
	s.at.promptTokens += int64(s.prompt - 1)
	s.at.interrupt(now)
}
