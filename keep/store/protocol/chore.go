package protocol

import (
	"fmt"

	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// chore is a step of what takes longer than one event may, and says whether it was the last.
type chore func(now kv.Instant) (effects []Effect, over bool)

// chores are what an owner is in the middle of, with other events between the steps.
type chores struct {
	// order is the master's last one; it waits for no other.
	order chore
	// requests are of clients, which take their turns.
	requests []chore
	asked    bool // for Continue
}

// command begins an order of the master, in the place of the one before.
func (s *Server) command(now kv.Instant, order chore) (effects []Effect) {
	effects, over := order(now)
	if s.chores.order = order; over {
		s.chores.order = nil
	}
	return effects
}

// request begins a chore for a client.
func (s *Server) request(now kv.Instant, c chore) []Effect {
	effects, over := c(now)
	if !over {
		s.chores.requests = append(s.chores.requests, c)
	}
	return effects
}

// goOn asks for Continue if there is something to go on with.
func (s *Server) goOn() []Effect {
	if s.chores.asked || s.chores.order == nil && len(s.chores.requests) == 0 {
		return nil
	}
	s.chores.asked = true
	return []Effect{Continue{}}
}

// Continue goes on, by a step.
func (s *Server) Continue(now kv.Instant) (effects []Effect) {
	s.chores.asked = false
	if order := s.chores.order; order != nil {
		said, over := order(now)
		effects = append(effects, said...)
		if over {
			s.chores.order = nil
		}
	}
	if len(s.chores.requests) > 0 {
		said, over := s.chores.requests[0](now)
		effects = append(effects, said...)
		if over {
			s.chores.requests = s.chores.requests[1:]
		}
	}
	return append(append(effects, s.tellDrops(now)...), s.goOn()...)
}

// evict lets objects go as an operator asks for, and answers how many did.
func (s *Server) evict(now kv.Instant, from kv.Member, request uint64, m *Evict) []Effect {
	if len(s.writes)+len(s.chores.requests) >= s.options.MaxWrites {
		return s.refuse(from, request, fmt.Errorf("%w: %d requests wait at %s; try again", owner.ErrOverloaded, len(s.chores.requests), s.options.Self.Name))
	}
	if err := s.admit(from, s.options.MaxWrites, 0); err != nil {
		return s.refuse(from, request, err)
	}
	evicted, until := uint64(0), now+s.options.ReadTimeout
	return s.request(now, func(now kv.Instant) ([]Effect, bool) {
		n := s.objects.EvictUntilBelow(now, float64(m.Permille)/1000)
		evicted += uint64(n)
		if n == s.objects.Batch() && now < until {
			return nil, false
		}
		s.dismiss(from, 0)
		return []Effect{Send{from, request, &Evicted{evicted}}}, true
	})
}

// maxTold bounds how many keys one message to the master names: what it does with each takes
// time, and it has its lock meanwhile. An owner of more keys than fit so many parts has larger
// ones.
const maxTold = 256

// tell tells the master every key that this owner has, ready or claimed. None becomes either
// until the master has heard all, but for what was claimed before, which comes first: so none is
// left out that becomes ready meanwhile. What is let go meanwhile the master hears of later.
func (s *Server) tell(seq uint64) chore {
	k := master.Keys{Owner: s.member.Owner, Incarnation: s.member.Incarnation, Term: s.member.Term(), Seq: seq}
	var claimed []uint64
	for _, w := range s.byNumber() {
		if w.claimed && w.failed == nil {
			claimed = append(claimed, w.plan.KeyHash)
		}
	}
	most, at := max(maxTold, s.objects.Entries()/(master.MaxParts*3/4)), uint64(0)
	return func(kv.Instant) ([]Effect, bool) {
		k.Serial = s.member.Serial()
		var effects []Effect
		part := func() {
			said := k
			k.Part++
			effects = append(effects, Send{s.master, 0, &Keys{said}})
		}
		for len(claimed) > 0 { // at once: a write that ends later is told of by a later serial
			n := min(len(claimed), most)
			k.Hashes, claimed = claimed[:n:n], claimed[n:]
			part()
		}
		k.Hashes = nil
		at = s.objects.Hashes(at, most, func(hash uint64) { k.Hashes = append(k.Hashes, hash) })
		k.Last = at == 0
		part()
		return effects, k.Last
	}
}

// obey drops what the master has given away, or all there is. What is being
// written goes, too. That is one event, however long: a renewal between steps would have the
// master say it anew, and an owner of many keys would begin for ever.
func (s *Server) obey(now kv.Instant, order master.Order) (effects []Effect) {
	s.collectDrops() // of these the master is to hear
	keys := order.Keys
	if order.All {
		s.objects.Hashes(0, s.objects.Entries(), func(hash uint64) { keys = append(keys, hash) })
		for _, w := range s.byNumber() {
			keys = append(keys, w.plan.KeyHash)
		}
	}
	for _, hash := range keys {
		s.objects.RemoveHash(hash)
		if w := s.byKey[hash]; w != nil {
			w.claimed = false
			effects = append(effects, s.end(w, fmt.Errorf("%w: its owner was away, and the key was given to another", owner.ErrStale))...)
		}
	}
	s.objects.Gone() // the master knows
	s.member.Dropped(order.Seq)
	return append(effects, s.Tick(now)...)
}
