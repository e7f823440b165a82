package node

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"meridian/keep/offload"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
)

// What came of Finds and Keeps is found by the request, also where its engine made a longer
// name of it, and by hand-offs; in memory, and written down.
func TestPrefixRecords(t *testing.T) {
	dir := t.TempDir()
	r, err := openRecords(dir, "a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	request, fetch, keep := agent.NewID(), agent.NewID(), agent.NewID()
	found := &offload.Record{
		Engine: "e", Request: "cmpl-" + request.String() + "-0", Outcome: "whole", Tokens: 80, EndedUnixUs: 2_000_000, Micros: 500_000,
		Parts: []offload.RecordPart{{Owner: "a", End: 64, Transfer: fetch}},
	}
	kept := &offload.Record{Keep: true, Engine: "e", Request: request.String(), Transfer: keep, Outcome: "dropped", Tokens: 64, EndedUnixUs: 3_000_000}
	other := &offload.Record{Engine: "e", Request: agent.NewID().String(), Outcome: "miss", Reason: "miss"}
	for _, p := range []*offload.Record{found, kept, other} {
		r.addPrefix(p)
	}
	n := &Agent{records: r}
	if err := r.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{
		request.String(): 2, "cmpl-" + request.String(): 1, fetch.String(): 1, keep.String(): 1, other.Request: 1,
		agent.NewID().String(): 0, "": 0, "cmpl-": 0, // too little to mean one
	} {
		written, err := PrefixesIn(dir, text)
		if err != nil || len(written) != want || len(n.prefixesOf(text)) != want {
			t.Errorf("%q: %d written down, %d in memory, %v", text, len(written), len(n.prefixesOf(text)), err)
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
	part := func(start, end int) offload.RecordPart { return offload.RecordPart{Start: start, End: end} }
	from := func(tiers ...offload.TierPart) offload.RecordPart { return offload.RecordPart{End: 8, From: tiers} }
	for _, r := range []offload.Record{
		{Tokens: -1},
		{Tokens: 1, Present: -1},
		{Tokens: 8, Parts: []offload.RecordPart{part(4, 2)}},
		{Tokens: 8, Parts: []offload.RecordPart{part(-4, 2)}},
		{Tokens: 8, Parts: []offload.RecordPart{part(0, 9)}},
		{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "disk", Tokens: 9})}},
		{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "disk", Tokens: -1})}},
		{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "disk", Tokens: 5}, offload.TierPart{Tier: "s3", Tokens: 4})}},
		{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "disk", Tokens: math.MaxInt}, offload.TierPart{Tier: "s3", Tokens: math.MaxInt})}},
		{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "a disk\n", Tokens: 1})}},
		{Tokens: 8, Parts: []offload.RecordPart{from(slices.Repeat([]offload.TierPart{{Tier: "disk"}}, 9)...)}},
		{Tokens: 8, Parts: []offload.RecordPart{part(0, 1), part(1, 2), part(2, 3), part(3, 4), part(4, 5)}},
	} {
		if canBePrefix(&r) {
			t.Errorf("%+v", r)
		}
	}
	if !canBePrefix(&offload.Record{Tokens: 8, Parts: []offload.RecordPart{part(0, 4), part(4, 8)}}) || !canBePrefix(&offload.Record{Tokens: 8, Parts: []offload.RecordPart{from(offload.TierPart{Tier: "s3", Tokens: 8})}}) {
		t.Error("one that can be is refused")
	}
}
