package lifecycle

import (
	"cmp"
	"slices"

	"meridian/decide/placement"
	"meridian/see/ledger"
)

// Known is how what engines hold of a prompt was known.
type Known uint8

// From the best word to none.
const (
	KnownTold    Known = iota // engines told
	KnownGuess                // by what the gateway had sent
	KnownStored               // the cell was believed to keep it
	KnownNothing              // no engine holds anything
)

// shownHeld is how many engines a record names that hold something of a prompt.
const shownHeld = 8

// choose takes in a choice: what engines hold of the prompt, and what those that were chosen are
// believed to be able to fetch. It returns how the chosen one's was known.
func (l *Life) choose(candidates []placement.Engine, c placement.Choice) Known {
	held, known := []ledger.Held(nil), KnownNothing
	for _, e := range candidates {
		chosen := e.ID == c.Decode || e.ID == c.Prefill
		if chosen && e.Stored > e.Held {
			known = min(known, KnownStored)
		}
		if e.Held == 0 {
			continue
		}
		if len(held) < shownHeld {
			held = append(held, ledger.Held{Engine: e.Name, Tokens: e.Held, Told: e.Told})
		}
		switch {
		case !chosen:
		case e.Told:
			known = KnownTold
		default:
			known = min(known, KnownGuess)
		}
	}
	if c.PrefillWhy.Kind == placement.Stored {
		known = KnownStored
	}
	slices.SortFunc(held, func(a, b ledger.Held) int { return cmp.Or(b.Tokens-a.Tokens, cmp.Compare(a.Engine, b.Engine)) })
	l.Record.Held, l.Record.Stored = held, nil
	if believed := l.belief.Believe(candidates, c); believed > 0 {
		l.Record.Stored = &ledger.Stored{Tokens: min(believed, l.Request.Tokens), Prompt: l.Request.Tokens}
	}
	return known
}
