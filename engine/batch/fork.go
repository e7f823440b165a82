package batch

import "slices"

// Fork makes a sequence that goes on from q with other tokens, to see what would
// follow: it shares q's full blocks and computes what lies behind them, and extra,
// anew, in blocks of its own. Its Owner is the caller's to set.
//
// A fork is in no sequence's way. It is computed with what those that run leave of a
// step, unless an Order names it; it is no part of MaxRunning, but there are at
// most that many; its blocks are never named, so that no sequence finds them. None
// has to go for it: false means that there are no blocks to spare, or that q is
// not at the end of its text. When blocks run out, forks go first, and where one
// that waits finds no blocks, those that stand still go: a plan says which were
// Dropped. Otherwise the caller removes it when it has seen enough.
func (s *Scheduler) Fork(q *Sequence, extra ...uint32) (*Sequence, bool) {
	if q.state != Running || q.fork || q.missing() > 1 || len(s.forks) >= s.options.MaxRunning {
		return nil, false
	}
	length := len(q.Tokens) + len(extra)
	// As in place: the last token is computed, and not in a block that others read.
	shared := min(q.computed, length-1) / s.options.BlockTokens
	more := s.blocksFor(length) - shared
	if more+len(s.running) > s.pool.Available() {
		return nil, false
	}
	for _, b := range q.blocks[:shared] {
		s.pool.Share(b)
	}
	f := &Sequence{
		Tokens: slices.Concat(q.Tokens, extra), Prompt: q.Prompt, Root: q.Root, fork: true,
		state: Running, blocks: s.pool.Take(slices.Clone(q.blocks[:shared]), more), computed: shared * s.options.BlockTokens,
	}
	s.forks = append(s.forks, f)
	return f, true
}

// dropStanding removes forks of which nothing is planned: no sequence waits for blocks
// of one that may never be computed.
func (s *Scheduler) dropStanding(d *draft) {
	for _, f := range s.snapshot(s.forks) {
		if f.planned == 0 {
			s.Remove(f)
			d.Dropped = append(d.Dropped, f)
		}
	}
}
