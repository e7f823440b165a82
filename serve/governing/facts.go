package governing

import (
	"math"
	"slices"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
)

func bounded(n uint32) int32 { return int32(min(n, math.MaxInt32)) }

// read makes the governor's facts of a message. They hold until the next.
func (s *scheduler) read(m *doorpb.Step, e *engine) *governor.Facts {
	f := &s.facts
	*f = governor.Facts{
		Now: s.governors.now(), Took: policy.Instant(min(m.TookNs, math.MaxInt64)), FreeBlocks: s.freeBlocks(m.FreeBlocks),
		FabricDown: m.StoreDown || !s.swaps,
		Arrivals:   f.Arrivals[:0], Held: f.Held[:0], Evicted: f.Evicted[:0], Commits: f.Commits[:0], Forks: f.Forks[:0],
		Ended: f.Ended[:0], Stopped: f.Stopped[:0], Copied: f.Copied[:0], Recalled: f.Recalled[:0],
	}
	for _, b := range m.Begun {
		s.begin(b, e)
	}
	s.commits(m, e)
	for _, b := range m.Evicted {
		f.Evicted = append(f.Evicted, block.ID(b))
	}
	for i, number := range m.Forked {
		f.Forks = append(f.Forks, governor.Fork{Sequence: phase.Sequence(number), Nats: float64(m.ForkNats[i])})
	}
	for _, number := range m.Finished {
		if !s.strange(phase.Sequence(number)) {
			f.Ended = append(f.Ended, phase.Sequence(number))
		}
	}
	for _, stopped := range m.Stopped {
		f.Stopped = append(f.Stopped, governor.Stopped{Sequence: phase.Sequence(stopped.GetSequence()), Lost: stopped.GetLost()})
	}
	s.copies(m)
	return f
}

// keptFacts of a kind, which is more than most steps have, keep their memory from step to
// step. That of the largest step ever would stay for as long as its engine.
const keptFacts = 4 << 10

func kept[T any](facts []T) []T {
	if cap(facts) > keptFacts {
		return nil
	}
	clear(facts) // what they point to belongs to the message
	return facts[:0]
}

// lighten gives up memory that most steps do not need.
func (s *scheduler) lighten() {
	f := &s.facts
	*f = governor.Facts{
		Arrivals: kept(f.Arrivals), Held: kept(f.Held), Evicted: kept(f.Evicted), Commits: kept(f.Commits), Forks: kept(f.Forks),
		Ended: kept(f.Ended), Stopped: kept(f.Stopped), Copied: kept(f.Copied), Recalled: kept(f.Recalled),
	}
	s.nats, s.ids, s.events = kept(s.nats), kept(s.ids), kept(s.events)
}

// freeBlocks is what the engine says, less what kv_memory.capacity_bytes leaves out.
// One that tells nothing of its blocks has plenty.
func (s *scheduler) freeBlocks(told uint32) int32 {
	if s.blocks == 0 {
		s.tellsFree = s.tellsFree || told > 0
		if !s.tellsFree {
			return plenty
		}
		return int32(min(told, plenty))
	}
	return max(0, int32(min(told, uint32(s.blocks)))-(s.blocks-s.capacity))
}

// begin takes a sequence that has come.
func (s *scheduler) begin(b *doorpb.Begun, e *engine) {
	number := phase.Sequence(b.GetSequence())
	if len(s.sequences) >= maxSequences || b.GetPromptTokens() > maxTokens {
		s.refused++
		return
	}
	a := governor.Arrival{
		Sequence: number, At: s.facts.Now,
		Prompt: phase.Prompt{Tokens: b.GetTail()}, PromptTokens: int32(b.GetPromptTokens()), MaxThinkTokens: bounded(b.GetMaxThinkTokens()),
		Cached: min(bounded(b.GetCachedTokens()), max(0, int32(b.GetPromptTokens())-1)),
	}
	a.Shared = min(bounded(b.GetSharedBlocks()), (a.Cached+s.blockTokens-1)/s.blockTokens)
	if len(b.GetGenerated()) > 0 {
		a.Resumed = s.carry(&a, b.GetGenerated())
	}
	known := s.sequences[number]
	if known != nil {
		a.Tenant = known.tenant // the governor will say that it is there already
	} else {
		a.Tenant = s.tenants.join(b.GetTenant(), s.governor.ForgetTenant)
	}
	s.facts.Arrivals = append(s.facts.Arrivals, a)
	if known == nil {
		s.sequences[number] = &sequence{id: b.GetId(), tenant: a.Tenant, generated: uint32(len(b.GetGenerated())), resumed: a.Resumed != nil}
		e.heard.meet(number)
	}
}

