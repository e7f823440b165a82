package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Whatever becomes of tickets, no id is offered twice, and one that an engine may have used is
// never unused again.
func TestTickets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ticket := Ticket{Request: kv.ID{1}}
		fresh := byte(1)
		seen := make(map[kv.ID]bool)
		held, used := false, false
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				id := ticket.Next(func() kv.ID {
					fresh++
					return kv.ID{fresh, 1: byte(len(seen) >> 8)}
				})
				if seen[id] {
					t.Fatalf("%v is offered twice", id)
				}
				if len(seen) == 0 && id != ticket.Request {
					t.Fatalf("the first hand-off is %v, not the request's", id)
				}
				seen[id] = true
			},
			"hold": func(t *rapid.T) {
				params := rapid.SliceOf(rapid.Byte()).Draw(t, "params")
				ticket.Hold(kv.ID{2}, params)
				held, used = len(params) > 0, false
			},
			"use": func(*rapid.T) {
				ticket.Use()
				used = true
			},
			"drop": func(*rapid.T) {
				ticket.Drop()
				held = false
			},
			"": func(t *rapid.T) {
				if got := ticket.IsUnused(); got != (held && !used) {
					t.Fatalf("unused %v, with one held %v, used %v", got, held, used)
				}
			},
		})
	})
}

func TestMayChoose(t *testing.T) {
	last := 1000 * kv.Second
	limit := 100
	for name, c := range map[string]struct {
		change func(*Life)
		want   bool
	}{
		"at any time":     {func(*Life) {}, true},
		"about to end":    {func(l *Life) { l.answer.Tokens = limit - leastLeft + 1 }, false},
		"without a limit": {func(l *Life) { l.answer.Tokens, l.Request.MaxTokens = 1<<20, nil }, true},
		"once":            {func(l *Life) { l.leave(ByThought, Engine{Key: "a", Name: "a"}, "b") }, true},
		"too often": {func(l *Life) {
			l.leave(ByThought, Engine{Key: "a", Name: "a"}, "b")
			l.leave(ByBalance, Engine{Key: "b", Name: "b"}, "a")
		}, false},
		"not by choice": {func(l *Life) {
			for range 3 {
				l.leave(ByDrain, Engine{Key: "a", Name: "a"}, "b")
			}
		}, true},
		"soon again": {func(l *Life) {
			l.clock.Last = last + kv.Second
			l.leave(ByDrain, Engine{Key: "a", Name: "a"}, "b")
		}, false},
	} {
		l := &Life{Request: &request.Request{MaxTokens: &limit}, clock: Stopwatch{Last: last}}
		c.change(l)
		if got := l.mayChoose(last + chosenRest); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPassages(t *testing.T) {
	last := 1000 * kv.Second
	local := &openai.Report{KV: openai.KVLocal}
	for name, c := range map[string]struct {
		passage   Passage
		lands     bool
		report    *openai.Report
		abandoned bool
		want      MoveEnd
		ok        bool
	}{
		"moved":                {Passage{Offered: true}, true, nil, false, MoveMoved, true},
		"told that it moved":   {Passage{}, true, &openai.Report{KV: openai.KVHandoff}, false, MoveMoved, true},
		"computed again":       {Passage{Offered: true}, true, local, false, MoveRecomputed, true},
		"nothing was offered":  {Passage{}, true, nil, false, MoveRecomputed, true},
		"it came back":         {Passage{Record: ledger.Move{From: "b"}}, true, local, false, MoveReturned, true},
		"nothing came of it":   {Passage{Offered: true}, false, nil, false, MoveLost, true},
		"its client has gone":  {Passage{Offered: true}, false, nil, true, 0, false},
		"gone after it landed": {Passage{Offered: true}, true, nil, true, MoveMoved, true},
	} {
		p := c.passage
		p.Last, p.Record.To = last, "b"
		if c.lands {
			p.Land(last + kv.Millisecond)
			p.Land(last + 60*kv.Minute) // the first token alone counts
		}
		if p.IsOver() {
			t.Errorf("%s: over before its end", name)
		}
		if end, ok := p.End(c.report, c.abandoned); end != c.want || ok != c.ok || !p.IsOver() {
			t.Errorf("%s: %v, %v, over %v", name, end, ok, p.IsOver())
		}
		if c.lands && p.Record.GapMs != 1 {
			t.Errorf("%s: a gap of %v ms", name, p.Record.GapMs)
		}
	}
	if !(*Passage)(nil).IsOver() {
		t.Error("no move is not over")
	}
}

// What engines hold of a prompt is recorded, the most first, with how the chosen one's was known.
func TestChoose(t *testing.T) {
	engines := []placement.Engine{{ID: "a", Name: "A", Held: 16}, {ID: "b", Name: "B", Held: 64, Told: true}, {ID: "c", Stored: 32}, {ID: "d"}}
	held := []ledger.Held{{Engine: "B", Tokens: 64, Told: true}, {Engine: "A", Tokens: 16}}
	for decode, want := range map[string]struct {
		known  Known
		stored *ledger.Stored
	}{
		"a": {KnownGuess, nil}, "b": {KnownTold, nil}, "c": {KnownStored, &ledger.Stored{Tokens: 32, Prompt: 40}}, "d": {KnownNothing, nil},
	} {
		l := &Life{Request: &request.Request{Tokens: 40}, Record: &ledger.Record{Held: []ledger.Held{{Engine: "old"}}}}
		if known := l.choose(engines, placement.Choice{Decode: decode}); known != want.known {
			t.Errorf("%s: known by %v, want %v", decode, known, want.known)
		}
		if diff := cmp.Diff(held, l.Record.Held) + cmp.Diff(want.stored, l.Record.Stored); diff != "" {
			t.Errorf("%s: %s", decode, diff)
		}
	}
}
