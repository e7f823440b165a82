package handoff

import (
	"fmt"
	"iter"
)

// What a source takes on: each bound holds before anything is kept.

// MaxKeep bounds how long an offer may stand, and with it how long a home has to
// remember that a ticket was used.
const MaxKeep = 60 * Minute

// admit says whether there is room for an offer, and brings what is computed of it
// into its normal form.
func (h *SourceHome) admit(now Instant, e *Engine, o *Offer) error {
	layers := len(e.Side.Geometry.Layers)
	computed, possible := o.Computed.normal(layers, o.Tokens)
	switch {
	case o.Keep > MaxKeep:
		return fmt.Errorf("%w: to be kept for %d ms, at most %d", ErrTerms, o.Keep/Millisecond, MaxKeep/Millisecond)
	case o.Tokens < 1 || o.Keep <= 0 || !possible:
		return fmt.Errorf("%w: %d tokens of %d layers, %v computed, to keep for %d µs", ErrTerms, o.Tokens, layers, o.Computed, o.Keep)
	case o.First < 0 || o.First > o.Tokens:
		return fmt.Errorf("%w: %d tokens, of which those before token %d are not held", ErrTerms, o.Tokens, o.First)
	}
	o.Computed = computed
	p := Party{Engine: *e, Holding: o.Holding}
	err := p.admitTables(func(yield func(*Party) bool) {
		for _, o := range h.offers {
			if !yield(&o.src) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if e.IsStore() {
		return h.admitOfStore(now, e, o)
	}
	switch held, limit := h.Held(e.ID, o.ToKeep), int(h.MaxHeldFraction*float64(e.Side.Blocks)); {
	case held+o.blocks(&p) > limit:
		return fmt.Errorf("%w: engine %s has %d blocks in other offers, %d more are beyond %d, which is %.2g of its %d; let decode recompute",
			ErrDeclined, e.ID, held, o.blocks(&p), limit, h.MaxHeldFraction, e.Side.Blocks)
	case h.count(false) >= h.MaxOffers && h.offers[o.Transfer] == nil:
		return fmt.Errorf("%w: %d offers stand already", ErrDeclined, h.MaxOffers)
	case len(h.endings)-len(h.spent) >= h.MaxRemembered:
		return fmt.Errorf("%w: %d tickets that were used have not expired yet", ErrDeclined, h.MaxRemembered)
	}
	return nil
}

// admitTables says whether an engine can have the blocks that it says a request is in, and
// whether there is room for its tables beside others. Whether the blocks are enough the plan sees;
// what tables of object caches take is not bounded, their blocks are.
func (p *Party) admitTables(others iter.Seq[*Party]) error {
	if len(p.Holding.Tables) > maxTables || p.blocks() > p.Engine.Side.Blocks {
		return fmt.Errorf("%w: engine %s has %d blocks and at most %d block tables; a request of it names %d blocks in %d tables",
			ErrTerms, p.Engine.ID, p.Engine.Side.Blocks, maxTables, p.blocks(), len(p.Holding.Tables))
	}
	if named := p.tableBytes() / blockNumberBytes; named > maxBlocks {
		return fmt.Errorf("%w: a request of engine %s names %d blocks in all of its tables, at most %d", ErrTerms, p.Engine.ID, named, maxBlocks)
	}
	if p.Engine.IsStore() {
		return nil
	}
	own := p.tableBytes()
	all := own
	for other := range others {
		if other.Engine.IsStore() {
			continue
		}
		bytes := other.tableBytes()
		if all += bytes; other.Engine.ID == p.Engine.ID {
			own += bytes
		}
	}
	if own > maxEngineTableBytes || all > maxTableBytes {
		return fmt.Errorf("%w: block tables of engine %s would take %d bytes, at most %d, and those of all engines here %d, at most %d",
			ErrDeclined, p.Engine.ID, own, maxEngineTableBytes, all, maxTableBytes)
	}
	return nil
}

// maxTableBytes bounds what block tables of engines take at a home, and maxEngineTableBytes
// those of one of them: a block may be in many tables, and a table is as long as an engine says.
const (
	maxTableBytes       = 256 << 20
	maxEngineTableBytes = maxTableBytes / 4
)

// maxAwaitedBytes bounds what asks that came before their offers make a source
// keep: each names the blocks of a destination.
const maxAwaitedBytes = 64 << 20

// admitAsk says whether there is room for an ask that came before its offer, in
// the place of another's if one is given. One destination alone does not use up all
// that offers need.
func (h *SourceHome) admitAsk(a asking, replaced *offer) error {
	bytes, ofDestination := a.ask.Dst.keptBytes(), 0
	for _, o := range h.offers {
		if o.state == offerAwaited && o != replaced {
			bytes += o.session.askBytes
			if o.session.from == a.from {
				ofDestination++
			}
		}
	}
	switch {
	case h.count(false) >= h.MaxOffers && replaced == nil:
		return fmt.Errorf("%w: %d offers stand or are awaited", ErrDeclined, h.MaxOffers)
	case ofDestination > h.MaxOffers/2:
		return fmt.Errorf("%w: %d offers are awaited by %v alone", ErrDeclined, ofDestination, a.from)
	case bytes > maxAwaitedBytes:
		return fmt.Errorf("%w: asks for what is not offered yet would take %d bytes, at most %d", ErrDeclined, bytes, maxAwaitedBytes)
	}
	return nil
}
