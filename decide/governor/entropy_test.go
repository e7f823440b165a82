package governor

import (
	"errors"
	"math"
	"slices"
	"testing"

	"meridian/decide/entropy"
	"meridian/kv"
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
	if len(d.Force) != 1 || d.Force[0].Reason != HardCap {
		t.Errorf("%+v", d.Force)
	}
}

// What is not a number was not measured.
func TestNothingButNaN(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	nothing := slices.Repeat([]float64{math.NaN()}, 11)
	d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: append([]uint32{thinkID}, tokens(10, 5)...), Entropies: nothing}}})
	if len(d.Force) != 1 || d.Force[0].Reason != HardCap {
		t.Errorf("%+v", d.Force)
	}
	if got := g.byNumber[1].thought.heard; got != entropy.None {
		t.Errorf("heard %v", got)
	}
}

// forkable is a governor whose engine forks, and whose token 6 ends a line, 7 a
// paragraph.
func forkable(t *testing.T) *Governor {
	o := options(t, &scripted{})
	o.Budget.MaxThinkTokens, o.Forks = 1<<20, true
	o.Texts = func(id uint32) []byte { return []byte(map[uint32]string{5: "a", 6: "\n", 7: ".\n\n", 8: "\nb"}[id]) }
	g := open(t, o)
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID, 5}}}})
	return g
}

// A fork that the engine does not answer is asked for again, and not at once; an
// answer that is late counts.
func TestAForkThatNobodyAnswers(t *testing.T) {
	g := forkable(t)
	paragraph := Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{7}}}}
	asked := []int{}
	for i := range 2*forkAgain + 1 {
		if d := step(t, g, paragraph); len(d.Fork) > 0 {
			asked = append(asked, i)
		}
	}
	if want := []int{0, forkAgain, 2 * forkAgain}; !slices.Equal(asked, want) {
		t.Errorf("asked after %v paragraphs, want %v", asked, want)
	}
	step(t, g, Facts{Forks: []Fork{{Sequence: 1, Nats: 0.5}}})
	if d := step(t, g, paragraph); len(d.Fork) != 1 {
		t.Error("no fork after an answer that was late")
	}
}

// A paragraph may end with two tokens, each of which ends a line.
func TestParagraphsOfTwoTokens(t *testing.T) {
	for name, c := range map[string]struct {
		tokens []uint32
		want   int
	}{
		"one token":           {[]uint32{7}, 1},
		"two":                 {[]uint32{6, 6}, 1},
		"two, and text":       {[]uint32{6, 8}, 1},
		"a line":              {[]uint32{6, 5}, 0},
		"lines":               {[]uint32{6, 5, 6, 5}, 0},
		"a special between":   {[]uint32{6, 99, 6}, 1},
		"a line with a start": {[]uint32{5, 8}, 0},
	} {
		g := forkable(t)
		forks := 0
		for _, id := range c.tokens {
			forks += len(step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{id}}}}).Fork)
		}
		if forks != c.want {
			t.Errorf("%s: %d forks, want %d", name, forks, c.want)
		}
	}
}
