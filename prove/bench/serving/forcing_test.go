package serving

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/prove/bench"
)

func TestForcingOptions(t *testing.T) {
	good := ForcingOptions{Thought: 100, Answer: 8, Settles: []int{20}, Strays: []int{30}, Caps: []int{40}, Requests: 2, Alpha: 0.5, Interval: 4, MinThink: 8}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*ForcingOptions){
		"no answer": func(o *ForcingOptions) { o.Answer = 0 }, "too long": func(o *ForcingOptions) { o.Thought = maxForcing }, "no requests": func(o *ForcingOptions) { o.Requests = 0 },
		"no weight": func(o *ForcingOptions) { o.Alpha = 0 }, "no paragraph": func(o *ForcingOptions) { o.Interval = 3 }, "never": func(o *ForcingOptions) { o.MinThink = 100 },
		"no signal": func(o *ForcingOptions) { o.Settles, o.Strays, o.Caps = nil, nil, nil }, "behind it": func(o *ForcingOptions) { o.Caps = []int{100} },
	} {
		o := good
		change(&o)
		if err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A trace has its signal where it is said to be, and the last has none.
func TestForcingCases(t *testing.T) {
	o := ForcingOptions{Thought: 100, Settles: []int{20}, Strays: []int{30}, Caps: []int{40}, Interval: 4}
	cases := o.cases()
	if len(cases) != 4 || cases[3].signal != "" || cases[2].limit == nil || *cases[2].limit != 40 {
		t.Fatalf("%+v", cases)
	}
	if forks := cases[0].trace.Forks; len(forks) != 21 || forks[20] != settled || slices.Contains(forks[:20], settled) || forks[0] == forks[4] || forks[0] != forks[3] {
		t.Errorf("it settles at another place: %v", forks)
	}
	if tokens := cases[1].trace.Tokens; len(tokens) != 31 || tokens[29] != onTheWay || tokens[30] != astray {
		t.Errorf("it strays at another place: %v", tokens)
	}
	if forks := cases[3].trace.Forks; len(forks) != 101 || slices.Contains(forks, settled) {
		t.Errorf("it settles: %v", forks)
	}
}

func TestForcedThought(t *testing.T) {
	answer := func(tokens ...uint32) (a forcingAnswer) {
		a.Choices = append(a.Choices, struct {
			TokenIDs []uint32 `json:"token_ids"`
		}{tokens})
		return a
	}
	alone := answer(900, 1, 2, 3, 4, 901, 7, 8)
	for _, c := range []struct {
		tokens []uint32
		want   int
		sound  bool
	}{
		{[]uint32{900, 1, 2, 901, 7, 8, 9, 9}, 2, true},
		{[]uint32{900, 1, 2, 3, 4, 901, 7, 8}, 4, true},
		{[]uint32{900, 1, 2, 3, 4, 5, 7, 8}, 0, false},
		{[]uint32{1, 2, 901, 7, 8, 9, 9, 9}, 0, false},
		{[]uint32{900, 1, 2, 3, 4, 5, 6, 901}, 0, false},
	} {
		a := answer(c.tokens...)
		if got, err := a.thought(alone, 4); got != c.want || (err == nil) != c.sound {
			t.Errorf("%v: %d, %v", c.tokens, got, err)
		}
	}
}

func TestForcingReport(t *testing.T) {
	row := ForcingRow{Signal: "converged", Point: 100, Reasons: make(map[string]int)}
	row.add(400, 120, "converged")
	row.add(400, 90, "converged")
	row.add(400, 400, "")
	none := ForcingRow{Point: 400, Reasons: make(map[string]int)}
	none.add(400, 400, "")
	var text strings.Builder
	if err := (&ForcingReport{Rows: []ForcingRow{row, none}}).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"converged  100          1200             610   49.2 %  [-10–300]  converged 2, by themselves 1",
		"none       –            400              400   0.0 %   –          by themselves 1",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("there is no %q in\n%s", want, text.String())
		}
	}
}
