package main

import (
	"context"
	"slices"

	"meridian/keep/prefix"
	"meridian/kv"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
	"meridian/see/ledger"
)

// prefix asks every agent what a request or a hand-off found and kept in the shared cache,
// reads what those that are gone have written down, and looks for the hand-offs that
// brought what was found.
func (e *explanation) prefix(ctx context.Context, text string) {
	for _, name := range e.agents {
		known, _ := history.Get[[]prefix.Record](ctx, history.AdminSocket(e.dir, name), history.PrefixPath(text)) // one that does not answer does not hide what the others know
		for _, p := range known {
			e.addPrefix(p)
		}
	}
	written, err := history.PrefixesIn(e.dir, text)
	if err != nil {
		e.unread = err
	}
	for _, p := range written {
		e.addPrefix(p)
	}
	for i := range e.prefixes {
		for _, part := range e.prefixes[i].Parts {
			isKnown := slices.ContainsFunc(e.handOffs, func(h handoff.Record) bool { return h.Transfer == part.Transfer })
			if part.Transfer != (kv.ID{}) && !isKnown {
				e.handOff(ctx, part.Transfer)
			}
		}
	}
}

// addPrefix adds a Find or a Keep, unless it is known, in the order in which they ended.
func (e *explanation) addPrefix(p prefix.Record) {
	if slices.ContainsFunc(e.prefixes, func(known prefix.Record) bool { return history.SamePrefix(known, p) }) {
		return
	}
	at := len(e.prefixes)
	for at > 0 && e.prefixes[at-1].EndedUnixUs > p.EndedUnixUs {
		at--
	}
	e.prefixes = slices.Insert(e.prefixes, at, p)
}

// usedCache tells whether the shared cache had a part in a request, as its gateway knew it.
func usedCache(r *ledger.Record) bool {
	return r.Stored != nil || slices.ContainsFunc(r.Legs, func(l ledger.Leg) bool { return l.KVTokens > 0 })
}

// toldPrefix tells of a Find or a Keep, with when what was found was there.
type toldPrefix struct {
	record   *prefix.Record
	handOffs []handoff.Record
}

func (p toldPrefix) String() string { return history.TellPrefix(p.record, p.handOffs) }
