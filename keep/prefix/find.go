package prefix

import (
	"context"
	"slices"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/move/transceiver/handoff"
)

// Find is an engine's: what of this prompt is kept?
type Find struct {
	Engine string
	// Request is what the engine calls the request, for its Record.
	Request string
	// Tenant is whose share of an owner's memory it takes what comes there for this; empty: the
	// engine's own.
	Tenant  string
	Content handoff.Content
	// Present is how many tokens the engine has already.
	Present int
	// TokenTime is what computing one token takes the engine; 0: it does not know.
	TokenTime time.Duration
}

// Found is what is at hand.
type Found struct {
	// Tokens is how many are, from the first on, with those that are present; 0: compute.
	Tokens int
	// Segments follow one another from Present on to Tokens, MaxSegments at most.
	Segments []Segment
	// Reason is why it is not more, one of a few words: "" if it is all that could be
	// kept; short, miss, compute (which is faster), busy, late, refused, unknown.
	Reason string
}

// Segment is a part of it that one owner has. It is taken with Accept, of the content up
// to End and with Start tokens present, or declined.
type Segment struct {
	Ticket     []byte
	Start, End int
	Owner      string
	// From is in which tiers the owner had it; none where it does not say.
	From []TierPart
}

// TierPart is how many tokens were in a tier, and how long that kept a Find waiting: in memory
// for sums to be verified, below it until the last of them was in memory.
type TierPart struct {
	Tier   string `json:"tier"`
	Tokens int    `json:"tokens"`
	Micros uint64 `json:"micros"`
}

