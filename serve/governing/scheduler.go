package governing

import (
	"fmt"
	"math"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
	"meridian/serve/door/doorpb"
)

// scheduler is the governor of an engine, and what is known beside it. Its engine's
// mutex guards it.
type scheduler struct {
	governors *Governors
	governor  *governor.Governor
	model     *phase.Model
	budget    governor.Budget
	about     string // the model's name
	policy    string
	since     policy.Instant
	// listens: entropies count; ends: something ends thoughts of the model; swaps: copies can be made; remembers: an order
	// that stays is not told again.
	listens, ends, swaps, forces, remembers bool
	// blocks is how many the engine told, 0 for none, and capacity how many may be used.
	blocks, capacity int32
	blockTokens      int32
	capacityBytes    int64 // 0: what a block takes is not known
	tellsFree        bool

	sequences map[phase.Sequence]*sequence
	tenants   tenants
	refused   int64 // sequences that are not governed
	decided   decided
	running   uint32 // as the engine tells
	waiting   uint32
	late      counterDelta // decisions that came too late for it
	opened    counterDelta // how often it went on by itself

	facts  governor.Facts
	nats   []float64
	ids    []block.ID
	events []phase.Event
	views  []governor.View
	// Of the last decision.
	order       []uint64
	orderTokens []uint32
}

// sequence is what is known of one that its governor does not ask for.
type sequence struct {
	id        string
	tenant    int32
	generated uint32 // tokens, elsewhere and here
	resumed   bool
	// Of its entropies, the last and the sum of so many.
	last, sum float64
	measured  int64
	// act is the last thing that was decided about it, at so much.
	act string
	at  policy.Instant
}

func newScheduler(g *Governors, made *governor.Governor, o governor.Options, about *doorpb.Steps, m Model) *scheduler {
	if m.Phase == nil {
		m.Phase, _ = phase.NewModel(phase.Markers{}) // one without thoughts, which is always sound
	}
	return &scheduler{
		governors: g, governor: made, model: m.Phase, budget: o.Budget, about: about.Model, policy: o.Policy.Name(), since: g.now(),
		listens: o.Budget.Entropy && m.Phase.Thinks(), ends: len(m.Phase.Force()) > 0, swaps: o.Offloads, forces: !o.Follows, remembers: about.Remembers,
		blocks: int32(o.Blocks.Blocks), capacity: int32(o.Blocks.Capacity), blockTokens: o.Limits.BlockTokens, capacityBytes: int64(o.Blocks.Capacity) * o.Blocks.BlockBytes,
		sequences: make(map[phase.Sequence]*sequence),
	}
}

// step takes a message, and decides.
func (s *scheduler) step(m *doorpb.Step, e *engine) (*doorpb.Decision, error) {
	s.running, s.waiting = m.Running, m.Waiting
	s.late.take(m.Late)
	s.opened.take(m.FailedOpen)
	f := s.read(m, e)
	d := s.governor.Step(f)
	s.decided.add(s.governors.now()-f.Now, d)
	out := s.say(m.Number, f.Now, d)
	for i := range f.Arrivals {
		if number := f.Arrivals[i].Sequence; s.governor.Phase(number) == kv.Complete {
			s.forget(number, e) // the governor did not take it
		} else if reason := e.heard.forced(number); reason != governor.Free {
			s.forced(number, reason)
		}
	}
	for _, number := range f.Ended {
		s.forget(number, e)
	}
	for _, number := range d.Reaped {
		s.forget(number, e)
	}
	s.lighten()
	if d.Contradictions > governor.MaxContradictions {
		return nil, fmt.Errorf("%w: more than %d facts of a step contradict what was told before, the last: %w; begin anew, with all sequences that there are", ErrSteps, governor.MaxContradictions, s.governor.Counters().LastContradiction)
	}
	return out, nil
}

// strange says that the governor knows nothing of a sequence because it was not taken:
// the engine tells of it all the same.
func (s *scheduler) strange(number phase.Sequence) bool {
	return s.refused > 0 && s.sequences[number] == nil
}

func (s *scheduler) forget(number phase.Sequence, e *engine) {
	if sequence := s.sequences[number]; sequence != nil {
		s.tenants.leave(sequence.tenant)
	}
	delete(s.sequences, number)
	e.heard.forget(number)
}

