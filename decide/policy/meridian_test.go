package policy

import (
	"testing"

	"meridian/kv"
	"pgregory.net/rapid"
)

func TestMeridianServesAnswersThenThoughtsThenNewcomers(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 100, PreemptMaxFraction: 0.1}, 1)
	for i := range 4 {
		w.arrive(i, 0, 80, 10, 10)
	}
	w.hold(0, kv.Think, 8, 1, 0)
	w.hold(2, kv.Output, 8, 1, 1)
	p := newPolicy(t, "meridian")
	w.s.Costs.FreeTokens = 40
	// Prompts get what is free beside those who decode.
	if got, want := decide(t, w, p), "run[{2 1} {0 1} {1 40}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Most of those who decode are read: what the time of the step allows.
	w.s.Requests[0].Phase = kv.Output
	if got, want := decide(t, w, p), "run[{0 1} {2 1} {1 80} {3 18}]"; got != want {
		t.Errorf("answers alone: %s, want %s", got, want)
	}
	w.s.Requests[0].Phase = kv.Think
	// Not known: what the time of the step allows, 60 ms at 20 µs a token.
	w.s.Costs.FreeTokens = 0
	if got, want := decide(t, w, p), "run[{2 1} {0 1} {1 80} {3 18}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// None decodes: none is in a hurry.
	w.s.Costs.FreeTokens, w.s.Requests = 40, w.s.Requests[3:]
	if got, want := decide(t, w, p), "run[{0 80}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMeridianBackfills(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 10, PreemptMaxFraction: 0.1}, 1)
	w.arrive(0, 0, 8, 10, 10)
	w.hold(0, kv.Think, 8, 1, 0)
	w.arrive(1, 0, 40, 10, 10) // needs ten blocks of seven
	w.arrive(2, 0, 8, 10, 10)
	p := newPolicy(t, "meridian")
	if got, want := decide(t, w, p), "run[{0 1} {2 8}]"; got != want {
		t.Errorf("one that does not fit: %s, want %s", got, want)
	}
	w.s.Requests = w.s.Requests[:2]
	// No other is there; but one that came now could go first only that long.
	if got, until := decide(t, w, p), w.s.Requests[1].Arrived+Second; got != "run[{0 1}]" || w.d.Until != until {
		t.Errorf("one that does not fit, alone: %s until %d, want %d", got, w.d.Until, until)
	}
	w.arrive(2, 0, 8, 10, 10)
	w.s.Now += Second
	if got, want := decide(t, w, p), "run[{0 1}]"; got != want || w.d.Steps < 2 {
		t.Errorf("one that has not fitted for a second: %s for %d steps, want %s", got, w.d.Steps, want)
	}
}

// Tenants that always have requests waiting are served alike, however many they
// send: what one is ahead is FairTokens, and what was let in before that showed.
func TestMeridianIsFair(t *testing.T) {
	const fair = 500
	rapid.Check(t, func(t *rapid.T) {
		p, err := New("meridian", Options{FairTokens: fair, Backfill: 1})
		if err != nil {
			t.Fatal(err)
		}
		w := drawWorld(t)
		// A request costs 60 + 2·(80 + 50) tokens at most, and so many run at once.
		bound := fair + 320*int64(w.s.Limits.Sequences+2)
		for id := 0; w.lastStep < 1500; id++ {
			var waits [2]int
			for i := range w.s.Requests {
				if r := &w.s.Requests[i]; r.State == Waiting {
					waits[r.Tenant]++
				}
			}
			for tenant, want := range []int{6, 2} { // the first sends three times as many
				for ; waits[tenant] < want; waits[tenant]++ {
					w.arrive(id, int32(tenant), 20+40*int32(1-tenant), rapid.Int32Range(0, 80).Draw(t, "think"), rapid.Int32Range(1, 50).Draw(t, "output"))
				}
			}
			p.Decide(&w.s, &w.d)
			w.apply(20 * Millisecond)
			if ahead := w.s.Tenants[0].Served - w.s.Tenants[1].Served; ahead > bound || ahead < -bound {
				t.Fatalf("step %d: one tenant is %d tokens ahead, %d may be", w.lastStep, ahead, bound)
			}
		}
	})
}
