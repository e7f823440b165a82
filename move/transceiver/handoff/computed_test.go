package handoff

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// cells is a staircase, written out: which layers of which tokens exist.
func cells(c Computed, layers, tokens int) [][]bool {
	all := make([][]bool, layers)
	for layer := range all {
		all[layer] = make([]bool, tokens)
		for token := range all[layer] {
			all[layer][token] = token < c.Whole || layer < c.Layers && (c.Tokens == 0 || token < c.Tokens)
		}
	}
	return all
}

func within(a, b [][]bool) bool {
	for layer := range a {
		for token := range a[layer] {
			if a[layer][token] && !b[layer][token] {
				return false
			}
		}
	}
	return true
}

func drawStaircase(t *rapid.T, name string, layers, tokens int) Computed {
	return Computed{
		Layers: rapid.IntRange(0, layers).Draw(t, name+" layers"), Tokens: rapid.IntRange(0, tokens).Draw(t, name+" tokens"),
		Whole: rapid.IntRange(0, tokens).Draw(t, name+" whole"),
	}
}

// What is said in a few numbers is what the cells say, one by one.
func TestComputed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers, tokens := rapid.IntRange(1, 4).Draw(t, "layers"), rapid.IntRange(1, 6).Draw(t, "tokens")
		drawn := [2]Computed{drawStaircase(t, "a", layers, tokens), drawStaircase(t, "b", layers, tokens)}
		var normal [2]Computed
		var grid [2][][]bool
		for i, c := range drawn {
			n, possible := c.normal(layers, tokens)
			if again, _ := n.normal(layers, tokens); !possible || again != n {
				t.Fatalf("%v becomes %v and then %v", c, n, again)
			}
			normal[i], grid[i] = n, cells(n, layers, tokens)
			if want := cells(c, layers, tokens); fmt.Sprint(want) != fmt.Sprint(grid[i]) {
				t.Fatalf("%v is not %v", n, c)
			}
		}
		a, b := normal[0], normal[1]
		if same := fmt.Sprint(grid[0]) == fmt.Sprint(grid[1]); same != (a == b) {
			t.Fatalf("%v and %v", a, b)
		}
		if a.covers(b, layers) != within(grid[1], grid[0]) {
			t.Fatalf("%v covers %v: %t", a, b, a.covers(b, layers))
		}
		if both := cells(a.Both(b, layers, tokens), layers, tokens); !within(both, grid[0]) || !within(both, grid[1]) {
			t.Fatalf("of %v and %v both have %v", a, b, a.Both(b, layers, tokens))
		}
		if a.Both(a, layers, tokens) != a {
			t.Fatalf("%v and itself: %v", a, a.Both(a, layers, tokens))
		}
		if !within(cells(a.plain(), layers, tokens), grid[0]) {
			t.Fatalf("%v is told as %v", a, a.plain())
		}
		checkStep(t, a, grid[0], layers, tokens)
		if !a.covers(b, layers) {
			return
		}
		seen := cells(b, layers, tokens)
		for _, r := range a.since(b, layers, tokens) {
			for layer := r.First; layer < r.End; layer++ {
				for token := r.Tokens.Start; token < r.Tokens.End; token++ {
					if seen[layer][token] {
						t.Fatalf("from %v to %v: layer %d of token %d again", b, a, layer, token)
					}
					seen[layer][token] = true
				}
			}
		}
		if fmt.Sprint(seen) != fmt.Sprint(grid[0]) {
			t.Fatalf("from %v to %v something is left out", b, a)
		}
	})
}

// checkStep adds a step: nothing is taken back, and nothing is made up.
func checkStep(t *rapid.T, a Computed, grid [][]bool, layers, tokens int) {
	step := Computed{Layers: rapid.IntRange(-1, layers+1).Draw(t, "step layers"), Tokens: rapid.IntRange(-1, tokens+1).Draw(t, "step tokens")}
	next := cells(a.And(step.Layers, step.Tokens, layers, tokens), layers, tokens)
	if !within(grid, next) {
		t.Fatalf("%v takes something back of %v", step, a)
	}
	added := cells(step, layers, tokens)
	for layer := range next {
		for token := range next[layer] {
			if next[layer][token] && !grid[layer][token] && !added[layer][token] {
				t.Fatalf("%v and %v make %v", a, step, a.And(step.Layers, step.Tokens, layers, tokens))
			}
		}
	}
}

// Chunk after chunk, and layer after layer within each: it adds up to all.
func TestChunksAddUp(t *testing.T) {
	var c Computed
	for _, step := range []struct {
		layers, tokens int
		want           Computed
	}{
		{1, 100, Computed{Layers: 1, Tokens: 100}},
		{2, 100, Computed{Whole: 100}},
		{1, 100, Computed{Whole: 100}}, // late
		{1, 200, Computed{Layers: 1, Tokens: 200, Whole: 100}},
		{2, 200, Computed{Whole: 200}},
		{1, 0, Computed{Layers: 1, Whole: 200}},
		{2, 0, Computed{Layers: 2}},
		{1, 300, Computed{Layers: 2}},
	} {
		if c = c.And(step.layers, step.tokens, 2, 300); c != step.want {
			t.Fatalf("%+v: %+v", step, c)
		}
	}
}

// Every chunk moves before the next is computed, whichever side moves it, and a peer that
// knows of layers alone gets the last one as it always did.
func TestChunksMoveAsTheyAreComputed(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		for _, older := range []bool{false, true} {
			s := newStage(t)
			if older {
				s.destination.Capabilities = CanLayers | CanPlaces
			}
			var moved []Computed
			s.move = func(m Move) (Movement, bool) {
				if m.FlowGrant.Src == 0 {
					moved = append(moved, m.To)
				}
				return s.done(m), true
			}
			s.offer(0)
			s.accept(push)
			s.play()
			for _, tokens := range []int{2, 4, 0} {
				for layers := 1; layers <= 2; layers++ {
					s.do(memberP, s.source.Progress(s.now, s.transfer, layers, tokens))
					s.play()
				}
			}
			s.ended(allReady...)
			s.empty()
			want := []Computed{{Layers: 1, Tokens: 2}, {Whole: 2}, {Layers: 1, Tokens: 4, Whole: 2}, {Whole: 4}, {Layers: 1, Whole: 4}, {Layers: 2}}
			early := uint64(80)
			if older && !push { // the source's own followers are of its build
				want, early = []Computed{{Layers: 1}, {Layers: 2}}, 48
			}
			if fmt.Sprint(moved) != fmt.Sprint(want) {
				t.Errorf("older=%t: moved %v", older, moved)
			}
			as := Destination
			if push {
				as = Source
			}
			if r := s.record(as); r.EarlyBytes != early || r.Bytes != 96 {
				t.Errorf("older=%t: %v", older, r)
			}
		}
	})
}

// A flow that has moved keeps its fabric in the record when the last part of the cache
// holds nothing of it, as that of the first layers does.
func TestAPartWithoutBytesLeavesTheFabric(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.move = func(m Move) (Movement, bool) {
			end := s.done(m)
			if m.To == (Computed{Layers: 2}) {
				end.Fabric = "" // as the mover says that moved nothing
			}
			return end, true
		}
		s.offer(1)
		s.accept(push)
		s.play()
		s.do(memberP, s.source.Progress(s.now, s.transfer, 2, 0))
		s.play()
		s.ended(allReady...)
		as := Destination
		if push {
			as = Source
		}
		for _, f := range s.record(as).Flows {
			if f.Fabric != "stage" {
				t.Errorf("%v moved by %q", f.Flow, f.Fabric)
			}
		}
	})
}
