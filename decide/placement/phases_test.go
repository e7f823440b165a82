package placement

import "testing"

func TestPhasesOfRequests(t *testing.T) {
	d := func(id string, phases Phases, running int) Engine {
		return Engine{ID: id, Role: Decode, Phases: phases, Running: running}
	}
	full := func(e Engine) Engine { e.Full = true; return e }
	for name, c := range map[string]struct {
		engines []Engine
		phase   Phases
		want    string
		why     ReasonKind
	}{
		"a thought":                 {[]Engine{d("a", Answer, 0), d("t", Think, 3)}, Think, "t", ForPhase},
		"an answer":                 {[]Engine{d("a", Answer, 3), d("t", Think, 0)}, Answer, "a", ForPhase},
		"not known":                 {[]Engine{d("a", Answer, 3), d("t", Think, 0)}, 0, "t", LeastLoaded},
		"one does both":             {[]Engine{d("b", 0, 3), d("t", Think, 0)}, Answer, "b", ForPhase},
		"both, said so":             {[]Engine{d("b", Think|Answer, 3), d("t", Think, 0)}, Answer, "b", ForPhase},
		"all do both":               {[]Engine{d("a", 0, 3), d("b", 0, 0)}, Answer, "b", LeastLoaded},
		"the one for it is busy":    {[]Engine{d("a", Answer, offPhase+1), d("t", Think, 0)}, Answer, "t", LeastLoaded},
		"the one for it is full":    {[]Engine{full(d("a", Answer, 0)), d("t", Think, 9)}, Answer, "t", OnlyOne},
		"the least of those for it": {[]Engine{d("a", Answer, 3), d("c", Answer, 2), d("t", Think, 0)}, Answer, "c", ForPhase},
	} {
		choice, err := Choose(c.engines, Request{Tokens: 10, Phase: c.phase, Turn: 1}, usual)
		if err != nil || choice.Decode != c.want || choice.DecodeWhy.Kind != c.why {
			t.Errorf("%s: %s, %v", name, choice, err)
		}
	}
}

func TestMoveToPhase(t *testing.T) {
	from := Engine{ID: "t", Role: Decode, Phases: Think, Running: 1}
	for name, c := range map[string]struct {
		other Engine
		want  string
	}{
		"for answers":  {Engine{ID: "a", Role: Decode, Phases: Answer, Running: 50}, "a"},
		"for both":     {Engine{ID: "a", Role: Decode, Running: 50}, "a"},
		"for thoughts": {Engine{ID: "a", Role: Decode, Phases: Think}, ""},
		"full":         {Engine{ID: "a", Role: Decode, Phases: Answer, Full: true}, ""},
		"in doubt":     {Engine{ID: "a", Role: Decode, Phases: Answer, Doubtful: true}, ""},
		"prefills":     {Engine{ID: "a", Role: Prefill, Phases: Answer}, ""},
	} {
		to, why, ok := MoveToPhase([]Engine{from, c.other}, "t", Request{Phase: Answer}, usual)
		if to != c.want || ok != (c.want != "") || ok && why.String() != "meant for answers" {
			t.Errorf("%s: %q (%s) %v, want %q", name, to, why, ok, c.want)
		}
	}
}

// Engines for thoughts and engines for answers are not made even.
func TestBalanceStaysWithinPhases(t *testing.T) {
	of := func(id string, phases Phases, running int) Engine {
		return Engine{ID: id, Role: Decode, Phases: phases, Running: running, Room: 9}
	}
	long := func(engine string) []Running {
		return []Running{{ID: "r", Engine: engine, Prompt: 10, Answer: 1000}}
	}
	apart := []Engine{of("t", Think, 20), of("a", Answer, 0)}
	if _, to, _, ok := MoveForBalance(apart, long("t"), usual, tenSeconds); ok {
		t.Errorf("a thought moves to %s", to)
	}
	if most, least := extremes(apart, usual); most != nil || least != nil {
		t.Error("they are compared")
	}
	alike := []Engine{of("t", Think, 1), of("a", Answer, 20), of("b", Answer, 0)}
	if _, to, _, ok := MoveForBalance(alike, long("a"), usual, tenSeconds); !ok || to != "b" {
		t.Errorf("an answer moves to %q", to)
	}
	if most, least := extremes(alike, usual); most == nil || most.ID != "a" || least.ID != "b" {
		t.Error("those of the same phases are not compared")
	}
}

func TestParsePhases(t *testing.T) {
	for _, text := range []string{"think", "answer", "both"} {
		if p, err := ParsePhases(text); err != nil || p.String() != text {
			t.Errorf("%s: %s %v", text, p, err)
		}
	}
	if _, err := ParsePhases("thoughts"); err == nil {
		t.Error("it is read")
	}
}
