package engine

import (
	"cmp"
	"slices"

	"meridian/engine/batch"
	"meridian/engine/token"
	"meridian/serve/openai"
)

// choice is one answer as it is made. It is the step loop's.
type choice struct {
	request  *request
	number   int // among all answers of the request
	place    int // among the answers to its prompt
	sequence batch.Sequence
	text     *token.Stream
	stopper  stopper
	counts   map[uint32]int // of answered tokens, where penalties want them
	thinking bool
	thoughts int // tokens of it
	thought  thought
	script   script
	governed uint64 // what the governor calls it; 0: it was not told
	told     toldOf
	fork     *fork    // nil: there is none
	swap     *swap    // nil: it has its blocks, or waits to be computed
	refetch  *refetch // nil: nothing that it lost is to come from the cell
	sought   int      // tokens that it had when the cell was last asked for them
	found    int      // of its blocks, those that were there when it was admitted
	lost     int      // tokens that it had when the governor last took its blocks; 0: it never did
	logits   []float32
	seen     bool   // it was admitted once
	kept     int    // tokens that the agent was told of, or that came from there
	finish   string // why it has ended; empty while it goes on
}

func (e *Engine) newChoice(r *request, number int) *choice {
	prompt := r.Prompts[number/r.N]
	c := &choice{
		request: r, number: number, place: number % r.N,
		text: e.source.tokenizer.Stream(true), stopper: stopper{stops: r.Stop},
	}
	c.sequence = batch.Sequence{Owner: c, Tokens: slices.Concat(prompt, nil), Prompt: len(prompt), Root: r.root}
	if r.Ticket != nil && !r.Unused && c.place == 0 {
		c.sequence.Fetch = cmp.Or(r.TicketTokens, len(prompt))
	}
	if r.PresencePenalty != 0 || r.FrequencyPenalty != 0 {
		c.counts = make(map[uint32]int)
	}
	c.thought = e.source.beginThought(prompt)
	if e.options.Reasoning {
		c.script = newScript(prompt, r.ThinkTokens, e.source)
		c.script.trace = e.options.Trace
	}
	return c
}

// answered is how many tokens the answer has.
func (c *choice) answered() int { return len(c.sequence.Tokens) - c.sequence.Prompt }

// next decides the token that follows, from the logits, which it changes.
func (c *choice) next(e *Engine) (uint32, *Logprob) {
	position := c.answered()
	forced, isForced := c.forces(e, position)
	for _, t := range e.source.suppressed {
		if !isForced || t != forced {
			c.logits[t] = never
		}
	}
	var told *Logprob
	tell := func(token uint32) {
		if c.request.Logprobs {
			p := logprobOf(c.logits, token, c.request.TopLogprobs)
			told = &p
		}
	}
	if isForced {
		tell(forced)
		return forced, told
	}
	raw := c.logits
	if c.request.Logprobs && (c.counts != nil || c.mayNotStop(position)) {
		raw = slices.Clone(c.logits)
	}
	c.request.penalize(c.logits, c.counts)
	if c.mayNotStop(position) {
		for _, t := range c.request.ends {
			c.logits[t] = never
		}
	}
	chosen := c.request.draw(c.logits, place{position: position, choice: c.place})
	c.logits = raw
	tell(chosen)
	return chosen, told
}

// mayNotStop: the token at this position must not end the answer.
func (c *choice) mayNotStop(position int) bool {
	return position < c.request.MinTokens || c.script.goesOn(position)
}

// take appends a token to the answer and returns what it adds to the text. It
// depends on the tokens alone, so that a replay gives what was given before.
func (c *choice) take(e *Engine, token uint32) Output {
	out := Output{Choice: c.number, Tokens: []uint32{token}}
	c.sequence.Tokens = append(c.sequence.Tokens, token)
	c.follow(out.Tokens)
	answered := c.answered()
	if c.counts != nil {
		c.counts[token]++
	}
	ends := slices.Contains(c.request.ends, token) && answered > c.request.MinTokens
	switch {
	case ends:
		c.finish = openai.FinishStop
	case c.request.SplitThought && token == e.source.thinkStart.id && e.source.thinkStart.exists:
		c.release(&out, c.flush())
		c.thinking = true
	case c.request.SplitThought && token == e.source.thinkEnd.id && e.source.thinkEnd.exists:
		c.release(&out, c.flush())
		c.thinking = false
	default:
		if c.thinking {
			c.thoughts++
		}
		piece := c.text.Append(token)
		stopped := false
		if answered > c.request.MinTokens {
			piece, stopped = c.stopper.add(piece)
		}
		c.release(&out, piece)
		if stopped {
			c.finish = openai.FinishStop
			return c.ended(out)
		}
	}
	if c.finish == "" && answered >= c.request.MaxTokens {
		c.finish = openai.FinishLength
	}
	if c.finish != "" {
		c.release(&out, c.flush())
	}
	return c.ended(out)
}

func (c *choice) ended(out Output) Output {
	out.Finish = c.finish
	return out
}

// flush returns text that waited for what follows.
func (c *choice) flush() string {
	text, stopped := c.stopper.add(c.text.Flush())
	if stopped {
		return text
	}
	return text + c.stopper.flush()
}

func (c *choice) release(out *Output, text string) {
	if c.thinking {
		out.Thought += text
	} else {
		out.Text += text
	}
}
