package batch

// Hold keeps blocks from being used again while the agent may still touch
// them, whatever becomes of the sequence that had them.
type Hold struct {
	blocks []uint32
	tokens int
}

// Blocks is which ones.
func (h *Hold) Blocks() []uint32 { return h.blocks }

// Hold keeps the cache of q's first tokens: so many, or all that is computed if that
// is less, of its prompt or of its answer, and whether q runs on or ends. What is
// computed is never written again, so it does not change while it is held. The last
// block may be full only in part: q, if it runs on, then writes behind the held
// tokens in the same block, and the agent that reads the block must not look there.
func (s *Scheduler) Hold(q *Sequence, tokens int) *Hold { return s.hold(q, min(tokens, q.computed)) }

// HoldAhead keeps the blocks of q's first tokens, computed or not: q goes on to write
// them, and the agent that reads them goes by what is told to be computed.
func (s *Scheduler) HoldAhead(q *Sequence, tokens int) *Hold { return s.hold(q, tokens) }

func (s *Scheduler) hold(q *Sequence, tokens int) *Hold {
	h := &Hold{blocks: append([]uint32(nil), q.blocks[:s.blocksFor(tokens)]...), tokens: tokens}
	for _, b := range h.blocks {
		s.pool.Share(b)
		if s.holds[b]++; s.holds[b] == 1 {
			s.held++
		}
	}
	return h
}

// Release ends a hold. It must be released once.
func (s *Scheduler) Release(h *Hold) {
	for _, b := range h.blocks {
		if s.holds[b]--; s.holds[b] == 0 {
			s.held--
		}
	}
	s.pool.ReleaseAll(h.blocks)
	h.blocks = nil
}
