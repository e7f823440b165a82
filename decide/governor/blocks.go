package governor

import (
	"fmt"
	"slices"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

// copyRequest is a block of a finished thought that is to be copied out, unless the sequence has
// given its blocks up since.
type copyRequest struct {
	sequence phase.Sequence
	block    block.ID
	given    int // how often the sequence had given them up
}

// blockFacts takes what engines did to blocks: copies first, since they free
// what others hold next.
func (g *Governor) blockFacts(f *Facts) {
	if g.blocks == nil {
		return
	}
	each(g, f.Copied, g.copied)
	g.leaveAll()
	each(g, f.Evicted, g.evicted)
	each(g, f.Recalled, g.recalled)
	each(g, f.Held, g.hold)
}

// evicted takes a block that the engine gave up. One of which a copy was asked for is given
// up by an engine that has not heard of it yet: what it says of that copy later is about
// what the block held before.
func (g *Governor) evicted(b *block.ID) error {
	if location, err := g.blocks.Location(*b); err == nil && location == block.Leaving {
		if _, err := g.blocks.CopiedOut(*b, false); err != nil {
			return err
		}
		g.outdated[*b]++
	}
	if location, err := g.blocks.Location(*b); err == nil && location == block.Vacant {
		return nil // it held nothing that could be found again
	}
	err := g.blocks.Evict(*b)
	return err
}

// hold gives a sequence its next block; the one before is full.
func (g *Governor) hold(h *Hold) error {
	s := g.byNumber[h.Sequence]
	if s == nil {
		return fmt.Errorf("%w: %w: %d holds block %d", ErrContradiction, phase.ErrUnknown, h.Sequence, h.Block)
	}
	r := g.request(s)
	tier := kv.OutputCritical
	if r.Phase == kv.Think {
		tier = kv.ThinkActive
	}
	if err := g.blocks.Hold(s.holder, h.Block, tier); err != nil {
		return err
	}
	if s.holds {
		g.contradicted(g.blocks.Seal(s.last))
	} else {
		r.Blocks = 0 // what it was to share it holds from here on
	}
	s.last, s.holds = h.Block, true
	r.Blocks++
	if r.State == policy.Waiting && !s.going {
		r.State = policy.Running
		g.standing(s, r)
	}
	return nil
}

// demote makes the blocks of a thought those of a finished one. They wait for a
// batch to be copied out in.
func (g *Governor) demote(s *sequence) {
	if g.blocks == nil {
		return
	}
	var err error
	g.ids, err = g.blocks.Demote(s.holder, g.ids[:0])
	g.contradicted(err)
	if !g.options.Offloads || !g.calibration.WorthCopying() {
		return
	}
	for _, b := range g.ids {
		g.waiting = append(g.waiting, copyRequest{s.number, b, s.given})
	}
}

// copyOut asks for copies of finished thoughts, in batches, and not for more than
// the link carries soon. A batch that is too small waits for the next thought.
func (g *Governor) copyOut() {
	if g.unwished {
		g.unwished = false
		g.waiting = slices.DeleteFunc(g.waiting, func(w copyRequest) bool {
			s := g.byNumber[w.sequence]
			return s == nil || s.given != w.given
		})
	}
	batch := g.options.OffloadThreshold
	room := g.calibration.Ahead(batch) - g.underWay
	if g.calibration.FabricDown || int32(len(g.waiting)) < batch || room < batch {
		return
	}
	n := min(len(g.waiting), int(room))
	for _, w := range g.waiting[:n] {
		g.ask(g.byNumber[w.sequence], w.block)
	}
	g.waiting = slices.Delete(g.waiting, 0, n)
}

// unwish forgets blocks that a sequence has no more: others will have them. The wishes of
// all are looked through once in a step, however many are forgotten.
func (g *Governor) unwish(s *sequence) {
	s.given++
	g.unwished = true
}

// ask asks for a copy of one block, unless there is one or it is on its way.
func (g *Governor) ask(s *sequence, b block.ID) bool {
	if location, err := g.blocks.Location(b); err != nil || location != block.Here {
		return false
	}
	if err := g.blocks.CopyOut(b); err != nil {
		g.contradicted(err)
		return false
	}
	g.underWay++
	d := &g.decision
	if n := len(d.CopyOut); n == 0 || d.CopyOut[n-1].Sequence != s.number {
		d.CopyOut = append(d.CopyOut, CopyOut{Sequence: s.number})
	}
	last := &d.CopyOut[len(d.CopyOut)-1]
	last.Blocks = append(last.Blocks, b)
	return true
}

// copied is the end of a copy.
func (g *Governor) copied(c *Copied) error {
	if c.Whole {
		g.calibration.CopiedOut(c.Took, int32(len(c.Blocks)))
		g.counters.CopiedBlocks += int64(len(c.Blocks))
	} else {
		g.counters.FailedCopies += int64(len(c.Blocks))
	}
	s := g.byNumber[c.Sequence]
	each(g, c.Blocks, func(b *block.ID) error { // some have been copied, whatever is said of others
		if n := g.outdated[*b]; n > 0 {
			if g.outdated[*b] = n - 1; n == 1 {
				delete(g.outdated, *b)
			}
			g.underWay--
			return nil
		}
		there, err := g.blocks.CopiedOut(*b, c.Whole)
		if err != nil {
			return err
		}
		g.underWay--
		if s != nil && there {
			r := g.request(s)
			r.Copied = min(r.Copied+1, r.Blocks) // it may have given up since what was copied
		}
		return nil
	})
	if s == nil || g.request(s).State != policy.Leaving {
		return nil
	}
	if !c.Whole {
		g.request(s).State = policy.Paused // it keeps what it has; the policy will see
		g.away(s, g.request(s))
		return nil
	}
	g.mayLeave(s)
	return nil
}

// mayLeave notes a sequence that stopped, or of which blocks were copied. Many facts of a
// step may say so of one sequence, and what it lacks is looked for once.
func (g *Governor) mayLeave(s *sequence) {
	if !s.leaves {
		s.leaves = true
		g.leaving = append(g.leaving, s)
	}
}

// leaveAll has those leave of whom copies and stops were told, and that are to leave still.
func (g *Governor) leaveAll() {
	for i, s := range g.leaving {
		s.leaves, g.leaving[i] = false, nil
		if r := g.request(s); r.State == policy.Leaving {
			g.leave(s, r)
		}
	}
	g.leaving = g.leaving[:0]
}

// leave asks for the copies that a sequence lacks, and frees its blocks when it
// lacks none.
func (g *Governor) leave(s *sequence, r *policy.Request) {
	g.contradicted(g.blocks.SetState(s.holder, block.Paused))
	var err error
	g.held, err = g.blocks.Of(s.holder, g.held[:0])
	g.contradicted(err)
	lacks := false
	for _, h := range g.held {
		switch h.Location {
		case block.Here:
			lacks = g.ask(s, h.Block) || lacks
		case block.Leaving:
			lacks = true
		}
	}
	if lacks {
		return
	}
	for _, h := range g.held {
		if h.Location == block.Both {
			g.evict(h.Block)
		}
	}
	g.away(s, r)
}

// evict frees a block, unless others need it: then it stays.
func (g *Governor) evict(b block.ID) {
	if err := g.blocks.Evict(b); err == nil {
		g.decision.Evict = append(g.decision.Evict, b)
	}
}

// away makes a sequence one that is to be recalled, if blocks of it are elsewhere.
func (g *Governor) away(s *sequence, r *policy.Request) {
	elsewhere, err := g.blocks.Elsewhere(s.holder)
	g.contradicted(err)
	switch {
	case elsewhere > 0:
		r.State, r.Blocks = policy.Away, int32(elsewhere)
		g.unwish(s)
	case r.State == policy.Leaving:
		r.State = policy.Paused // others hold all of them: nothing was gained
	}
}

// evictDue frees blocks of finished thoughts that should not wait for pressure. Who waits
// and held a block that went in this step is away from now on, whichever request it went for.
func (g *Governor) evictDue() {
	if g.blocks == nil {
		return
	}
	if due := g.blocks.Due(); due > 0 && !g.calibration.FabricDown {
		g.ids = g.blocks.Victims(g.ids[:0], due)
		for _, b := range g.ids {
			g.evict(b)
		}
	}
	if len(g.decision.Evict) == 0 {
		return
	}
	for i, s := range g.sequences {
		if r := &g.snapshot.Requests[i]; r.State == policy.Paused {
			g.away(s, r)
		}
	}
}

// recalled has a sequence's blocks back, or gives them up.
func (g *Governor) recalled(c *Recalled) error {
	s := g.byNumber[c.Sequence]
	if s == nil || g.request(s).State != policy.Recalling && g.request(s).State != policy.Away { // an engine that no longer waits for the governor brings it back unasked
		return fmt.Errorf("%w: blocks of sequence %d are back, which the governor did not recall", ErrContradiction, c.Sequence)
	}
	r := g.request(s)
	if !c.Whole {
		g.counters.FailedCopies += int64(len(c.Blocks))
		g.recompute(s, r)
		return nil
	}
	g.calibration.Recalled(c.Took, int32(len(c.Blocks)))
	g.counters.RecalledBlocks += int64(len(c.Blocks))
	if err := g.place(s, c.Blocks); err != nil {
		g.recompute(s, r)
		return err
	}
	r.State, r.Blocks, r.Copied = policy.Paused, int32(len(g.held)), max(0, int32(len(g.held))-1) // the last is written on
	return nil
}

// place puts what a sequence holds elsewhere into blocks.
func (g *Governor) place(s *sequence, blocks []block.ID) error {
	var err error
	if g.held, err = g.blocks.Of(s.holder, g.held[:0]); err != nil {
		return err
	}
	for _, h := range g.held {
		s.last = h.Block
		if h.Location != block.Elsewhere {
			continue
		}
		if len(blocks) == 0 {
			return fmt.Errorf("%w: sequence %d got fewer blocks back than it had", ErrContradiction, s.number)
		}
		s.last, blocks = blocks[0], blocks[1:]
		if err := g.blocks.Recall(h, s.last); err != nil {
			return err
		}
		if location, _ := g.blocks.Location(s.last); location != block.Arriving {
			continue // another that shares it has it back already
		}
		if err := g.blocks.Arrived(s.last, true); err != nil {
			return err
		}
	}
	s.holds = len(g.held) > 0
	return nil
}

// standing tells the block table what a sequence does.
func (g *Governor) standing(s *sequence, r *policy.Request) {
	if g.blocks == nil {
		return
	}
	if s.going {
		return // a step may still touch its blocks
	}
	state := block.Running
	if r.State != policy.Running {
		state = block.Paused
	}
	if is, err := g.blocks.State(s.holder); err == nil && is != state {
		g.contradicted(g.blocks.SetState(s.holder, state))
	}
}
