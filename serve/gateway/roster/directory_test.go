package roster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"meridian/decide/placement"
	"meridian/member/directory"
)

var (
	discard    = slog.New(slog.DiscardHandler)
	usualPlace = placement.Options{DirectTokens: 16, AffinityWeight: 1, RunningTokens: 64}
)

// While the directory is away, what is known goes on serving.
func TestDirectoryOutage(t *testing.T) {
	f := &follower{roster: New(Options{Place: usualPlace, Logger: discard}), keys: make(map[string]string)}
	value, _ := json.Marshal(directory.EngineRecord{ID: "d0", Incarnation: "1", URL: "http://h:1", Role: "both", Model: "m"})
	record := directory.Record{Key: directory.EnginePrefix + "d0", Value: value, Revision: 1}
	f.take(directory.Event{Kind: directory.Resync, Records: []directory.Record{record}})
	if !f.known.Load() || len(f.roster.All()) != 1 {
		t.Fatal("it was not taken in")
	}
	first := f.roster.All()[0]
	f.take(directory.Event{Kind: directory.Unavailable})
	if f.known.Load() || len(f.roster.All()) != 1 {
		t.Error("an outage is not a death")
	}
	record.Revision = 2 // put back, as it was
	f.take(directory.Event{Kind: directory.Available, Records: []directory.Record{record}})
	if !f.known.Load() || f.roster.All()[0] != first {
		t.Error("the same life became another")
	}
	f.take(directory.Event{Kind: directory.Available})
	if !first.Stray.Load() || first.Up.Load() {
		t.Error("what is gone is still believed in")
	}
	record.Revision = 3 // its agent was only cut off for a while
	f.take(directory.Event{Kind: directory.Put, Record: record})
	if all := f.roster.All(); len(all) != 1 || all[0].Stray.Load() {
		t.Errorf("what came back is not believed in: %d engines", len(all))
	}
}

// What the directory says of an engine may change while it lives, as when its agent was
// started anew.
func TestARecordThatChanges(t *testing.T) {
	f := &follower{roster: New(Options{Place: usualPlace, Logger: discard}), keys: make(map[string]string)}
	r := directory.EngineRecord{ID: "d0", Incarnation: "1", URL: "http://h:1", Role: "both", Model: "m", Home: "a", HomeIncarnation: strings.Repeat("01", 16), Legs: 1}
	put := func(revision directory.Revision) *Engine {
		t.Helper()
		value, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		f.take(directory.Event{Kind: directory.Put, Record: directory.Record{Key: directory.EnginePrefix + "d0", Value: value, Revision: revision}})
		all := f.roster.All()
		if len(all) != 1 {
			t.Fatalf("there are %d engines", len(all))
		}
		return all[0]
	}
	first := put(1)
	f.roster.Answered(first, &About{ID: "d0", Models: []string{"m"}, Asked: true})
	first.Unit.Store(usualUnit) // its answers told that it finds prefixes
	if put(2) != first || first.Unit.Load() != usualUnit {
		t.Errorf("a record that has not changed: a piece has %d tokens", first.Unit.Load())
	}
	r.HomeIncarnation, r.Legs, r.CacheTokens, r.Blocks, r.BlockTokens = strings.Repeat("02", 16), 3, 128, 100, 16
	if put(3) != first {
		t.Fatal("the same life became another")
	}
	if home, a := first.Home.Load(), first.About.Load(); home == nil || home.Incarnation[0] != 2 || a.Legs != 3 || !a.Asked || first.Unit.Load() != 128 || first.cacheHashes == 0 {
		t.Errorf("home %v, legs %d, asked %v, a piece has %d tokens, its cache %d hashes", home, a.Legs, a.Asked, first.Unit.Load(), first.cacheHashes)
	}
	f.roster.Answered(first, &About{ID: "d0", Models: []string{"m"}, Asked: true})
	if legs := first.About.Load().Legs; legs != 3 {
		t.Errorf("once it has answered again, legs are of version %d", legs)
	}
	r.HomeIncarnation, r.CacheTokens = "", 0
	if put(4); first.Home.Load() != nil || first.Unit.Load() != 0 {
		t.Errorf("home %v, a piece has %d tokens", first.Home.Load(), first.Unit.Load())
	}
	r.URL = "http://h:2"
	if e := put(5); e == first || e.URL != "http://h:2" {
		t.Errorf("it is asked at %s", e.URL)
	}
}

// However many engines stand in the directory, the gateway asks a bounded number,
// and those that left make room.
func TestTooManyEngines(t *testing.T) {
	r := New(Options{Place: usualPlace, Logger: discard})
	f := &follower{roster: r, keys: make(map[string]string)}
	put := func(i int) directory.Record {
		id := fmt.Sprint("e", i)
		stored := directory.Record{Key: directory.EnginePrefix + id, Value: fmt.Appendf(nil, `{"id":%q,"incarnation":"1","url":"http://h:1","role":"prefill","model":"m"}`, id), Revision: 1}
		f.take(directory.Event{Kind: directory.Put, Record: stored})
		return stored
	}
	first := put(0)
	for i := range maxEngines {
		put(i + 1)
	}
	if n := len(r.All()); n != maxEngines {
		t.Errorf("%d engines are known, the limit is %d", n, maxEngines)
	}
	f.take(directory.Event{Kind: directory.Delete, Record: first})
	put(maxEngines + 7)
	if r.Get(fmt.Sprintf("e%d@1", maxEngines+7)) == nil {
		t.Error("an engine that has gone is in the way of one that comes")
	}
}
