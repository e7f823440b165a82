package placement

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var usual = Options{DirectTokens: 256, AffinityWeight: 1, RunningTokens: 64, StoredWeight: 0.25}

func TestChoose(t *testing.T) {
	p := func(id string, waiting, held int) Engine {
		return Engine{ID: id, Role: Prefill, Waiting: waiting, Held: held}
	}
	d := func(id string, running, held int) Engine {
		return Engine{ID: id, Role: Decode, Running: running, Held: held}
	}
	full := func(e Engine) Engine { e.Full = true; return e }
	spare := func(e Engine) Engine { e.Spare = true; return e }
	b := func(id string, running int) Engine { return Engine{ID: id, Role: Both, Running: running} }
	stored := func(e Engine, tokens int) Engine { e.Stored = tokens; return e }
	doubtful := func(e Engine) Engine { e.Doubtful = true; return e }
	for name, c := range map[string]struct {
		engines []Engine
		request Request
		want    string
	}{
		"long":              {[]Engine{p("p0", 0, 0), d("d0", 0, 0)}, Request{Tokens: 1000}, "prefill=p0 (the only one), decode=d0 (the only one)"},
		"short":             {[]Engine{p("p0", 0, 0), d("d0", 0, 0)}, Request{Tokens: 256}, "prefill=none (short, 256 tokens), decode=d0 (the only one)"},
		"cached":            {[]Engine{p("p0", 0, 0), d("d0", 0, 0), d("d1", 0, 900)}, Request{Tokens: 1000}, "prefill=none (cached, 900 of 1000 tokens), decode=d1 (prefix 900/1000)"},
		"least loaded":      {[]Engine{p("p0", 5000, 0), p("p1", 10, 0), d("d0", 9, 0), d("d1", 2, 0)}, Request{Tokens: 1000}, "prefill=p1 (least loaded), decode=d1 (least loaded)"},
		"prefix":            {[]Engine{p("p0", 100, 768), p("p1", 0, 0), d("d0", 0, 0)}, Request{Tokens: 1000}, "prefill=p0 (prefix 768/1000), decode=d0 (the only one)"},
		"prefix, but busy":  {[]Engine{p("p0", 5000, 768), p("p1", 0, 0), d("d0", 0, 0)}, Request{Tokens: 1000}, "prefill=p1 (least loaded), decode=d0 (the only one)"},
		"none prefills":     {[]Engine{d("d0", 0, 0)}, Request{Tokens: 1000}, "prefill=none (no prefill engine), decode=d0 (the only one)"},
		"one for both":      {[]Engine{b("b0", 0)}, Request{Tokens: 1000}, "prefill=none (the decode engine is the best for it), decode=b0 (the only one)"},
		"several answers":   {[]Engine{p("p0", 0, 0), d("d0", 0, 0)}, Request{Tokens: 1000, Whole: true}, "prefill=none (several answers at once), decode=d0 (the only one)"},
		"not the doubtful":  {[]Engine{doubtful(d("d0", 0, 0)), d("d1", 50, 0)}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d1 (the only one)"},
		"only the doubtful": {[]Engine{doubtful(d("d0", 0, 0))}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d0 (failed lately, no other is there)"},
		"not the full":      {[]Engine{full(d("d0", 0, 0)), d("d1", 50, 0)}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d1 (the only one)"},
		"only the full":     {[]Engine{p("p0", 0, 0), full(d("d0", 0, 0))}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d0 (full lately, no other is there)"},
		"full, not in doubt": {
			[]Engine{doubtful(d("d0", 0, 0)), full(d("d1", 5, 0))}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d1 (full lately, no other is there)",
		},
		"a spare one": {
			[]Engine{spare(p("p0", 0, 0)), spare(p("p1", 0, 768)), full(d("d0", 0, 0))}, Request{Tokens: 1000}, "prefill=none (decode engines are full), decode=p1 (decode engines are full)",
		},
		"none is left":          {[]Engine{spare(p("p0", 0, 0))}, Request{Tokens: 1000, Overflows: true}, "prefill=none (decode engines are full), decode=p0 (decode engines are full)"},
		"spare, and not needed": {[]Engine{spare(p("p0", 0, 0)), d("d0", 90, 0)}, Request{Tokens: 1, Overflows: true}, "prefill=none (short, 1 tokens), decode=d0 (the only one)"},
		"a full one is not spare": {
			[]Engine{full(spare(p("p0", 0, 0))), doubtful(spare(p("p1", 0, 0))), full(d("d0", 0, 0))}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=d0 (full lately, no other is there)",
		},
		"specialists first": {[]Engine{b("a", 0), d("b", 0, 0)}, Request{Tokens: 1}, "prefill=none (short, 1 tokens), decode=b (equal, drawn)"},
		"both may prefill":  {[]Engine{b("b0", 3), b("b1", 0), b("b2", 9)}, Request{Tokens: 1000, Turn: 3}, ""},
		"stored": {
			[]Engine{p("p0", 0, 0), stored(d("d0", 3, 0), 896), stored(d("d1", 0, 0), 896)},
			Request{Tokens: 1000},
			"prefill=none (stored, 896 of 1000 tokens), decode=d1 (least loaded)",
		},
		"stored, not enough": {[]Engine{stored(p("p0", 0, 0), 704), stored(d("d0", 0, 0), 704)}, Request{Tokens: 1000}, "prefill=p0 (the only one), decode=d0 (the only one)"},
		"one can fetch": {
			[]Engine{p("p0", 0, 0), d("d0", 0, 0), stored(d("d1", 2, 0), 896)},
			Request{Tokens: 1000},
			"prefill=none (stored, 896 of 1000 tokens), decode=d1 (stored 896/1000)",
		},
		"held before stored": {
			[]Engine{p("p0", 0, 0), stored(d("d0", 0, 896), 896), stored(d("d1", 0, 0), 896)},
			Request{Tokens: 1000},
			"prefill=none (cached, 896 of 1000 tokens), decode=d0 (prefix 896/1000)",
		},
		"held, but busy": {
			[]Engine{p("p0", 0, 0), stored(d("d0", 9, 896), 896), stored(d("d1", 0, 0), 896)},
			Request{Tokens: 1000},
			"prefill=none (stored, 896 of 1000 tokens), decode=d1 (least loaded)",
		},
		"unknown affiliates": {[]Engine{p("p0", 0, 0)}, Request{Tokens: 1}, "no engine"},
	} {
		got, err := Choose(c.engines, c.request, usual)
		switch {
		case c.want == "no engine":
			if !errors.Is(err, ErrNoEngine) {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && got.String() != c.want:
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func someEngines(t *rapid.T) []Engine {
	var engines []Engine
	for _, id := range rapid.SliceOfDistinct(rapid.StringMatching(`[a-z]{1,2}`), rapid.ID).Draw(t, "ids") {
		engines = append(engines, Engine{
			ID: id, Role: rapid.SampledFrom([]Role{Prefill, Decode, Both}).Draw(t, "role"), Doubtful: rapid.Bool().Draw(t, "doubtful"),
			Running: rapid.IntRange(0, 50).Draw(t, "running"), Waiting: rapid.IntRange(0, 5000).Draw(t, "waiting"), Held: rapid.IntRange(0, 4000).Draw(t, "held"),
			Stored: rapid.IntRange(0, 4000).Draw(t, "stored"),
		})
	}
	return engines
}

func someRequest(t *rapid.T) Request {
	return Request{Tokens: rapid.IntRange(0, 4000).Draw(t, "tokens"), Whole: rapid.Bool().Draw(t, "whole"), Turn: rapid.Uint64().Draw(t, "turn")}
}

// Whatever is there, a choice keeps the laws of placement.
func TestChoiceLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engines, r := someEngines(t), someRequest(t)
		find := func(id string) Engine {
			return engines[slices.IndexFunc(engines, func(e Engine) bool { return e.ID == id })]
		}
		c, err := Choose(engines, r, usual)
		decoders := slices.DeleteFunc(slices.Clone(engines), func(e Engine) bool { return e.Role&Decode == 0 })
		if (err != nil) != (len(decoders) == 0) {
			t.Fatalf("%d decode, and the answer is %v, %v", len(decoders), c, err)
		}
		if err != nil {
			return
		}
		decode := find(c.Decode)
		sound := slices.ContainsFunc(decoders, func(e Engine) bool { return !e.Doubtful })
		if decode.Role&Decode == 0 || decode.Doubtful && sound {
			t.Fatalf("%+v decodes", decode)
		}
		if c.DecodeWhy.Kind == 0 || c.PrefillWhy.Kind == 0 {
			t.Fatalf("no reason: %v", c)
		}
		for _, e := range decoders {
			if e.Doubtful == decode.Doubtful && usual.cost(&e, Decode, r) < usual.cost(&decode, Decode, r) {
				t.Fatalf("%v was cheaper than %v", e, decode)
			}
		}
		if c.Prefill == "" {
			return
		}
		if prefill := find(c.Prefill); prefill.Role&Prefill == 0 || c.Prefill == c.Decode {
			t.Fatalf("%+v prefills for %s", prefill, c.Decode)
		}
		if r.Whole || r.Tokens-max(decode.Held, decode.Stored) <= usual.DirectTokens {
			t.Fatalf("%+v was split: %v", r, c)
		}
		// The order in which engines are listed decides nothing.
		slices.Reverse(engines)
		if again, _ := Choose(engines, r, usual); again != c {
			t.Fatalf("%v became %v", c, again)
		}
	})
}

// Without an object cache, what one would weigh changes nothing; and where fetching
// gains nothing, neither does what is stored.
func TestNothingStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engines, r := someEngines(t), someRequest(t)
		none := slices.Clone(engines)
		for i := range none {
			none[i].Stored = 0
		}
		without := Options{DirectTokens: 256, AffinityWeight: 1, RunningTokens: 64}
		useless := without
		useless.StoredWeight = 1
		want, wantErr := Choose(none, r, without)
		for name, got := range map[string]func() (Choice, error){
			"a weight":         func() (Choice, error) { return Choose(none, r, usual) },
			"a useless object": func() (Choice, error) { return Choose(engines, r, useless) },
		} {
			if c, err := got(); c != want || !errors.Is(err, wantErr) {
				t.Fatalf("%s made %v, %v of %v, %v", name, c, err, want, wantErr)
			}
		}
	})
}

// An engine that can fetch more of a prompt is not chosen less for it, and does not
// send the prompt elsewhere.
func TestMoreStoredIsNoWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engines, r := someEngines(t), someRequest(t)
		o := usual
		o.StoredWeight = rapid.Float64Range(0, 1.5).Draw(t, "weight")
		before, err := Choose(engines, r, o)
		if err != nil {
			return
		}
		at := slices.IndexFunc(engines, func(e Engine) bool { return e.ID == before.Decode })
		engines[at].Stored += rapid.IntRange(0, 4000).Draw(t, "more")
		after, err := Choose(engines, r, o)
		if err != nil || after.Decode != before.Decode || before.Prefill == "" && after.Prefill != "" {
			t.Fatalf("with more stored, %v became %v, %v", before, after, err)
		}
	})
}

// Equal engines share the work.
func TestTurnsSpread(t *testing.T) {
	engines := []Engine{{ID: "d0", Role: Decode}, {ID: "d1", Role: Decode}, {ID: "d2", Role: Decode}}
	count := make(map[string]int)
	for turn := range uint64(3000) {
		c, _ := Choose(engines, Request{Tokens: 1, Turn: turn}, usual)
		count[c.Decode]++
	}
	for id, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s got %d of 3000", id, n)
		}
	}
}

func TestChoosePrefillLeavesTheDecodeEngine(t *testing.T) {
	engines := []Engine{{ID: "b0", Role: Both}}
	if c, ok := ChoosePrefill(engines, "b0", Request{Tokens: 1000}, usual); ok || c.PrefillWhy.Kind == 0 {
		t.Errorf("b0 was to prefill for itself (%s)", c.PrefillWhy)
	}
	engines = append(engines, Engine{ID: "p1", Role: Prefill})
	if c, ok := ChoosePrefill(engines, "b0", Request{Tokens: 1000}, usual); !ok || c.Prefill != "p1" || c.DecodeWhy.Kind != AsBefore {
		t.Errorf("got %s, %v", c.Prefill, ok)
	}
}
