package replay

// freeList is the blocks of an engine that no request holds, in the order in which
// they became free; the next to be taken is the one that has been free for
// longest. As in vLLM V1, what a block holds stays until it is taken: chunks of
// prompts may be shared again, and a request that was preempted finds what is
// left of its own.
type freeList struct {
	spans  []span // spans[0] is the ring's anchor: older is the newest, newer the oldest
	unused []int32
	// forget is told of a chunk that leaves.
	forget func(chunk int32)
	// changed is told that the remains of a request have become fewer.
	changed func()
}

// span is some free blocks.
type span struct {
	blocks       int32
	chunk        int32     // of a prompt, 0: none
	owner        *sequence // whose remains these are; nil: of use to no request
	older, newer int32
}

func newFreeList(blocks int32) *freeList {
	f := &freeList{spans: make([]span, 1), changed: func() {}}
	if blocks > 0 {
		f.push(span{blocks: blocks})
	}
	return f
}

// push appends free blocks.
func (f *freeList) push(s span) int32 {
	last := f.spans[0].older
	if p := &f.spans[last]; last != 0 && s.chunk == 0 && s.owner == nil && p.chunk == 0 && p.owner == nil {
		p.blocks += s.blocks
		return last
	}
	var at int32
	if n := len(f.unused); n > 0 {
		at, f.unused = f.unused[n-1], f.unused[:n-1]
	} else {
		at = int32(len(f.spans))
		f.spans = append(f.spans, span{})
	}
	s.newer, s.older = 0, last
	f.spans[at] = s
	f.spans[last].newer = at
	f.spans[0].older = at
	return at
}

// remove takes a span out, wherever it is.
func (f *freeList) remove(at int32) {
	s := f.spans[at]
	f.spans[s.older].newer = s.newer
	f.spans[s.newer].older = s.older
	f.spans[at] = span{}
	f.unused = append(f.unused, at)
}

// take takes the oldest blocks; there must be so many.
func (f *freeList) take(blocks int32) {
	for blocks > 0 {
		at := f.spans[0].newer
		if at == 0 {
			panic("replay: more blocks were taken than are free")
		}
		s := &f.spans[at]
		if s.chunk != 0 {
			f.forget(s.chunk)
			s.chunk = 0
		}
		n := min(blocks, s.blocks)
		if s.owner != nil {
			s.owner.kept -= n
			f.changed()
		}
		s.blocks -= n
		blocks -= n
		if s.blocks > 0 {
			continue
		}
		if s.owner != nil {
			s.owner.remains = 0
		}
		f.remove(at)
	}
}

// plain is how many blocks may be taken before a chunk is forgotten, at least;
// it counts no more than enough.
func (f *freeList) plain(enough int32) int32 {
	n := int32(0)
	for at := f.spans[0].newer; at != 0 && f.spans[at].chunk == 0 && n < enough; at = f.spans[at].newer {
		n += f.spans[at].blocks
	}
	return n
}
