package transceiver

import (
	"slices"
	"testing"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// What an offer for an object cache is stuck at is told, so that a log says why an engine's
// blocks stay out. How the offer ends its handle tells alone.
func TestOffersToKeepTellWhatTheyAreStuckAt(t *testing.T) {
	var told []handoff.EventKind
	tr := &Transceiver{options: Options{Events: func(e handoff.Event) { told = append(told, e.Kind) }}, offers: make(map[kv.ID]*OfferHandle)}
	id := kv.ID{1}
	out := &OfferHandle{Transfer: id, events: tr.eventsOfOffer(&Offer{Transfer: id, Engine: "e", ToKeep: true}), freed: make(chan struct{})}
	tr.offers[id] = out
	for _, kind := range []handoff.EventKind{handoff.Dropped, handoff.Stuck, handoff.Freed} {
		tr.onEvent(handoff.Event{Kind: kind, As: handoff.Source, Engine: "e", Transfer: id})()
	}
	<-out.Freed()
	if !slices.Equal(told, []handoff.EventKind{handoff.Stuck}) {
		t.Errorf("%v is told", told)
	}
}
