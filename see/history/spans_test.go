package history

import (
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
)

// What a leg said is kept until its hand-off ends, and of those that never end no
// more than so many.
func TestAskedLegs(t *testing.T) {
	var legs askedLegs
	leg := func(i int) trust.Leg {
		return trust.Leg{Kind: trust.LegDecode, ID: [16]byte{byte(i), byte(i >> 8), 1}, Engine: "e", Trace: trust.Trace{ID: [16]byte{1}, Span: [8]byte{byte(i)}, Sampled: true}}
	}
	for i := range maxAskedLegs + 10 {
		legs.add(leg(i))
		legs.add(leg(i)) // a repeated request takes no second place
	}
	of := func(i int, as handoff.Role) *handoff.Record {
		return &handoff.Record{Transfer: kv.ID(leg(i).ID), As: as}
	}
	if len(legs.legs) != maxAskedLegs || len(legs.ring) != maxAskedLegs {
		t.Errorf("%d legs are kept, in %d places", len(legs.legs), len(legs.ring))
	}
	if _, found := legs.take(of(9, handoff.Destination)); found {
		t.Error("the oldest was not forgotten")
	}
	if _, found := legs.take(of(11, handoff.Source)); found {
		t.Error("a decode leg is taken for the source's")
	}
	if got, found := legs.take(of(11, handoff.Destination)); !found || got.Trace.Span != [8]byte{11} {
		t.Errorf("got %v, %v", got, found)
	}
	if _, found := legs.take(of(11, handoff.Destination)); found {
		t.Error("one hand-off ended twice")
	}
}

// A request that was not sampled, or whose trace cannot be read, has no spans; times of
// the others are those of the record.
func TestRequestSpans(t *testing.T) {
	began := time.Unix(100, 0)
	r := &ledger.Record{ID: "r", Began: began, Latency: ledger.Latency{QueueMs: 1, TTFTMs: 20, TTFVTMs: 50, TTOTMs: 10, TotalMs: 80}, Legs: []ledger.Leg{
		{Kind: ledger.DecodeLeg, Span: "00000000000000aa", StartMs: 2, Ms: 70, Problem: "lost"}, {Kind: ledger.ResumeLeg},
	}}
	if spans := RequestSpans(r); spans != nil {
		t.Errorf("%d spans without a trace", len(spans))
	}
	r.Trace = &ledger.Trace{ID: "0af7651916cd43dd8448eb211c80319c", Span: "00000000000000bb"}
	if spans := RequestSpans(r); spans != nil {
		t.Errorf("%d spans of what was not sampled", len(spans))
	}
	r.Trace.Sampled = true
	spans := RequestSpans(r)
	if len(spans) != 3 || spans[2].Parent != [8]byte{7: 0xbb} || spans[2].ID != [8]byte{7: 0xaa} || spans[2].Problem != "lost" ||
		!spans[2].Start.Equal(began.Add(2*time.Millisecond)) || !spans[2].End.Equal(began.Add(72*time.Millisecond)) {
		t.Fatalf("%+v", spans)
	}
	kinds := map[string]time.Duration{"first_token": 20, "exit_think": 40, "first_visible_token": 50, "complete": 80}
	for _, e := range spans[0].Events {
		if want := began.Add(kinds[e.Attributes["kind"].(string)] * time.Millisecond); !e.At.Equal(want) {
			t.Errorf("%v at %v, want %v", e.Attributes, e.At, want)
		}
	}
	if len(spans[0].Events) != len(kinds) {
		t.Errorf("%d events", len(spans[0].Events))
	}
}
