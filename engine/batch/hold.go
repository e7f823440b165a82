package batch

// Hold keeps blocks from being used again while the agent may still touch
// them, whatever becomes of the sequence that had them.
type Hold struct {
	blocks []uint32
}

// Blocks is which ones.
func (h *Hold) Blocks() []uint32 { return h.blocks }

// Hold keeps the first blocks of q's table, those of so many tokens.
func (s *Scheduler) Hold(q *Sequence, tokens int) *Hold {
	h := &Hold{blocks: append([]uint32(nil), q.blocks[:s.blocksFor(tokens)]...)}
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
