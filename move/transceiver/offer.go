package transceiver

import (
	"context"
	"time"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Offer is a prefill engine's: this request's cache may be taken.
type Offer struct {
	// Transfer is the request's id; a new one for every request.
	Transfer kv.ID
	Engine   string
	// Content is what the cache is of. Where Known is given, that says so instead: an object
	// cache has keys alone.
	Content handoff.Content
	Known   *KnownContent
	// First is the first token that is held: an ask for what comes before it is
	// refused, and what the block table says of it is not looked at.
	First int
	// Holding is where the blocks are. They are not the engine's until Freed.
	Holding reshard.Holding
	// Layers is how many are computed by now, and WholeTokens how many tokens have all
	// of them; OfferHandle.Progress tells of more.
	Layers, WholeTokens int
	// Keep is how long the offer stands if no decode engine takes it; default
	// half a minute.
	Keep time.Duration
	// ToKeep says that an object cache is to take it. MaxHeldFraction bounds such offers
	// by themselves, and OfferHandle alone tells how one ends: an engine's Keep is several of
	// them. Options.Events hears what one is Stuck at.
	ToKeep bool
}

// KnownContent is what a cache is of, as the side says that has its tokens.
type KnownContent struct {
	// Fingerprint is under the key of the home that offers.
	Fingerprint handoff.Fingerprint
	Tokens      int
}

func (t *Transceiver) offerOf(o *Offer) handoff.Offer {
	if o.Keep <= 0 {
		o.Keep = 30 * time.Second
	}
	of := o.Known
	if of == nil {
		of = &KnownContent{Fingerprint: o.Content.Fingerprint(t.HomeKey()), Tokens: len(o.Content.Tokens)}
	}
	return handoff.Offer{
		Transfer: o.Transfer, Engine: o.Engine, Fingerprint: of.Fingerprint, Tokens: of.Tokens, First: o.First,
		Holding: o.Holding, Computed: handoff.Computed{Layers: o.Layers, Whole: o.WholeTokens}, Keep: handoff.Instant(o.Keep / time.Microsecond), ToKeep: o.ToKeep,
	}
}

// OfferHandle is an offer that stands.
type OfferHandle struct {
	Transfer kv.ID
	// Ticket is for the decode engine.
	Ticket []byte

	transceiver *Transceiver
	engine      string
	events      func(handoff.Event) // that is told of it; nil: Options.Events
	freed       chan struct{}
	err         error // why it was not taken; before freed is closed
	taken       kv.TokenRange
}

// Issue makes the ticket of an offer that will come. A decode engine that shows
// it waits for the offer.
func (t *Transceiver) Issue(o Offer) []byte {
	offer := t.offerOf(&o)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.source.Issue(t.now(), offer)
}

// Offer takes an offer, or declines it: then the decode engine computes for
// itself. Repeating an offer returns the one that stands.
func (t *Transceiver) Offer(o Offer) (*OfferHandle, error) {
	offer := t.offerOf(&o) // hashing a long prompt takes a while
	var out *OfferHandle
	err := ErrClosed
	t.step(func(now handoff.Instant) []handoff.Effect {
		if t.closed {
			return nil
		}
		ticket, effects, declined := t.source.Offer(now, offer)
		if err = declined; err != nil {
			t.metrics.Declined++
			return effects
		}
		if out = t.offers[o.Transfer]; out == nil {
			t.metrics.Offered++
			out = &OfferHandle{Transfer: o.Transfer, Ticket: ticket, transceiver: t, engine: o.Engine, events: t.eventsOfOffer(&o), freed: make(chan struct{})}
			t.offers[o.Transfer] = out // before anything can end it
		}
		return effects
	})
	return out, err
}

// eventsOfOffer is who is told of an offer: of one ToKeep, what its engine's blocks wait for and
// nothing else. mu is held.
func (t *Transceiver) eventsOfOffer(o *Offer) func(handoff.Event) {
	if !o.ToKeep {
		return t.eventsOf(o.Engine)
	}
	return func(e handoff.Event) {
		if e.Kind == handoff.Stuck && t.options.Events != nil {
			t.options.Events(e)
		}
	}
}

// Progress tells that the first so many layers are computed on all ranks, for the
// first so many tokens; 0: for all of them.
func (o *OfferHandle) Progress(layers, tokens int) {
	t := o.transceiver
	t.step(func(now handoff.Instant) []handoff.Effect { return t.source.Progress(now, o.Transfer, layers, tokens) })
}

// Withdraw takes the offer back. The blocks are the engine's again when Freed is
// closed.
func (o *OfferHandle) Withdraw() { o.transceiver.Withdraw(o.Transfer) }

// Withdraw takes an offer back, also one that has not come yet.
func (t *Transceiver) Withdraw(transfer kv.ID) {
	t.step(func(now handoff.Instant) []handoff.Effect { return t.source.Withdraw(now, transfer) })
}

// Freed is closed when the blocks are the engine's again: nothing of the
// hand-off can touch them any more.
func (o *OfferHandle) Freed() <-chan struct{} { return o.freed }

// Taken is of which tokens the cache was taken, after Freed.
func (o *OfferHandle) Taken() kv.TokenRange {
	<-o.freed
	return o.taken
}

// Wait waits for Freed and returns nil if the cache was taken.
func (o *OfferHandle) Wait(ctx context.Context) error {
	select {
	case <-o.freed:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
