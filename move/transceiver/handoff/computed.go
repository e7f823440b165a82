package handoff

import (
	"fmt"
	"math"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// Progress is how much of a cache exists. A prompt is computed chunk by chunk, and
// a chunk layer by layer, so that it is a staircase:
//
//	token   0           Whole        Tokens        the last
//	        ┌─────────────┬────────────┬─────────────┐
//	layers  │     all     │   Layers   │     none    │
//	        └─────────────┴────────────┴─────────────┘
//
// With Tokens 0 the step of Layers goes to the last token: {Layers: n} is all that
// builds can say that know of layers alone. Machines keep it in the form of normal.
type Computed struct {
	Layers, Tokens, Whole int
}

// allTokens is the end of a step that goes to the last token, whichever that is.
const allTokens = math.MaxInt

// tokensOf is how many tokens of a layer exist.
func (c Computed) tokensOf(layer int) int {
	switch {
	case layer >= c.Layers:
		return c.Whole
	case c.Tokens == 0:
		return allTokens
	}
	return max(c.Tokens, c.Whole)
}

// normal is the one form of all that say the same of a cache of so many layers and
// tokens; false: it cannot be.
func (c Computed) normal(layers, tokens int) (Computed, bool) {
	if c.Layers < 0 || c.Tokens < 0 || c.Whole < 0 || c.Layers > layers || c.Tokens > tokens || c.Whole > tokens {
		return Computed{}, false
	}
	if c.Tokens == tokens {
		c.Tokens = 0
	}
	if c.Layers == layers && c.Tokens > 0 {
		c = Computed{Whole: max(c.Whole, c.Tokens)}
	}
	switch {
	case c.Layers == layers || c.Whole == tokens && tokens > 0:
		return Computed{Layers: layers}, true
	case c.Layers == 0 || c.Tokens > 0 && c.Tokens <= c.Whole:
		return Computed{Whole: c.Whole}, true
	}
	return c, true
}

// covers reports whether everything of another exists by c too. Both are normal, and
// of as many layers.
func (c Computed) covers(other Computed, layers int) bool {
	for _, layer := range [...]int{0, c.Layers, other.Layers} { // where steps begin
		if layer < layers && c.tokensOf(layer) < other.tokensOf(layer) {
			return false
		}
	}
	return true
}

// And adds a step: the first layers of the first tokens (0: all) exist too, of a
// cache of ofLayers and ofTokens. What would take something back, or cannot be, adds
// nothing: an engine is not believed to have computed less than it said before.
func (c Computed) And(layers, tokens, ofLayers, ofTokens int) Computed {
	whole := c.Whole
	if c.Layers == ofLayers {
		whole = ofTokens
	}
	next, possible := Computed{Layers: layers, Tokens: tokens, Whole: whole}.normal(ofLayers, ofTokens)
	if !possible || !next.covers(c, ofLayers) {
		return c
	}
	return next
}

// Both is what exists at two ranks, or less where that has more steps than two.
func (c Computed) Both(other Computed, ofLayers, ofTokens int) Computed {
	least := func(layer int) int { return min(c.tokensOf(layer), other.tokensOf(layer), ofTokens) }
	low, high := min(c.Layers, other.Layers), max(c.Layers, other.Layers)
	step := Computed{Layers: high, Tokens: least(max(0, high-1)), Whole: least(high)}
	if high == ofLayers {
		step.Whole = step.Tokens // nothing is above it
	}
	if step.Tokens == step.Whole {
		step.Layers, step.Tokens = low, least(max(0, low-1))
	}
	both, _ := step.normal(ofLayers, ofTokens)
	return both
}

// plain is what of c can be told to a build that knows of layers alone.
func (c Computed) plain() Computed {
	if c.Tokens > 0 {
		return Computed{}
	}
	return Computed{Layers: c.Layers}
}

// steps reports whether c says more than layers.
func (c Computed) steps() bool { return c.Tokens > 0 || c.Whole > 0 }

// Rectangle is layers [First, End) of some tokens.
type Rectangle struct {
	First, End int
	Tokens     kv.TokenRange
}

// since is what exists by c and did not before, of a cache of so many layers and
// tokens. No two of the rectangles overlap, and there are at most three.
func (c Computed) since(before Computed, layers, tokens int) []Rectangle {
	var all []Rectangle
	low, high := min(before.Layers, c.Layers), max(before.Layers, c.Layers)
	for _, band := range [...][2]int{{0, low}, {low, high}, {high, layers}} {
		if band[0] >= band[1] {
			continue
		}
		gained := kv.TokenRange{Start: min(before.tokensOf(band[0]), tokens), End: min(c.tokensOf(band[0]), tokens)}
		if gained.Start < gained.End {
			all = append(all, Rectangle{band[0], band[1], gained})
		}
	}
	return all
}

func (c Computed) String() string {
	step := fmt.Sprintf("%d layers", c.Layers)
	if c.Tokens > 0 {
		step += fmt.Sprintf(" of %d tokens", c.Tokens)
	}
	if c.Whole > 0 {
		step += fmt.Sprintf(" and all of %d tokens", c.Whole)
	}
	return step
}

// each: only what is told in tokensForm has more than layers.
func (c *Computed) each(codec fields.Codec) {
	codec.Int(&c.Layers)
	if codec.Form() >= tokensForm {
		codec.Int(&c.Tokens, &c.Whole)
	}
}

// Flows is the parts of a flow that a move is to bring over.
func (m *Move) Flows(flow reshard.Flow) ([]reshard.Flow, error) {
	t := m.Order.Terms
	var parts []reshard.Flow
	for _, part := range m.To.since(m.From, t.layers(), t.ContextTokens) {
		some, err := flow.Layers(part.First, part.End).Tokens(part.Tokens)
		if err != nil {
			return nil, err
		}
		parts = append(parts, some)
	}
	return parts, nil
}
