package governor

import (
	"errors"
	"math"
	"slices"
	"testing"

	"meridian/kv"
	"meridian/probe"
)

// A thought that goes on here misses the entropies of its beginning: no mean of it
// is known, so nothing calls it overthinking.
func TestATailIsNotOverthinking(t *testing.T) {
	o := options(t, &scripted{})
	o.Budget.MaxThinkTokens = 1 << 20
	for name, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
		g := open(t, o)
		step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
		calm := Commit{Sequence: 1, Computed: 4, Tokens: append([]uint32{thinkID}, tokens(2000, 5)...), Entropies: slices.Repeat([]float64{0.1}, 2001)}
		step(t, g, Facts{Commits: []Commit{calm}})
		if elsewhere {
			carry, _ := g.Carry(1)
			a := arrival(1)
			a.Resumed = &carry
			g = open(t, o)
			step(t, g, Facts{Arrivals: []Arrival{a}})
		}
		for range 3 {
			lost := Commit{Sequence: 1, Computed: 512, Tokens: tokens(512, 5), Entropies: slices.Repeat([]float64{0.1}, 512)}
			step(t, g, Facts{Commits: []Commit{lost}})
		}
		d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 512, Tokens: tokens(512, 5), Entropies: slices.Repeat([]float64{9}, 512)}}})
		if forced := len(d.Force) > 0; forced == elsewhere {
			t.Errorf("begun %s: %v", name, d.Force)
		}
	}
}

// Entropies of another number than the tokens are left out; the tokens are not.
func TestTokensWithoutTheirEntropies(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	d := g.Step(&Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: append([]uint32{thinkID}, tokens(10, 5)...), Entropies: []float64{1}}}})
	if c := g.Counters(); c.Contradictions != 1 || !errors.Is(c.LastContradiction, ErrContradiction) || g.Phase(1) != kv.Think {
		t.Errorf("%+v in %v", c, g.Phase(1))
	}
	if len(d.Force) != 1 || d.Force[0].Reason != HardCap || d.Force[0].Entropy != Absent {
		t.Errorf("%+v", d.Force)
	}
}

// What is not a number was not measured.
func TestNothingButNaN(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	nothing := slices.Repeat([]float64{math.NaN()}, 11)
	d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: append([]uint32{thinkID}, tokens(10, 5)...), Entropies: nothing}}})
	if len(d.Force) != 1 || d.Force[0].Entropy != Absent {
		t.Errorf("%+v", d.Force)
	}
	if got := g.byNumber[1].thought.heard; got != probe.None {
		t.Errorf("heard %v", got)
	}
}
