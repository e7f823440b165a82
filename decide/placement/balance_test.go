package placement

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

const tenSeconds = int64(10e9)

func TestUneven(t *testing.T) {
	engines := func(a, b int) []Engine {
		return []Engine{{ID: "a", Role: Decode, Running: a}, {ID: "b", Role: Both, Running: b}, {ID: "p", Role: Prefill}, {ID: "x", Role: Decode, Doubtful: true}}
	}
	var b Balance
	for _, moment := range []struct {
		after   int64
		a, b    int
		want    bool
		because string
	}{
		{0, 9, 1, false, "it has just begun"},
		{unevenFor - 1, 9, 1, false, "it is short"},
		{unevenFor, 2, 8, true, "it lasts, whichever has more"},
		{unevenFor + balanceEvery - 1, 2, 8, false, "it was just said"},
		{unevenFor + balanceEvery, 2, 8, true, "it lasts on"},
		{unevenFor + 1, 5, 4, false, "it is over"},
		{unevenFor + 2, 9, 1, false, "it begins anew"},
		{2*unevenFor + 2, 9, 1, true, "it lasts again"},
		{2*unevenFor + 3, 4, 1, false, "by three only"},
		{2*unevenFor + 4, 40, 31, false, "by less than a quarter"},
	} {
		if got := b.Uneven(engines(moment.a, moment.b), usual, tenSeconds+moment.after); got != moment.want {
			t.Errorf("%s: %v", moment.because, got)
		}
	}
	if b.Uneven(engines(9, 0)[:1], usual, 5*tenSeconds) {
		t.Error("one engine is uneven alone")
	}
}

func TestMoveForBalance(t *testing.T) {
	d := func(id string, running int) Engine { return Engine{ID: id, Role: Decode, Running: running, Room: 64} }
	at := func(id, engine string, answer int) Running {
		return Running{ID: id, Engine: engine, Prompt: 100, Answer: answer}
	}
	for name, c := range map[string]struct {
		engines []Engine
		running []Running
		want    string
	}{
		"it moves":           {[]Engine{d("a", 9), d("b", 1)}, []Running{at("r", "a", 500)}, "r to b"},
		"the one that gains": {[]Engine{d("a", 9), d("b", 1)}, []Running{at("q", "a", 100), at("r", "a", 500), at("s", "b", 900)}, "r to b"},
		"too young":          {[]Engine{d("a", 9), d("b", 1)}, []Running{at("r", "a", 20)}, ""},
		"about to end":       {[]Engine{d("a", 9), d("b", 1)}, []Running{{ID: "r", Engine: "a", Answer: 500, Limit: 510}}, ""},
		"too much to carry":  {[]Engine{d("a", 9), d("b", 1)}, []Running{{ID: "r", Engine: "a", Prompt: 50_000, Answer: 500}}, ""},
		"it has just come":   {[]Engine{d("a", 9), d("b", 1)}, []Running{{ID: "r", Engine: "a", Answer: 500, Since: tenSeconds - balanceRest + 1}}, ""},
		"it moved often":     {[]Engine{d("a", 9), d("b", 1)}, []Running{{ID: "r", Engine: "a", Answer: 500, Moves: balanceMoves}}, ""},
		"the least":          {[]Engine{d("a", 9), d("b", 3), d("c", 1)}, []Running{at("r", "a", 500)}, "r to c"},
		"no room":            {[]Engine{d("a", 9), {ID: "b", Role: Decode, Running: 1}}, []Running{at("r", "a", 500)}, ""},
		"room for who comes": {[]Engine{d("a", 9), {ID: "b", Role: Decode, Running: 1, Room: 1, Arriving: 1}}, []Running{at("r", "a", 500)}, ""},
		"full":               {[]Engine{d("a", 9), {ID: "b", Role: Decode, Room: 9, Full: true}}, []Running{at("r", "a", 500)}, ""},
		"another that may":   {[]Engine{d("a", 9), d("b", 8), d("c", 0)}, []Running{at("r", "b", 500)}, "r to c"},
		"even":               {[]Engine{d("a", 4), d("b", 1)}, []Running{at("r", "a", 500)}, ""},
		"not to a prefill":   {[]Engine{d("a", 9), {ID: "p", Role: Prefill, Room: 9}}, []Running{at("r", "a", 500)}, ""},
		"not in doubt":       {[]Engine{d("a", 9), {ID: "b", Role: Decode, Room: 9, Doubtful: true}}, []Running{at("r", "a", 500)}, ""},
		"it failed there":    {[]Engine{d("a", 9), d("b", 1)}, []Running{{ID: "r", Engine: "a", Answer: 900, Avoids: []string{"b"}}, at("s", "a", 500)}, "s to b"},
		"at no known engine": {[]Engine{d("a", 9), d("b", 1)}, []Running{at("r", "z", 500)}, ""},
		"prompts count, too": {[]Engine{{ID: "a", Role: Decode, Running: 2, Waiting: 6000, Room: 9}, d("b", 1)}, []Running{at("r", "a", 500)}, "r to b"},
	} {
		which, to, why, ok := MoveForBalance(c.engines, c.running, usual, tenSeconds)
		got := ""
		if ok {
			got = c.running[which].ID + " to " + to
		}
		if got != c.want || ok && (why.Kind != RunsLess || why.Held >= why.Tokens) {
			t.Errorf("%s: %q because %q, want %q", name, got, why, c.want)
		}
	}
}

// Whatever runs where: moving until none moves ends, no request goes back or moves often, and
// no engine has more to do at the end than the busiest had.
func TestBalanceComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := usual
		o.RunningTokens = rapid.IntRange(0, 300).Draw(t, "running tokens")
		var engines []Engine
		var running []Running
		most := 0
		for i := range rapid.IntRange(1, 5).Draw(t, "engines") {
			e := Engine{
				ID: fmt.Sprint(i), Role: rapid.SampledFrom([]Role{Prefill, Decode, Both}).Draw(t, "role"), Waiting: rapid.IntRange(0, 3000).Draw(t, "waiting"),
				Running: rapid.IntRange(0, 30).Draw(t, "running"), Room: rapid.IntRange(0, 8).Draw(t, "room"), Doubtful: rapid.IntRange(0, 5).Draw(t, "doubtful") == 0,
				Full: rapid.IntRange(0, 5).Draw(t, "full") == 0,
			}
			for range e.Running {
				running = append(running, Running{ID: fmt.Sprint(len(running)), Engine: e.ID, Prompt: rapid.IntRange(0, 5000).Draw(t, "prompt"), Answer: rapid.IntRange(0, 2000).Draw(t, "answer")})
			}
			most = max(most, o.load(&e))
			engines = append(engines, e)
		}
		left := make(map[string]bool)
		for moves := 0; ; moves++ {
			which, to, _, ok := MoveForBalance(engines, running, o, tenSeconds)
			if !ok {
				break
			}
			if moves > len(running)*balanceMoves {
				t.Fatal("it never ends")
			}
			r := &running[which]
			if left[r.ID+" "+to] {
				t.Fatalf("%s goes back to %s", r.ID, to)
			}
			left[r.ID+" "+r.Engine] = true
			for i := range engines {
				switch e := &engines[i]; e.ID {
				case r.Engine:
					e.Running--
				case to:
					if e.Running++; e.Full || e.Doubtful || e.Role&Decode == 0 || e.Room <= e.Arriving || o.load(e) >= most {
						t.Fatalf("%s moves to %+v", r.ID, *e)
					}
					e.Arriving++
				}
			}
			r.Engine, r.Moves = to, r.Moves+1
		}
	})
}
