package governing

import (
	"math"

	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/serve/door/doorpb"
)

const (
	// window is how far apart the places of a sequence may be whose entropies wait for
	// their tokens: many times what a step commits.
	window = 256
	// maxStrangers are sequences that were measured and that the scheduler has not told
	// of: it is late, or they have ended. The oldest are forgotten.
	maxStrangers = 1 << 10
)

// pendingEntropies is what connections that measure have told and no commit has taken.
type pendingEntropies struct {
	bySequence map[phase.Sequence]*entropyRing
	// strangers has those of which no scheduler told, the oldest first, and some that
	// it has told of since.
	strangers []phase.Sequence

	measured, late, missed, forgotten int64
}

func newHeard() *pendingEntropies {
	return &pendingEntropies{bySequence: make(map[phase.Sequence]*entropyRing)}
}

// entropyRing are entropies of one sequence by their places: that of place p is in entry p
// modulo window, if at has p+1 there.
type entropyRing struct {
	at    [window]uint32
	nats  [window]float32
	known bool // the scheduler has told of the sequence
	// forced is why its thought is ended, told before the scheduler told of it.
	forced governor.ForceReason
}

func (p *entropyRing) put(place uint32, nats float32) {
	if place < math.MaxUint32 {
		p.at[place%window], p.nats[place%window] = place+1, nats
	}
}

// take is the entropy of a place, NaN if it has not come.
func (p *entropyRing) take(place uint32) float64 {
	if p == nil || place == math.MaxUint32 || p.at[place%window] != place+1 {
		return math.NaN()
	}
	return float64(p.nats[place%window])
}

// of is where entropies of a sequence go; known says whether the scheduler has told of
// it.
func (h *pendingEntropies) of(s phase.Sequence, known bool) *entropyRing {
	p := h.bySequence[s]
	if p == nil {
		p = &entropyRing{known: known}
		h.bySequence[s] = p
		if !known {
			h.strange(s)
		}
	}
	return p
}

func (h *pendingEntropies) strange(s phase.Sequence) {
	h.strangers = append(h.strangers, s)
	if len(h.strangers) <= 2*maxStrangers {
		return
	}
	for _, oldest := range h.strangers[:maxStrangers] {
		if p := h.bySequence[oldest]; p != nil && !p.known {
			delete(h.bySequence, oldest)
			h.forgotten++
		}
	}
	h.strangers = append(h.strangers[:0], h.strangers[maxStrangers:]...)
}

// meet says that the scheduler has told of a sequence.
func (h *pendingEntropies) meet(s phase.Sequence) {
	if p := h.bySequence[s]; p != nil {
		p.known = true
	}
}

// forced is why the thought of a sequence is ended that was told of only now.
func (h *pendingEntropies) forced(s phase.Sequence) governor.ForceReason {
	if p := h.bySequence[s]; p != nil {
		return p.forced
	}
	return governor.Free
}

func (h *pendingEntropies) forget(s phase.Sequence) { delete(h.bySequence, s) }

// measured takes entropies. Of tokens that were committed before they count as late.
func (e *engine) measured(m *doorpb.Step) {
	nats := m.Entropies
	for i, number := range m.Sequences {
		if i >= len(m.Counts) || i >= len(m.Places) {
			return // nothing was measured
		}
		of := nats[:m.Counts[i]]
		nats = nats[m.Counts[i]:]
		var s *sequence
		if e.scheduler != nil {
			s = e.scheduler.sequences[phase.Sequence(number)]
		}
		e.heard.measured += int64(len(of))
		place := uint64(m.Places[i])
		if s != nil && place < uint64(s.generated) {
			late := min(uint64(len(of)), uint64(s.generated)-place)
			e.heard.late += int64(late)
			of, place = of[late:], place+late
		}
		if len(of) == 0 {
			continue
		}
		p := e.heard.of(phase.Sequence(number), s != nil)
		for j, n := range of {
			p.put(uint32(min(place+uint64(j), math.MaxUint32)), n)
		}
	}
}

// forcedElsewhere takes whose thoughts are ended where they are measured.
func (e *engine) forcedElsewhere(m *doorpb.Step) {
	for i, told := range m.Forced {
		number, reason := phase.Sequence(told), forcedFor(m.ForcedFor[i])
		switch {
		case reason == governor.Free: // a newer engine's
		case e.scheduler != nil && e.scheduler.sequences[number] != nil:
			e.scheduler.forced(number, reason)
		default:
			if p := e.heard.of(number, false); p.forced == governor.Free {
				p.forced = reason
			}
		}
	}
}

func forcedFor(reason doorpb.ForceReason) governor.ForceReason {
	switch reason {
	case doorpb.ForceReason_FORCE_REASON_CONVERGED:
		return governor.Converged
	case doorpb.ForceReason_FORCE_REASON_OVERTHINKING:
		return governor.Overthinking
	case doorpb.ForceReason_FORCE_REASON_HARD_CAP:
		return governor.HardCap
	}
	return governor.Free
}