// carry is the phase of a sequence that goes on here, found from what it has written so
// far, and how long its thought may be in all.
func (s *scheduler) carry(a *governor.Arrival, generated []uint32) *governor.ResumeState {
	machine := s.model.Begin(a.Prompt)
	s.events = machine.Step(generated, s.events[:0])
	return &governor.ResumeState{Phase: machine.Export(), Limit: s.budget.Cap(a.MaxThinkTokens)}
}

// commits takes what a step did for each sequence.
func (s *scheduler) commits(m *doorpb.Step, e *engine) {
	f, tokens, blocks := &s.facts, m.Tokens, m.Blocks
	s.nats = slices.Grow(s.nats[:0], len(m.Tokens))[:0]
	nats, computed := m.Entropies, int64(0)
	for i, number := range m.Sequences {
		c := governor.Commit{Sequence: phase.Sequence(number)}
		if i < len(m.Computed) {
			c.Computed = bounded(m.Computed[i])
		}
		if c.Computed > 0 {
			computed += int64(c.Computed)
			f.Sequences++
		}
		if i < len(m.Counts) {
			count := m.Counts[i]
			c.Tokens, tokens = tokens[:count:count], tokens[count:]
			if len(nats) > 0 {
				c.Entropies, nats = s.own(nats[:count]), nats[count:]
			} else if e.measures > 0 && s.listens && count > 0 {
				c.Entropies = s.elsewhere(c.Sequence, count, e)
			}
			s.note(&c)
		}
		var held []uint32
		if i < len(m.BlockCounts) {
			held, blocks = blocks[:m.BlockCounts[i]], blocks[m.BlockCounts[i]:]
		}
		if s.strange(c.Sequence) {
			continue
		}
		f.Commits = append(f.Commits, c)
		for _, b := range held {
			f.Held = append(f.Held, governor.Hold{Sequence: c.Sequence, Block: block.ID(b)})
		}
	}
	f.Computed = int32(min(computed, math.MaxInt32))
}

// own is entropies that came with their tokens.
func (s *scheduler) own(nats []float32) []float64 {
	from := len(s.nats)
	for _, n := range nats {
		s.nats = append(s.nats, float64(n))
	}
	return s.nats[from:len(s.nats):len(s.nats)]
}

// elsewhere is the entropies of a sequence's next tokens that other connections
// measured, as far as they have come. Only those of a thought are missed.
func (s *scheduler) elsewhere(number phase.Sequence, count uint32, e *engine) []float64 {
	sequence := s.sequences[number]
	if sequence == nil {
		return nil
	}
	places, from := e.heard.bySequence[number], len(s.nats)
	for j := range count {
		n := places.take(sequence.generated + j)
		if math.IsNaN(n) && s.governor.Thinks(number) {
			e.heard.missed++
		}
		s.nats = append(s.nats, n)
	}
	return s.nats[from:len(s.nats):len(s.nats)]
}

// copies takes the ends of copies. Their blocks are in one piece of memory, which is
// large enough before the first is in it.
func (s *scheduler) copies(m *doorpb.Step) {
	n := 0
	for _, all := range [2][]*doorpb.Copied{m.Copied, m.Recalled} {
		for _, c := range all {
			n += len(c.GetBlocks())
		}
	}
	s.ids = slices.Grow(s.ids[:0], n)
	for _, c := range m.Copied {
		s.facts.Copied = append(s.facts.Copied, governor.Copied{Sequence: phase.Sequence(c.GetSequence()), Blocks: s.named(c.GetBlocks()), Took: policy.Instant(min(c.GetTookNs(), math.MaxInt64)), Whole: c.GetWhole()})
	}
	for _, c := range m.Recalled {
		s.facts.Recalled = append(s.facts.Recalled, governor.Recalled{Sequence: phase.Sequence(c.GetSequence()), Blocks: s.named(c.GetBlocks()), Took: policy.Instant(min(c.GetTookNs(), math.MaxInt64)), Whole: c.GetWhole()})
	}
}

func (s *scheduler) named(blocks []uint32) []block.ID {
	from := len(s.ids)
	for _, b := range blocks {
		s.ids = append(s.ids, block.ID(b))
	}
	return s.ids[from:len(s.ids):len(s.ids)]
}
