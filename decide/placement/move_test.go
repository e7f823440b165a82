package placement

import (
	"testing"

	"pgregory.net/rapid"
)

func TestMove(t *testing.T) {
	d := func(id string, running int) Engine { return Engine{ID: id, Role: Decode, Running: running} }
	doubtful := func(e Engine) Engine { e.Doubtful = true; return e }
	full := func(e Engine) Engine { e.Full = true; return e }
	for name, c := range map[string]struct {
		engines []Engine
		leaves  bool
		margin  int
		want    string
	}{
		"no other":              {[]Engine{d("a", 9)}, false, 1, ""},
		"no other, it must":     {[]Engine{d("a", 9)}, true, 1, ""},
		"as busy":               {[]Engine{d("a", 2), d("b", 2)}, false, 1, ""},
		"would only change":     {[]Engine{d("a", 2), d("b", 1)}, false, 1, ""},
		"less to do":            {[]Engine{d("a", 2), d("b", 0)}, false, 1, "b"},
		"not by so much":        {[]Engine{d("a", 3), d("b", 1)}, false, 2, ""},
		"by so much":            {[]Engine{d("a", 4), d("b", 1)}, false, 2, "b"},
		"the least":             {[]Engine{d("a", 9), d("b", 3), d("c", 2)}, false, 2, "c"},
		"it must leave":         {[]Engine{d("a", 1), d("b", 7)}, true, 2, "b"},
		"not to a doubtful one": {[]Engine{d("a", 9), doubtful(d("b", 0))}, true, 1, ""},
		"not to a full one":     {[]Engine{d("a", 9), full(d("b", 0))}, true, 1, ""},
		"a prefill engine":      {[]Engine{d("a", 9), {ID: "p", Role: Prefill}}, true, 1, ""},
		"away from a prefill":   {[]Engine{{ID: "a", Role: Prefill, Running: 1}, d("d", 5)}, true, 1, "d"},
		"what it holds":         {[]Engine{d("a", 9), {ID: "b", Role: Decode, Running: 3, Held: 5000}, d("c", 2)}, false, 1, "c"},
		"it is not known":       {[]Engine{d("b", 0)}, false, 1, ""},
	} {
		if to, _, ok := Move(c.engines, "a", Request{Turn: 1}, usual, c.leaves, c.margin); to != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q %v, want %q", name, to, ok, c.want)
		}
	}
}

// A request that a prefill engine generates for leaves for a decode engine that goes on with it
// at once.
func TestMoveToRoom(t *testing.T) {
	from := Engine{ID: "p", Role: Prefill, Running: 3, Spare: true}
	for name, c := range map[string]struct {
		decode Engine
		want   string
	}{
		"room":          {Engine{ID: "d", Role: Decode, Running: 9, Room: 1}, "d"},
		"one arrives":   {Engine{ID: "d", Role: Decode, Running: 9, Room: 2, Arriving: 1}, "d"},
		"enough arrive": {Engine{ID: "d", Role: Decode, Running: 9, Room: 2, Arriving: 2}, ""},
		"a queue":       {Engine{ID: "d", Role: Decode, Running: 9}, ""},
		"full":          {Engine{ID: "d", Role: Decode, Running: 9, Room: 1, Full: true}, ""},
		"in doubt":      {Engine{ID: "d", Role: Decode, Room: 9, Doubtful: true}, ""},
		"spare itself":  {Engine{ID: "p2", Role: Prefill, Room: 9, Spare: true}, ""},
	} {
		if to, _, ok := MoveToRoom([]Engine{from, c.decode}, "p", Request{Turn: 1}, usual); to != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q %v, want %q", name, to, ok, c.want)
		}
	}
}

// A request that moved by choice does not move back, whatever else there is.
func TestMoveIsNotUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := usual
		o.RunningTokens = rapid.IntRange(0, 100).Draw(t, "running tokens")
		margin := rapid.IntRange(0, 3).Draw(t, "margin")
		var engines []Engine
		for _, id := range []string{"a", "b", "c"} {
			engines = append(engines, Engine{
				ID: id, Role: rapid.SampledFrom([]Role{Decode, Both}).Draw(t, "role"),
				Running: rapid.IntRange(1, 12).Draw(t, "running"), Waiting: rapid.IntRange(0, 500).Draw(t, "waiting"),
			})
		}
		to, _, ok := Move(engines, "a", Request{Turn: 7}, o, false, margin)
		if !ok {
			return
		}
		for i := range engines {
			switch engines[i].ID {
			case "a":
				engines[i].Running--
			case to:
				engines[i].Running++
			}
		}
		if back, _, again := Move(engines, to, Request{Turn: 7}, o, false, margin); again && back == "a" {
			t.Fatalf("from a to %s and back: %+v", to, engines)
		}
	})
}
