package lifecycle

import "meridian/kv"

// Ticket is what a decode engine is given in the place of a prompt's cache: what a prefill
// engine sent, or the promise of it. Every hand-off has an id of its own: one that was offered
// once is never offered again.
type Ticket struct {
	// Request is the request's own id, which its first hand-off has, too.
	Request kv.ID
	// Transfer is the hand-off whose ticket is held, Params what the engine gets; nil for none.
	Transfer kv.ID
	Params   []byte

	offers int  // ids that were used
	used   bool // an engine may have used it
}

// Next is the id of the next hand-off.
func (t *Ticket) Next(fresh func() kv.ID) kv.ID {
	t.offers++
	if t.offers == 1 {
		return t.Request
	}
	return fresh()
}

// Hold takes in what came of a hand-off, in the place of what was held.
func (t *Ticket) Hold(transfer kv.ID, params []byte) {
	t.Transfer, t.Params, t.used = transfer, params, false
}

// Use: an engine may have used it.
func (t *Ticket) Use() { t.used = true }

// Drop forgets it.
func (t *Ticket) Drop() { t.Params = nil }

// IsUnused: it opens something, and no engine can have used it.
func (t *Ticket) IsUnused() bool { return len(t.Params) > 0 && !t.used }
