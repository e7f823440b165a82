package replay

import (
	"meridian/decide/policy"
	"meridian/kv"
)

// series is the cell over time, at equal distances. When there are too many
// samples, every other one is dropped.
type series struct {
	every, next ps
	samples     []Sample
}

const maxSamples = 512

// sample looks at the cell at t, between steps.
func (c *cell) sample(t ps) {
	c.settle(t + 1)
	at := Sample{Seconds: t.seconds()}
	for _, e := range c.engines {
		at.Waiting += int32(e.backlog.size)
		at.KVFree += e.snap.FreeBlocks
		for i := range e.snap.Requests {
			at.count(&e.snap.Requests[i])
		}
	}
	s := &c.series
	s.samples = append(s.samples, at)
	s.next = t + s.every
	if len(s.samples) < maxSamples {
		return
	}
	for i := range maxSamples / 2 {
		s.samples[i] = s.samples[2*i+1]
	}
	s.samples = s.samples[:maxSamples/2]
	s.next, s.every = t+2*s.every, 2*s.every
}

func (s *Sample) count(r *policy.Request) {
	holds := r.Blocks
	switch r.State {
	case policy.Waiting:
		s.Waiting++
		return
	case policy.Away:
		s.Away++
		return
	case policy.Leaving, policy.Recalling:
		s.Away++
	default:
		switch r.Phase {
		case kv.Prefill:
			s.Prefill++
		case kv.Think:
			s.Think++
		default:
			s.Output++
		}
	}
	switch r.Phase {
	case kv.Prefill:
		s.KVPrefill += holds
	case kv.Think:
		s.KVThink += holds
	default:
		s.KVOutput += holds
	}
}
