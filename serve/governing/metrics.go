package governing

import (
	"math/bits"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/kv"
)

// Log2Counts counts values by powers of two: entry i has those of at most 2^i that are in
// no entry before.
type Log2Counts struct {
	Counts [40]int64
	Sum    int64
}

func (p *Log2Counts) add(value int64) {
	value = max(0, value)
	i := 0
	if value > 1 {
		i = min(bits.Len64(uint64(value-1)), len(p.Counts)-1)
	}
	p.Counts[i]++
	p.Sum += value
}

func (p *Log2Counts) merge(other *Log2Counts) {
	for i, n := range other.Counts {
		p.Counts[i] += n
	}
	p.Sum += other.Sum
}

// decided is what decisions were like.
type decided struct {
	took, thinking, answering Log2Counts // took in nanoseconds
}

func (d *decided) add(took policy.Instant, of *governor.Decision) {
	d.took.add(int64(took))
	d.thinking.add(int64(of.Thinking))
	d.answering.add(int64(of.Answering))
}

// Metrics is what governors have seen and done, all of them together, those that are
// gone among them.
type Metrics struct {
	// Now: engines that are governed, their sequences, and of those the ones that wait
	// for their turn, in the answer or before it; blocks in use, and those that may be, in
	// bytes where their size is known.
	Engines, Tracked, WaitOutput, WaitThink int64
	UsedBytes, CapacityBytes                int64

	// Since the process began.
	Governor governor.Counters
	Blocks   block.Counters // its numbers of what has happened
	// Thoughts is how long thoughts were that have ended.
	Thoughts Log2Counts
	// Took is how long decisions took in nanoseconds; Thinking and Answering how many
	// sequences of each phase were in their order.
	Took, Thinking, Answering Log2Counts
	// Entropies that other connections measured, came after their tokens, had not come
	// when those were committed, and were of sequences that no scheduler told of.
	Measured, Late, Missed, Forgotten int64
	// DecidedLate are decisions that came too late for their engines, as those count them, and
	// FailedOpen how often engines went on by themselves.
	DecidedLate, FailedOpen int64
	// Refused sequences are not governed: there were too many, or they were too long.
	Refused int64
}

// add adds another's numbers; those of now only if they are wanted.
func (m *Metrics) add(o Metrics, now bool) {
	if now {
		m.Engines += o.Engines
		m.Tracked += o.Tracked
		m.WaitOutput += o.WaitOutput
		m.WaitThink += o.WaitThink
		m.UsedBytes += o.UsedBytes
		m.CapacityBytes += o.CapacityBytes
	}
	c, from := &m.Governor, &o.Governor
	c.Steps += from.Steps
	for i := range c.Forced {
		c.Forced[i] += from.Forced[i]
	}
	for i := range c.Preempted {
		c.Preempted[i] += from.Preempted[i]
	}
	c.CopiedBlocks += from.CopiedBlocks
	c.RecalledBlocks += from.RecalledBlocks
	c.FailedCopies += from.FailedCopies
	c.Contradictions += from.Contradictions
	c.Thoughts += from.Thoughts
	c.ThinkTokens += from.ThinkTokens
	c.Transitions += from.Transitions
	c.Reaped += from.Reaped
	for i := range m.Blocks.Evicted {
		m.Blocks.Evicted[i] += o.Blocks.Evicted[i]
	}
	m.Blocks.EvictedCached += o.Blocks.EvictedCached
	m.Thoughts.merge(&o.Thoughts)
	m.Took.merge(&o.Took)
	m.Thinking.merge(&o.Thinking)
	m.Answering.merge(&o.Answering)
	m.Measured += o.Measured
	m.Late += o.Late
	m.Missed += o.Missed
	m.Forgotten += o.Forgotten
	m.DecidedLate += o.DecidedLate
	m.FailedOpen += o.FailedOpen
	m.Refused += o.Refused
}

func (m *Metrics) addHeard(h *pendingEntropies) {
	m.Measured += h.measured
	m.Late += h.late
	m.Missed += h.missed
	m.Forgotten += h.forgotten
}

// metrics are those of one governor.
func (s *scheduler) metrics() Metrics {
	m := Metrics{
		Engines: 1, Governor: s.governor.Counters(), Took: s.decided.took, Thinking: s.decided.thinking, Answering: s.decided.answering, Refused: s.refused,
		DecidedLate: s.late.here, FailedOpen: s.opened.here,
	}
	m.Tracked = m.Governor.Sequences
	copy(m.Thoughts.Counts[:], m.Governor.Lengths[:])
	m.Thoughts.Sum = m.Governor.ThinkTokens
	if blocks, has := s.governor.Blocks(); has {
		m.Blocks, m.UsedBytes, m.CapacityBytes = blocks, blocks.UsedBytes, s.capacityBytes
	}
	s.views = s.governor.Views(s.views[:0])
	for i := range s.views {
		switch v := &s.views[i]; {
		case v.State == policy.Running:
		case v.Phase == kv.Output:
			m.WaitOutput++
		default:
			m.WaitThink++
		}
	}
	return m
}

// Metrics is what happened until now.
func (g *Governors) Metrics() Metrics {
	engines, m := g.all()
	for _, e := range engines {
		e.mutex.Lock()
		m.add(e.metrics(), true)
		e.mutex.Unlock()
	}
	return m
}

// metrics are those of an engine since it came.
func (e *engine) metrics() Metrics {
	m := e.past
	if e.scheduler != nil {
		m.add(e.scheduler.metrics(), true)
	}
	m.addHeard(e.heard)
	return m
}
