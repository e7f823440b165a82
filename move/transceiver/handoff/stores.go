package handoff

import (
	"cmp"
	"fmt"

	"meridian/kv"
)

// StoreLimits bounds what the object caches among an agent's engines take up, all
// of them together. They have limits of their own so that engines and caches do
// not use up one another's: a cache has a reader for every prompt, an engine one
// for every request.
type StoreLimits struct {
	// MaxHeldFraction is how much of its memory offers may keep in place; default
	// 0.5. Units that several offers share count once.
	MaxHeldFraction float64
	// MaxOffers and MaxAccepts bound what runs; default 4096 and 1024.
	MaxOffers, MaxAccepts int
	// MaxRemembered bounds tickets that are used up and have not expired; default
	// 262144.
	MaxRemembered int
}

// WithDefaults fills in what is not given.
func (l StoreLimits) WithDefaults() StoreLimits {
	l.MaxHeldFraction = cmp.Or(l.MaxHeldFraction, 0.5)
	l.MaxOffers, l.MaxAccepts, l.MaxRemembered = cmp.Or(l.MaxOffers, 4096), cmp.Or(l.MaxAccepts, 1024), cmp.Or(l.MaxRemembered, 1<<18)
	return l
}

// StorePrefix begins the ids of object caches, and of no engine: it would
// keep the cache of that id from joining.
const StorePrefix = "store@"

// IsStore reports whether an engine is an object cache: its blocks are units at
// places of an arena.
func (e *Engine) IsStore() bool { return e.Side.BlockStride > 0 }

// heldUnits is what offers of object caches keep in place. Every reader has an
// offer of its own, and many of them share units.
type heldUnits struct {
	readers map[heldUnit]int
	bytes   int64
}

type heldUnit struct {
	engine string
	block  uint32
}

// added is how many bytes an offer would add.
func (u *heldUnits) added(o *Offer, units []uint32, unitBytes int64) (bytes int64) {
	for _, block := range units {
		if u.readers[heldUnit{o.Engine, block}] == 0 {
			bytes += unitBytes
		}
	}
	return bytes
}

func (u *heldUnits) hold(o *offer) {
	for _, block := range o.units {
		at := heldUnit{o.Engine, block}
		if u.readers[at] == 0 {
			u.bytes += o.unitBytes
		}
		u.readers[at]++
	}
}

func (u *heldUnits) drop(o *offer) {
	for _, block := range o.units {
		at := heldUnit{o.Engine, block}
		if u.readers[at]--; u.readers[at] == 0 {
			u.bytes -= o.unitBytes
			delete(u.readers, at)
		}
	}
}

// StoreBytes is how much of object caches offers keep in place.
func (h *SourceHome) StoreBytes() int64 { return h.units.bytes }

// unitsOf is the units that an offer holds, and how long each is.
func unitsOf(e *Engine, o *Offer) (units []uint32, unitBytes int64, err error) {
	if len(o.Holding.Tables) != 1 {
		return nil, 0, fmt.Errorf("%w: %d block tables of an object cache, want one", ErrTerms, len(o.Holding.Tables))
	}
	table, first, end := o.Holding.Tables[0], o.First/e.Side.BlockTokens, e.Side.BlocksFor(o.Tokens)
	if end > len(table) {
		return nil, 0, fmt.Errorf("%w: %d tokens are in %d units, the block table has %d", ErrTerms, o.Tokens, end, len(table))
	}
	unitBytes, err = e.Side.BlockBytes()
	return table[first:end], unitBytes, err
}

// admitOfStore says whether there is room for an offer of an object cache.
func (h *SourceHome) admitOfStore(now Instant, e *Engine, o *Offer) error {
	h.forgetSpent(now)
	units, unitBytes, err := unitsOf(e, o)
	if err != nil {
		return err
	}
	limit := int64(h.Stores.MaxHeldFraction * float64(e.Side.Blocks) * float64(e.Side.BlockStride))
	switch added := h.units.added(o, units, unitBytes); {
	case h.units.bytes+added > limit:
		return fmt.Errorf("%w: %d bytes of %s are in other offers, %d more are beyond %d, which is %.2g of its memory; let decode recompute",
			ErrDeclined, h.units.bytes, e.ID, added, limit, h.Stores.MaxHeldFraction)
	case h.count(true) >= h.Stores.MaxOffers:
		return fmt.Errorf("%w: %d offers of object caches stand already", ErrDeclined, h.Stores.MaxOffers)
	case len(h.spent) >= h.Stores.MaxRemembered:
		return fmt.Errorf("%w: %d tickets of object caches that were used have not expired yet", ErrDeclined, len(h.spent))
	}
	return nil
}

// count is how many offers of object caches stand, or of engines, with those that
// are awaited.
func (h *SourceHome) count(ofStores bool) (n int) {
	for _, o := range h.offers {
		if o.src.Engine.IsStore() == ofStores {
			n++
		}
	}
	return n
}

// rememberSpent keeps how an offer of an object cache ended until its ticket has
// expired, and no longer: there are many of them, and one that comes later is
// refused for its age.
func (h *SourceHome) rememberSpent(now Instant, transfer kv.ID, how Problem, until Instant) {
	h.forgetSpent(now)
	if _, is := h.endings[transfer]; is || until <= now || len(h.spent) >= 2*h.Stores.MaxRemembered {
		return
	}
	how.Differences = nil // its text names them
	h.endings[transfer] = ending{problem: how, until: until, ofStore: true}
	h.spent = append(h.spent, transfer)
}

// forgetSpent forgets what has expired, the oldest first: tickets of caches are
// made for about the same time, and one that waits behind another is only
// remembered longer.
func (h *SourceHome) forgetSpent(now Instant) {
	for len(h.spent) > 0 && now >= h.endings[h.spent[0]].until {
		delete(h.endings, h.spent[0])
		h.spent = h.spent[1:]
	}
}
