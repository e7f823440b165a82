package placement

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// gateways are some that balance the requests of the same engines, each its own.
type gateways struct {
	engines  int
	requests [][]Running // of each gateway
	silent   bool        // engines do not tell how much they have to do for all
}

// sees is how engines stand for one of the gateways.
func (g *gateways) sees(of int) []Engine {
	engines := make([]Engine, g.engines)
	for i := range engines {
		e := Engine{ID: fmt.Sprint(i), Role: Decode, Room: 1 << 20}
		for j, requests := range g.requests {
			for _, r := range requests {
				if r.Engine == e.ID && !g.silent {
					e.All++
				}
				if r.Engine == e.ID && j == of {
					e.Running++
				}
			}
		}
		engines[i] = e
	}
	return engines
}

type gatewayMove struct {
	gateway, request int
	from, to         string
}

// round has every gateway decide on what was so before any of them did, and then moves.
func (g *gateways) round() (moves []gatewayMove) {
	for i, requests := range g.requests {
		if which, to, _, ok := MoveForBalance(g.sees(i), requests, usual, tenSeconds); ok {
			moves = append(moves, gatewayMove{i, which, requests[which].Engine, to})
		}
	}
	for _, m := range moves {
		r := &g.requests[m.gateway][m.request]
		r.Engine, r.Moves = m.to, r.Moves+1
	}
	return moves
}

// newGateways has so many requests of each gateway at each engine.
func newGateways(running [][]int) *gateways {
	g := &gateways{engines: len(running[0]), requests: make([][]Running, len(running))}
	for i, of := range running {
		for e, n := range of {
			for range n {
				g.requests[i] = append(g.requests[i], Running{Engine: fmt.Sprint(e), Prompt: 100, Answer: 500 + len(g.requests[i])})
			}
		}
	}
	return g
}

// Engines that are even for all gateways together stay as they are, however each sees its own.
func TestEvenForAllGateways(t *testing.T) {
	for name, c := range map[string]struct {
		running [][]int
		moves   bool
	}{
		"one more than the other":      {[][]int{{9, 1}, {1, 9}}, false},
		"the rest are another's":       {[][]int{{9, 1}, {0, 8}}, false},
		"a small part of what is done": {[][]int{{9, 1}, {60, 60}}, false},
		"both have more at one":        {[][]int{{9, 1}, {9, 1}}, true},
		"only one has any":             {[][]int{{9, 1}, {0, 0}}, true},
		"more there by others'":        {[][]int{{9, 1, 1}, {0, 0, 20}}, true},
	} {
		if moves := newGateways(c.running).round(); (len(moves) > 0) != c.moves {
			t.Errorf("%s: %v", name, moves)
		} else if c.moves && name == "more there by others'" && moves[0].to != "1" {
			t.Errorf("%s: %v", name, moves)
		}
	}
}

// Whatever gateways have where, and though each round they decide without a word of one another,
// it ends, and between two engines none takes back what it did: what others move does not change
// what a gateway counts, and what engines tell of all only keeps it from moves.
func TestGatewaysComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engines := rapid.IntRange(2, 4).Draw(t, "engines")
		var running [][]int
		total := 0
		for range rapid.IntRange(1, 5).Draw(t, "gateways") {
			var of []int
			for range engines {
				n := rapid.IntRange(0, 12).Draw(t, "running")
				of, total = append(of, n), total+n
			}
			running = append(running, of)
		}
		g := newGateways(running)
		g.silent = rapid.Bool().Draw(t, "silent")
		went := make(map[string]bool)
		for rounds := 0; ; rounds++ {
			if rounds > total*balanceMoves {
				t.Fatal("they never come to rest")
			}
			moves := g.round()
			if len(moves) == 0 {
				break
			}
			for _, m := range moves {
				if engines == 2 && went[fmt.Sprint(m.gateway, m.to, m.from)] {
					t.Fatalf("gateway %d moves to and fro", m.gateway)
				}
				went[fmt.Sprint(m.gateway, m.from, m.to)] = true
			}
		}
	})
}
