package lifecycle

import (
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// PrefillEnd is how a prefill leg ended, one for the prompt or one by which an engine that was
// left offers prompt and answer so far.
type PrefillEnd struct {
	Engine   Engine
	Transfer kv.ID
	Span     string
	Began    kv.Instant
	Took     kv.Instant
	Params   []byte         // nil: nothing was offered
	Report   *openai.Report // nil: the engine says nothing
	Usage    openai.Usage
	Trouble  *Trouble
	Client   Client
	// Late: it was given as long as it may take.
	Late bool
}

func (p *PrefillEnd) record() ledger.Leg {
	return ledger.Leg{Kind: ledger.PrefillLeg, Engine: p.Engine.Name, Transfer: p.Transfer.String(), Span: p.Span}
}

// NextTransfer is the id of the next hand-off.
func (l *Life) NextTransfer(fresh func() kv.ID) kv.ID { return l.ticket.Next(fresh) }

// Promise takes in what the decode engine gets in the place of what a prefill leg is to offer,
// which is about to be sent. It is in doubt until that ends.
func (l *Life) Promise(transfer kv.ID, params []byte) Step {
	l.effect(CountPromised)
	l.promise = undecided
	l.ticket.Hold(transfer, params)
	return l.route.Prefilled(true)
}

// PrefillEnded takes in the end of a prefill leg for which its request has waited.
func (l *Life) PrefillEnded(p PrefillEnd) Step {
	l.PrefillDropped(p)
	if p.Trouble != nil {
		return l.countFallBack(l.route.PrefillFailed(*p.Trouble))
	}
	l.ticket.Hold(p.Transfer, p.Params)
	return l.countFallBack(l.route.Prefilled(p.Params != nil))
}

// PrefillDropped takes in the end of a prefill leg for which no decode leg waits any more.
func (l *Life) PrefillDropped(p PrefillEnd) {
	record := p.record()
	noteFound(&record, p.Report)
	l.noteLeg(record, p.Began, p.Took, p.Trouble, p.Client)
	if p.Trouble == nil {
		l.effect(Served{p.Engine.Key})
		l.effect(HasPrompt{p.Engine.Key})
		l.clock.Prefill = p.Took
		l.belief.Keep(p.Engine.Shares)
		l.spared(p.Engine, p.Report, &p.Usage, false)
	}
	if l.promise = noPromise; l.leg.waits { // the decode leg that was ended because this one has failed
		l.leg.waits = false
		l.leg.end.Trouble.GiveUp(OtherLegFailed)
		l.noteDecode()
	}
}

// OtherLegFailed is why one of two legs that ran at the same time was given up.
const OtherLegFailed = "the other leg failed"

// OfferTimeout is how long an engine that was left may take to offer what it has: the client
// waits for it. Computing again elsewhere takes no longer than that, as a rule. chosenOfferTimeout
// is that of a move by choice, which is to gain time: an engine that is no faster has the offer in its queue.
const (
	OfferTimeout       = 5 * kv.Second
	chosenOfferTimeout = 500 * kv.Millisecond
)

// MayOfferFor is how long the engine that was left may take.
func (l *Life) MayOfferFor() kv.Instant {
	if !l.passage.Why.Leaves() {
		return chosenOfferTimeout
	}
	return OfferTimeout
}

// SoFar are the tokens of prompt and answer that an engine can go on after.
func (l *Life) SoFar() (prompt, answer []uint32) { return l.answer.Prompt, l.answer.SoFar }

// OfferEnded takes in what came of asking the engine that was left to offer what it has.
func (l *Life) OfferEnded(p PrefillEnd) Step {
	p.Trouble.GiveUp("it took too long to offer what it has")
	l.noteLeg(p.record(), p.Began, p.Took, p.Trouble, p.Client)
	if p.Trouble == nil {
		l.effect(Served{p.Engine.Key})
	}
	l.ticket.Hold(p.Transfer, p.Params)
	l.passage.Offered = p.Params != nil
	l.passage.Queued = p.Params == nil && p.Late
	return l.route.Offered(p.Params != nil, p.Trouble)
}

// NoOffer takes in that the engine that was left cannot be asked for it.
func (l *Life) NoOffer() Step { return l.route.Offered(false, nil) }
