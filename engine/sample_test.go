package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGreedyTakesTheLowestOfEqualTokens(t *testing.T) {
	if got := (Sampling{}).draw([]float32{never, 1, 3, 3, 2}, place{}); got != 2 {
		t.Errorf("got %d", got)
	}
}

// What is drawn is distributed as the logits say.
func TestDrawsFollowTheLogits(t *testing.T) {
	logits := []float32{0, 1, 2, never, 3}
	for name, c := range map[string]struct {
		s    Sampling
		want []float64
	}{
		"plain": {Sampling{Temperature: 1}, []float64{0.0321, 0.0871, 0.2369, 0, 0.6439}},
		"hot":   {Sampling{Temperature: 2}, []float64{0.1015, 0.1674, 0.2760, 0, 0.4551}},
		"top k": {Sampling{Temperature: 1, TopK: 2}, []float64{0, 0, 0.2689, 0, 0.7311}},
		"top p": {Sampling{Temperature: 1, TopP: 0.7}, []float64{0, 0, 0.2689, 0, 0.7311}},
		"one":   {Sampling{Temperature: 1, TopP: 0.001}, []float64{0, 0, 0, 0, 1}},
	} {
		const draws = 40_000
		counts := make([]float64, len(logits))
		for i := range draws {
			c.s.Seed = uint64(i / 100)
			counts[c.s.draw(slices.Clone(logits), place{position: i % 50, choice: i % 2})]++
		}
		for token, want := range c.want {
			if got := counts[token] / draws; math.Abs(got-want) > 0.015 {
				t.Errorf("%s: token %d is drawn with %.3f, want %.3f", name, token, got, want)
			}
		}
	}
}

func TestDiceDependOnEverything(t *testing.T) {
	seen := make(map[float64]bool)
	for seed := range uint64(10) {
		for position := range 10 {
			for choice := range 10 {
				v := Sampling{Seed: seed}.dice(place{position, choice})
				if v < 0 || v >= 1 || seen[v] {
					t.Fatalf("seed %d, position %d, choice %d: %g", seed, position, choice, v)
				}
				seen[v] = true
			}
		}
	}
}

func TestLogprobs(t *testing.T) {
	logits := []float32{1, 3, never, 2, 3}
	p := logprobOf(logits, 0, 3)
	sum := math.Exp(1) + 2*math.Exp(3) + math.Exp(2)
	if want := 1 - math.Log(sum); math.Abs(p.Logprob-want) > 1e-9 {
		t.Errorf("got %g, want %g", p.Logprob, want)
	}
	var tokens []uint32
	for _, a := range p.Top {
		tokens = append(tokens, a.Token)
	}
	if !slices.Equal(tokens, []uint32{1, 4, 3}) {
		t.Errorf("the likeliest are %v", tokens)
	}
	if p := logprobOf(logits, 2, 0); p.Logprob != leastLogprob || p.Top != nil {
		t.Errorf("impossible: %+v", p)
	}
}

// Wherever a text is cut, it ends before the first stop text, and nothing is
// told too early or too late.
func TestStopper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 1, 4, -1)
		stops := rapid.SliceOfN(letters, 0, 3).Draw(t, "stops")
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 0, 30, -1).Draw(t, "text")
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "cuts"), 0))
		s := stopper{stops: stops}
		var got string
		stopped := false
		for rest := text; rest != "" && !stopped; {
			n := 1 + dice.IntN(len(rest))
			var piece string
			piece, stopped = s.add(rest[:n])
			got, rest = got+piece, rest[n:]
			seen := text[:len(text)-len(rest)]
			for _, stop := range stops {
				// What has been told is no beginning of a stop text that may come.
				for k := 1; k < len(stop); k++ {
					if !stopped && strings.HasSuffix(seen, stop[:k]) && len(got) > len(seen)-k {
						t.Fatalf("%q of %q was told, but %q may follow", got, seen, stop)
					}
				}
			}
		}
		if !stopped {
			got += s.flush()
		}
		there := func(in string) bool {
			return slices.ContainsFunc(stops, func(stop string) bool { return strings.Contains(in, stop) })
		}
		ends := func(at int) bool {
			return slices.ContainsFunc(stops, func(stop string) bool { return strings.HasPrefix(text[at:], stop) })
		}
		if stopped != there(text) || !strings.HasPrefix(text, got) || there(got) || stopped && !ends(len(got)) || !stopped && got != text {
			t.Fatalf("%q with %q: %q, stopped %v", text, stops, got, stopped)
		}
	})
}
