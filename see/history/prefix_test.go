package history

import (
	"math"
	"slices"
	"strings"
	"testing"

	"meridian/keep/prefix"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
)

// What came of Finds and Keeps is found by the request, also where its engine made a longer
// name of it, and by hand-offs; in memory, and written down.
func TestPrefixRecords(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(Options{Dir: dir, Agent: "a"})
	if err != nil {
		t.Fatal(err)
	}
	request, fetch, keep := agent.NewID(), agent.NewID(), agent.NewID()
	found := &prefix.Record{
		Engine: "e", Request: "cmpl-" + request.String() + "-0", Outcome: "whole", Tokens: 80, EndedUnixUs: 2_000_000, Micros: 500_000,
		Parts: []prefix.RecordPart{{Owner: "a", End: 64, Transfer: fetch}},
	}
	kept := &prefix.Record{Keep: true, Engine: "e", Request: request.String(), Transfer: keep, Outcome: "dropped", Tokens: 64, EndedUnixUs: 3_000_000}
	other := &prefix.Record{Engine: "e", Request: agent.NewID().String(), Outcome: "miss", Reason: "miss"}
	for _, p := range []*prefix.Record{found, kept, other} {
		r.PrefixEnded(p)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{
		request.String(): 2, "cmpl-" + request.String(): 1, fetch.String(): 1, keep.String(): 1, other.Request: 1,
		agent.NewID().String(): 0, "": 0, "cmpl-": 0, // too little to mean one
	} {
		written, err := PrefixesIn(dir, text)
		if err != nil || len(written) != want || len(r.PrefixesOf(text)) != want {
			t.Errorf("%q: %d written down, %d in memory, %v", text, len(written), len(r.PrefixesOf(text)), err)
		}
	}
	side := handoff.Record{Transfer: fetch, As: handoff.Destination, Engine: "e", EndedUnixUs: 2_250_000}
	if text := TellPrefix(found, []handoff.Record{side}); !strings.Contains(text, "ready 750.000 ms after it was asked for") {
		t.Error(text)
	}
	side.Problem = "its owner died"
	if text := TellPrefix(found, []handoff.Record{side}); !strings.Contains(text, "fetched   no: its owner died") {
		t.Error(text)
	}
	if text := TellPrefix(found, nil); strings.Contains(text, "fetched") {
		t.Error(text)
	}
}

// What another agent sends that cannot be is passed over.
func TestPrefixesThatCannotBe(t *testing.T) {
	part := func(start, end int) prefix.RecordPart { return prefix.RecordPart{Start: start, End: end} }
	from := func(tiers ...prefix.TierPart) prefix.RecordPart { return prefix.RecordPart{End: 8, From: tiers} }
	for _, r := range []prefix.Record{
		{Tokens: -1},
		{Tokens: 1, Present: -1},
		{Tokens: 8, Parts: []prefix.RecordPart{part(4, 2)}},
		{Tokens: 8, Parts: []prefix.RecordPart{part(-4, 2)}},
		{Tokens: 8, Parts: []prefix.RecordPart{part(0, 9)}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "disk", Tokens: 9})}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "disk", Tokens: -1})}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "disk", Tokens: 5}, prefix.TierPart{Tier: "s3", Tokens: 4})}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "disk", Tokens: math.MaxInt}, prefix.TierPart{Tier: "s3", Tokens: math.MaxInt})}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "a disk\n", Tokens: 1})}},
		{Tokens: 8, Parts: []prefix.RecordPart{from(slices.Repeat([]prefix.TierPart{{Tier: "disk"}}, 9)...)}},
		{Tokens: 8, Parts: []prefix.RecordPart{part(0, 1), part(1, 2), part(2, 3), part(3, 4), part(4, 5)}},
	} {
		if canBePrefix(&r) {
			t.Errorf("%+v", r)
		}
	}
	if !canBePrefix(&prefix.Record{Tokens: 8, Parts: []prefix.RecordPart{part(0, 4), part(4, 8)}}) || !canBePrefix(&prefix.Record{Tokens: 8, Parts: []prefix.RecordPart{from(prefix.TierPart{Tier: "s3", Tokens: 8})}}) {
		t.Error("one that can be is refused")
	}
}
