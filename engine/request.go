package engine

import (
	"errors"
	"fmt"

	"meridian/kv"
)

var (
	// ErrClosed means that the engine is shutting down.
	ErrClosed = errors.New("engine: shutting down")
	// ErrBusy means that as many requests wait as may.
	ErrBusy = errors.New("engine: the queue is full")
	// ErrInvalid means that a request cannot be served as it is.
	ErrInvalid = errors.New("engine: invalid request")
	// ErrTooLong means that a prompt does not fit the context.
	ErrTooLong = errors.New("engine: the prompt does not fit the context")
)

// Request is what to compute. The zero value of a field asks for nothing
// special, except where it says otherwise.
type Request struct {
	// Prompts are token ids; each has N answers.
	Prompts [][]uint32
	N       int // 0 means 1
	// MaxTokens is the budget of each answer, resumed tokens counted; 0 means
	// what fits.
	MaxTokens int
	// MinTokens is how long an answer is before it may stop.
	MinTokens int
	Sampling
	Stop         []string
	StopTokens   []uint32
	IgnoreEOS    bool
	Logprobs     bool
	TopLogprobs  int // alternatives to tell, with Logprobs
	SplitThought bool
	// ThinkTokens is how long a scripted thought is; nil: as the prompt says.
	ThinkTokens *int
	// MaxThinkTokens is the hard cap of a thought: the engine ends it there. nil: the
	// governor's own.
	MaxThinkTokens *int
	// Resume is the beginning of the answer, generated before. It takes one
	// prompt and one answer.
	Resume []uint32
	// Salt keeps the caches of tenants apart.
	Salt string

	// Offer asks to keep the prompt's cache for another engine under this id:
	// a prefill leg, which takes one prompt, one answer, one token.
	Offer *[16]byte
	// Ticket is where the prompt's cache comes from: a decode leg.
	Ticket []byte
	// TicketTokens is how many tokens the ticket is of, prompt and Resume; 0: the prompt's.
	TicketTokens int
	// Move lets the request leave for another engine; nil: it ends here.
	Move *Move
	// Unused gives the ticket back instead: no engine will take what it is for.
	Unused bool
	// ThoughtEnd is the tokens that end a thought: of an answer that has them, the prompt
	// alone is let be kept. None: all of it is.
	ThoughtEnd []uint32
	// Leg is what a gateway sealed, for the agent.
	Leg []byte
	// ID is what its sender calls it, for the log; "" for nothing.
	ID string
}

// maxChoices bounds what one request may ask for.
const (
	maxChoices     = 128
	maxTopLogprobs = 20
	maxStops       = 16
	maxStopBytes   = 4 << 10
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// settle fills in defaults and says what is impossible. The prompts and lists
// stay the caller's, who does not change them.
func (e *Engine) settle(r Request) (Request, error) {
	r.N = max(r.N, 1)
	switch {
	case len(r.Prompts) == 0:
		return r, invalid("no prompt")
	case len(r.Prompts)*r.N > maxChoices || len(r.Prompts) > maxChoices || r.N > maxChoices:
		return r, invalid("%d prompts with %d answers each; at most %d answers in all", len(r.Prompts), r.N, maxChoices)
	case r.TopLogprobs < 0 || r.TopLogprobs > maxTopLogprobs:
		return r, invalid("%d top_logprobs, must be 0…%d", r.TopLogprobs, maxTopLogprobs)
	case r.MaxTokens < 0 || r.MinTokens < 0:
		return r, invalid("a negative number of tokens")
	case len(r.Prompts)*r.N > 1 && (r.Resume != nil || r.Offer != nil || r.Move != nil):
		return r, invalid("resuming, moving and prefill legs take one prompt and one answer")
	case len(r.Prompts) > 1 && r.Ticket != nil:
		return r, invalid("a ticket is of one prompt")
	case r.Offer != nil && (r.Ticket != nil || r.Move != nil):
		return r, invalid("a request is a prefill leg or a decode leg, not both")
	case r.MaxThinkTokens != nil && *r.MaxThinkTokens < 0:
		return r, invalid("max_think_tokens is %d, must be at least 0", *r.MaxThinkTokens)
	case r.Move != nil && r.Move.After < 0:
		return r, invalid("a request moves after %d tokens", r.Move.After)
	case r.TicketTokens < 0 || r.TicketTokens > len(r.Prompts[0])+len(r.Resume):
		return r, invalid("a ticket of %d tokens, there are %d", r.TicketTokens, len(r.Prompts[0])+len(r.Resume))
	case r.ThinkTokens != nil && (*r.ThinkTokens < 0 || !e.options.Reasoning):
		return r, invalid("think_tokens needs an engine with --reasoning, and is not negative")
	}
	if err := r.Sampling.validate(); err != nil {
		return r, err
	}
	if err := validateStops(r.Stop); err != nil {
		return r, err
	}
	longest := 0
	for _, prompt := range r.Prompts {
		if err := e.checkTokens(prompt); err != nil {
			return r, err
		}
		if len(prompt) == 0 {
			return r, invalid("an empty prompt")
		}
		longest = max(longest, len(prompt))
	}
	if err := e.checkTokens(r.Resume); err != nil {
		return r, err
	}
	room := e.maxContext() - longest
	if room < 1 {
		return r, fmt.Errorf("%w: it has %d tokens, the context %d, and one must be left for the answer", ErrTooLong, longest, e.maxContext())
	}
	if r.MaxTokens > room {
		return r, fmt.Errorf("%w: a prompt of %d tokens and an answer of %d, the context is %d", ErrTooLong, longest, r.MaxTokens, e.maxContext())
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = room
	}
	if len(r.Resume) > r.MaxTokens {
		return r, invalid("%d tokens to resume after, the answer has at most %d", len(r.Resume), r.MaxTokens)
	}
	return r, nil
}

func validateStops(stops []string) error {
	if len(stops) > maxStops {
		return invalid("%d stop texts, at most %d", len(stops), maxStops)
	}
	for _, s := range stops {
		if s == "" || len(s) > maxStopBytes {
			return invalid("a stop text has 1…%d bytes", maxStopBytes)
		}
	}
	return nil
}

// maxContext is what the model can see and the memory can keep.
func (e *Engine) maxContext() int {
	return min(e.source.model.MaxContext(), e.options.Blocks*e.options.BlockTokens)
}

func (e *Engine) checkTokens(tokens []uint32) error {
	vocabulary := uint32(e.source.model.Config().Vocab)
	for i, t := range tokens {
		if t >= vocabulary {
			return invalid("token %d at place %d is not in the vocabulary of %d", t, i, vocabulary)
		}
	}
	return nil
}

// scope is what the request's cache is of.
func (e *Engine) scope(r *Request) kv.Scope {
	s := e.source.scope
	s.Salt = r.Salt
	return s
}
