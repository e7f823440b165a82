package engine

import (
	"math"

	"meridian/decide/entropy"
	"meridian/decide/phase"
	"meridian/kv"
	"meridian/serve/openai"
)

// thought is where an answer stands between its thought and what users read, and
// what is to be put into it. It depends on the answer's tokens and on what was decided.
type thought struct {
	machine phase.Machine
	opened  bool // the prompt has begun it
	// forced are tokens that are put into the answer before it goes on by itself, and
	// reason why, one of openai's Forced.
	forced []uint32
	reason string
	ended  string // the reason, once a forced token stands in the answer
}

// thoughtModel is how the served model marks thoughts, by what its tokenizer has.
func (s *servedModel) thoughtModel() (*phase.Model, error) {
	var m phase.Markers
	if s.thinkStart.exists && s.thinkEnd.exists {
		m.Start = []phase.Marker{{IDs: []uint32{s.thinkStart.id}, Text: "<think>"}}
		m.End = []phase.Marker{{IDs: []uint32{s.thinkEnd.id}, Text: "</think>"}}
	}
	return phase.NewModel(m)
}

// thinks tells whether the next token belongs to a thought, as far as the engine knows.
func (c *choice) thinks() bool {
	p := c.thought.machine.Phase()
	return p == kv.Think || p == kv.Prefill && c.thought.opened
}

// beginThought is where an answer to a prompt begins. Only a first token tells the machine
// whether the prompt has opened a thought, and that token may have to be the thought's end.
func (s *servedModel) beginThought(prompt []uint32) thought {
	t := thought{machine: s.thoughts.Begin(phase.Prompt{Tokens: prompt})}
	if s.thinkStart.exists {
		tried := t.machine
		tried.Step([]uint32{unlike(s.thinkStart.id, s.thinkEnd.id)}, nil)
		t.opened = tried.Phase() == kv.Think
	}
	return t
}

// unlike is some token that is neither.
func unlike(a, b uint32) uint32 {
	for t := uint32(0); ; t++ {
		if t != a && t != b {
			return t
		}
	}
}

// endTokens are what ends a thought: as the governor says, else as the tokenizer has it.
func (e *Engine) endTokens() []uint32 {
	if e.terms != nil && e.validTokens(e.terms.GetEndTokens()) {
		return e.terms.GetEndTokens()
	}
	return e.source.thoughts.Force()
}

// validTokens tells whether ids that another process named can be put into an answer.
func (e *Engine) validTokens(ids []uint32) bool {
	return len(ids) > 0 && len(ids) <= maxForced && e.checkTokens(ids) == nil
}

// maxForced is how many tokens may be put into an answer at a time.
const maxForced = 64

// thoughtCap is the longest thought of a request; false: it has no bound. It is the
// engine's own to enforce, so that it is exact, and holds without a governor.
func (e *Engine) thoughtCap(q *request) (int, bool) {
	most := int(e.terms.GetMaxThinkTokens())
	switch {
	case q.MaxThinkTokens != nil && (most == 0 || *q.MaxThinkTokens < most):
		return *q.MaxThinkTokens, true
	default:
		return most, most > 0
	}
}

// bound ends a thought that is as long as it may be: the next token is the first of
// its end.
func (e *Engine) bound(c *choice) {
	if !c.thinks() || len(c.thought.forced) > 0 {
		return
	}
	if most, bounded := e.thoughtCap(c.request); bounded && c.thought.machine.Think() >= most {
		e.force(c, e.endTokens(), openai.ForcedHardCap)
	}
}

// force puts tokens into an answer, one in each step. A thought is ended once.
func (e *Engine) force(c *choice, tokens []uint32, reason string) {
	if len(tokens) == 0 || len(c.thought.forced) > 0 || e.source.thoughts.Thinks() && !c.thinks() {
		return
	}
	c.thought.forced, c.thought.reason = tokens, reason
}

// forces is the token that must stand at a position of the answer, if any.
func (c *choice) forces(e *Engine, position int) (uint32, bool) {
	if t := &c.thought; len(t.forced) > 0 {
		token := t.forced[0]
		t.forced, t.ended = t.forced[1:], t.reason
		if len(t.forced) == 0 {
			e.counters.Forced++
		}
		return token, true
	}
	return c.script.forces(position)
}

// follow notes a token of the answer.
func (c *choice) follow(tokens []uint32) {
	c.thought.machine.Step(tokens, nil)
	if last := tokens[len(tokens)-1]; c.script.active && last == c.script.end {
		c.script.over(c.answered() - 1)
	}
}

// nats is the entropy of the token that follows, from logits that nothing has changed
// yet; NaN where the governor does not want to know.
func (e *Engine) nats(c *choice) float32 {
	if !e.terms.GetEntropy() || !c.thinks() {
		return float32(math.NaN())
	}
	if t := c.script.trace; t != nil {
		if nats, played := at(t.Tokens, c.thought.machine.Think()); played {
			return nats
		}
	}
	return entropyOf(c.logits)
}

func entropyOf(logits []float32) float32 {
	nats, err := entropy.Entropy(logits)
	if err != nil { // a row that says nothing
		return float32(math.NaN())
	}
	return float32(nats)
}
