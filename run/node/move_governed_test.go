package node

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/engine"
	"meridian/engine/token"
	"meridian/serve/governing"
)

// tinyGoverned is what governs engines of the built-in model.
func tinyGoverned(t *testing.T) *governing.Options {
	t.Helper()
	model, err := phase.NewModel(phase.Markers{
		Start: []phase.Marker{{IDs: []uint32{token.ThinkStart}}}, End: []phase.Marker{{IDs: []uint32{token.ThinkEnd}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &governing.Options{
		Policy: "meridian", PreemptMaxFraction: 0.1, Wait: 500 * time.Microsecond, Budget: governor.Budget{MaxThinkTokens: 1 << 15},
		Memory: block.Options{ThinkFraction: 0.4}, Model: func(string) (governing.Model, error) { return governing.Model{Phase: model}, nil },
	}
}

// thinking is what the governors of the cell say of the only request, where it runs.
func (c *realCell) thinking() (at int, r governing.Request) {
	at = -1
	for i, n := range c.agents {
		for _, e := range n.Governors.Engines() {
			for _, one := range e.Requests {
				if one.State == "running" {
					at, r = i, one
				}
			}
		}
	}
	return at, r
}

// A request that moves within its thought is in the same phase elsewhere, of which the governor
// there knows what came before, and its thought ends at the very token at which it would have.
func TestThoughtsMoveWithTheirBudget(t *testing.T) {
	c := openCellAt(t, 2, Door{RequireLeg: true, Governor: tinyGoverned(t)}, func(*GatewayOptions) {}, func(int, *engine.Options) {})
	const limit, lag = 60, 5
	for seed := range 4 {
		body := strings.Replace(chatOf(seed, 20, 100), `"think_tokens":20`, fmt.Sprintf(`"think_tokens":400,"max_think_tokens":%d`, limit), 1)
		after := []int{1 + rand.IntN(limit/2), limit/2 + rand.IntN(limit/4)}
		var places []int
		got := c.ask(body, func(id string, tokens int) {
			at, r := c.thinking()
			if at >= 0 && (len(places) == 0 || places[len(places)-1] != at) {
				places = append(places, at)
			}
			// A client may have a few tokens of which the governor has not heard yet.
			if at >= 0 && tokens > lag && tokens < limit-lag && (r.Phase != "think" || r.Cap != limit || int(r.Think) < tokens-lag) {
				t.Errorf("seed %d: after %d tokens the governor of e%d knows of %d in phase %s, at most %d", seed, tokens, at, r.Think, r.Phase, r.Cap)
			}
			if len(after) > 0 && tokens >= after[0] {
				after = after[1:]
				c.move(id)
			}
		})
		c.same(fmt.Sprintf("seed %d", seed), got, c.alone(body))
		if n := got.usage.OutputDetails.ReasoningTokens; n != limit {
			t.Errorf("seed %d: the thought has %d tokens", seed, n)
		}
		if moves := c.record(got.id).Moves; len(moves) == 0 || len(places) < 2 {
			t.Errorf("seed %d: moves %+v, governed at %v", seed, moves, places)
		}
	}
	c.rest()
}