// note keeps what people ask for of a commit.
func (s *scheduler) note(c *governor.Commit) {
	sequence := s.sequences[c.Sequence]
	if sequence == nil {
		return
	}
	sequence.generated += uint32(min(len(c.Tokens), math.MaxInt32))
	for _, n := range c.Entropies {
		if n >= 0 && n < 64 { // else it is none, as probe has it
			sequence.last = n
			sequence.sum += n
			sequence.measured++
		}
	}
}

// say makes a message of a decision. Its order holds until the next.
func (s *scheduler) say(step uint64, now policy.Instant, d *governor.Decision) *doorpb.Decision {
	out := &doorpb.Decision{Step: step, Steps: s.holds(now, d)}
	if s.remembers && s.stays(d.Order) {
		out.OrderStays = true
	} else {
		s.order, s.orderTokens = s.order[:0], s.orderTokens[:0]
		for _, run := range d.Order {
			s.order, s.orderTokens = append(s.order, uint64(run.Sequence)), append(s.orderTokens, uint32(run.Tokens))
		}
		out.Order, out.OrderTokens = s.order, s.orderTokens
	}
	out.Pause, out.Resume = s.told(now, "pause", d.Pause), s.told(now, "resume", d.Resume)
	out.Fork, out.Recall = s.told(now, "fork", d.Fork), s.told(now, "recall", d.Recall)
	for _, f := range d.Force {
		if s.forces {
			out.Force = append(out.Force, &doorpb.Force{Sequence: uint64(f.Sequence), Tokens: f.Tokens, Reason: f.Reason.String()})
			s.acted(now, "force", f.Sequence)
		}
	}
	for _, c := range d.CopyOut {
		out.CopyOut = append(out.CopyOut, &doorpb.CopyOut{Sequence: uint64(c.Sequence), Blocks: numbers(c.Blocks)})
		s.acted(now, "copy_out", c.Sequence)
	}
	out.Evict = numbers(d.Evict)
	for _, p := range d.Preempt {
		out.Preempt = append(out.Preempt, &doorpb.Preempt{Sequence: uint64(p.Sequence), Swap: p.Reclaim == policy.Offload, Reason: p.Reason.String()})
		s.acted(now, "preempt", p.Sequence)
	}
	for _, number := range d.Reaped {
		out.Forgotten = append(out.Forgotten, uint64(number))
	}
	return out
}

// stays says whether an order is the one that was told last.
func (s *scheduler) stays(order []governor.Allotment) bool {
	if len(order) != len(s.order) {
		return false
	}
	for i, run := range order {
		if uint64(run.Sequence) != s.order[i] || uint32(run.Tokens) != s.orderTokens[i] {
			return false
		}
	}
	return true
}

// holds is for how many steps an order holds. Where it ends at a moment, that is as many
// steps as there will be until then.
func (s *scheduler) holds(now policy.Instant, d *governor.Decision) uint32 {
	steps := policy.Instant(d.Steps)
	if d.Until > 0 {
		steps = min(steps, (d.Until-now)/max(1, s.governor.Costs().Step))
	}
	return uint32(max(1, steps))
}

func (s *scheduler) told(now policy.Instant, act string, of []phase.Sequence) []uint64 {
	if len(of) == 0 {
		return nil
	}
	out := make([]uint64, len(of))
	for i, number := range of {
		out[i] = uint64(number)
		s.acted(now, act, number)
	}
	return out
}

// forced takes that the thought of a sequence is ended where its logits are.
func (s *scheduler) forced(number phase.Sequence, reason governor.ForceReason) {
	if s.governor.Forced(number, reason) {
		s.acted(s.governors.now(), "force", number)
	}
}

func (s *scheduler) acted(now policy.Instant, act string, number phase.Sequence) {
	if sequence := s.sequences[number]; sequence != nil {
		sequence.act, sequence.at = act, now
	}
}

func numbers(blocks []block.ID) []uint32 {
	if len(blocks) == 0 {
		return nil
	}
	out := make([]uint32, len(blocks))
	for i, b := range blocks {
		out[i] = uint32(b)
	}
	return out
}