// Find says what is kept of a prompt, for a while: within that its segments must be
// accepted. It waits no longer than FindTimeout or ctx: what is late is a miss.
func (c *Cache) Find(ctx context.Context, f Find) (Found, error) {
	e, err := c.engine(f.Engine)
	if err != nil {
		return Found{}, err
	}
	began := c.options.Clock.Now()
	if !c.enter(&c.finding, 0) {
		found := Found{Reason: "busy"}
		c.countFind(f, found, 0)
		c.recordFind(f, found, began)
		return found, nil
	}
	defer c.leave(&c.finding, 0)
	ctx, cancel := context.WithTimeout(ctx, c.options.FindTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	found := c.find(ctx, f, e)
	c.countFind(f, found, c.options.Clock.Now().Sub(began))
	c.recordFind(f, found, began)
	return found, nil
}

// find looks for the chain: who has which units is asked once, then each of these.
func (c *Cache) find(ctx context.Context, f Find, e *engine) Found {
	first := f.Present / e.unit.Tokens
	tokens := f.Content.Tokens[:min(len(f.Content.Tokens), keys.MaxUnits*e.unit.Tokens)]
	chain := keys.ChainOf(c.names, f.Content.Scope, e.digest, tokens, e.unit.Tokens)
	chain.Payer = keys.PayerOf(f.Tenant, f.Engine)
	if len(chain.Keys) <= first {
		return Found{Reason: "short"}
	}
	copies, err := c.whereCopies(ctx, chain.Part(first, len(chain.Keys)))
	if !keys.Twice(copies) { // who has it has all the time there is: no other has it
		found, _ := c.findFrom(ctx, f, e, chain, c.choose(copies, nil), err)
		return found
	}
	// An owner that has died, or has too much to do, is noticed while there is time to ask
	// another that has a copy.
	deadline, _ := ctx.Deadline()
	half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	found, failed := c.findFrom(half, f, e, chain, c.choose(copies, nil), err)
	if len(failed) == 0 || ctx.Err() != nil {
		return found
	}
	again, _ := c.findFrom(ctx, f, e, chain, c.choose(copies, failed), err)
	if again.Tokens <= found.Tokens {
		found, again = again, found
	}
	for _, s := range found.Segments {
		c.decline(s.Ticket)
	}
	return again
}

// findFrom is find from those that have the units behind what is present, as far as is known:
// err is why that may not be all. It says which owners have failed.
func (c *Cache) findFrom(ctx context.Context, f Find, e *engine, chain keys.Chain, have []string, err error) (Found, map[string]bool) {
	first := f.Present / e.unit.Tokens
	stretches := keys.Cut(append(make([]string, first), have...), first)
	switch {
	case len(stretches) > 0:
	case err != nil:
		return Found{Reason: "unknown"}, nil
	default:
		return Found{Reason: "miss"}, nil
	}
	end := stretches[len(stretches)-1].End
	if !c.worth(e, end*e.unit.Tokens-f.Present, f.TokenTime) {
		return Found{Reason: "compute"}, nil
	}
	s := ownerQueries{cache: c, find: f, engine: e, chain: chain, machine: keys.NewFindMachine(stretches)}
	began := c.options.Clock.Now()
	s.run(ctx, len(stretches))
	found := s.found(end < len(chain.Keys))
	c.expect(f.Engine, found, c.options.Clock.Now().Sub(began))
	return found, s.failed
}

// ownerQueries is a Find whose owners are asked.
type ownerQueries struct {
	cache   *Cache
	find    Find
	engine  *engine
	chain   keys.Chain
	machine *keys.FindMachine
	answers chan ownerReply
	failed  map[string]bool // owners that said nothing, or that they have too much to do
}

type ownerReply struct {
	number int
	answer *keys.FindAnswer // nil: there is none
}

// run asks until it is known what is found, or ctx ends.
func (s *ownerQueries) run(ctx context.Context, stretches int) {
	s.answers = make(chan ownerReply, 2*stretches) // each is asked twice at most, so that no answer waits
	waiting := stretches
	for number := range stretches {
		s.ask(ctx, number)
	}
	for !s.machine.Over() {
		select {
		case a := <-s.answers:
			waiting--
			if a.answer == nil || a.answer.Verdict == keys.Busy {
				s.fail(a.number)
			}
			if a.answer == nil {
				s.cache.decline(s.machine.Failed(a.number)...)
				continue
			}
			again, unused := s.machine.Answered(a.number, a.answer)
			s.cache.decline(unused...)
			if again {
				s.ask(ctx, a.number)
				waiting++
			}
		case <-ctx.Done():
			for number := range stretches {
				if s.machine.Waits(number) {
					s.fail(number)
				}
			}
			s.cache.decline(s.machine.Expire()...)
		}
	}
	s.cache.decline(s.machine.Expire()...)
	s.cache.wait.Go(func() { // what comes now is too late; each comes when ctx ends, or before
		for range waiting {
			if a := <-s.answers; a.answer != nil {
				s.cache.giveBack(a.answer)
			}
		}
	})
}

func (s *ownerQueries) fail(number int) {
	if s.failed == nil {
		s.failed = make(map[string]bool)
	}
	s.failed[s.machine.At(number).Owner] = true
}

// ask asks the owner of a stretch for what that is now.
func (s *ownerQueries) ask(ctx context.Context, number int) {
	at := s.machine.At(number)
	s.cache.wait.Go(func() { s.answers <- ownerReply{number, s.askOne(ctx, at)} })
}

func (s *ownerQueries) askOne(ctx context.Context, at keys.UnitRange) *keys.FindAnswer {
	c := s.cache
	to, reads, err := c.owner(at.Owner)
	if err != nil {
		return nil
	}
	content := s.find.Content
	content.Tokens = content.Tokens[:at.End*s.engine.unit.Tokens]
	patience := time.Duration(0)
	if deadline, has := ctx.Deadline(); has {
		patience = time.Until(deadline)
	}
	ask := &keys.FindAsk{
		Shape: s.engine.shape, Units: s.chain.Part(at.First, at.End), First: at.First, Fingerprint: content.Fingerprint(c.options.TicketKey.For(to)),
		WithinMs: uint64(c.options.OfferTimeout / time.Millisecond), PatienceMs: uint64(max(1, patience/time.Millisecond)), Tell: to == c.self || keys.ReadsTelling(reads), Pays: keys.ReadsPayer(reads),
	}
	if to == c.self {
		return c.grantTo(ctx, c.self, ask)
	}
	m, err := c.ask(ctx, to, ask)
	answer, is := m.(*keys.FindAnswer)
	if err != nil || !is {
		c.options.Logger.Debug("an owner did not say what it has of a prompt", "owner", at.Owner, "error", err)
		return nil
	}
	return answer
}

// found is what came of it. More says that no owner has what follows the last stretch.
func (s *ownerQueries) found(more bool) Found {
	granted, why, late := s.machine.Found()
	var f Found
	at := s.find.Present
	for _, g := range granted {
		end := g.End * s.engine.unit.Tokens
		f.Segments = append(f.Segments, Segment{Ticket: g.Ticket, Start: at, End: end, Owner: g.Owner, From: tierParts(g.From, s.engine.unit.Tokens, end-at)})
		at, f.Tokens = end, end
	}
	switch {
	case late:
		f.Reason = "late"
	case why == keys.Missing:
		f.Reason = "miss"
	case why == keys.Busy:
		f.Reason = "busy"
	case why != keys.Taken:
		f.Reason = "refused"
	case more:
		f.Reason = "miss"
	}
	return f
}

// tierParts are what an owner says of where units were, in tokens, of which so many are of use:
// of the first unit, the engine may have some.
func tierParts(from []keys.TierWait, unitTokens, tokens int) (parts []TierPart) {
	for i := range slices.Backward(from) {
		f := &from[i]
		part := TierPart{Tier: f.Tier, Tokens: min(f.Units*unitTokens, tokens), Micros: f.Micros}
		tokens -= part.Tokens
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return parts
}
