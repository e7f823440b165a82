package governor

import (
	"math/bits"

	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

// View is a sequence as it stands, for people.
type View struct {
	Sequence              phase.Sequence
	Arrived               policy.Instant
	Phase                 kv.Phase
	State                 policy.State
	Prompt, Think, Output int32
	// Limit is the longest that its thought may be, Forced why it was ended.
	Limit  int32
	Forced ForceReason
	// Preemptions is how often it lost its blocks. Stopped: when it last had to stop, the
	// policy had chosen it, for Reason; else others only came first.
	Preemptions int32
	Stopped     bool
	Reason      policy.Reason
}

// Views appends all sequences, in the order of arrival.
func (g *Governor) Views(to []View) []View {
	for i, s := range g.sequences {
		r := &g.snapshot.Requests[i]
		v := View{
			Sequence: s.number, Arrived: r.Arrived, Phase: r.Phase, State: r.State, Prompt: r.Prompt, Think: r.Think, Output: r.Output,
			Limit: s.thought.limit, Forced: s.forced, Preemptions: r.Preemptions,
			Stopped: s.chosen, Reason: s.victim.Reason,
		}
		to = append(to, v)
	}
	return to
}

// ThoughtLengths counts thoughts by their length: entry i has those of at most 2^i
// tokens that are in no entry before.
type ThoughtLengths [32]int64

func (l *ThoughtLengths) add(tokens int32) {
	if tokens > 0 {
		l[bits.Len32(uint32(tokens-1))]++
	}
}

// ForgetTenant has a tenant without sequences begin as one that never was here.
func (g *Governor) ForgetTenant(tenant int32) {
	if int(tenant) < len(g.snapshot.Tenants) && g.snapshot.Tenants[tenant].Here == 0 {
		g.snapshot.Tenants[tenant] = policy.Tenant{}
	}
}

// Thinks says whether a sequence is in its thought.
func (g *Governor) Thinks(number phase.Sequence) bool {
	s := g.byNumber[number]
	return s != nil && g.request(s).Phase == kv.Think
}
