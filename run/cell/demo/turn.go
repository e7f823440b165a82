package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"meridian/run/cell/openaiclient"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Turn is the second turn of a conversation, at another worker than the first.
type Turn struct {
	First  string `json:"first"`
	Second string `json:"second"`
	// PromptTokens is how long the second prompt is, FoundTokens how many of them the
	// worker did not compute because the first one had.
	PromptTokens int   `json:"prompt_tokens"`
	FoundTokens  int64 `json:"found_tokens"`
}

// ErrNotFound means that a second turn was computed from its beginning.
var ErrNotFound = errors.New("demo: a conversation went on at another worker, and nothing of it was found in the cell's shared cache")

const (
	// turnTries is how many conversations may go on before their cache is kept: that
	// is done after the answer, and dropped under load.
	turnTries = 3
	keepPause = 300 * time.Millisecond
)

// secondTurn has conversations go on until one finds what its first turn computed. It
// returns the second turn's prompt and answer, to be compared.
func secondTurn(ctx context.Context, o Options) (*Turn, prompt, *openaiclient.Answer, error) {
	for try := range turnTries {
		turn, again, answer, err := o.goOn(ctx, try)
		if err != nil || turn.FoundTokens > 0 {
			return turn, again, answer, err
		}
	}
	return nil, prompt{}, nil, ErrNotFound
}

func (o Options) goOn(ctx context.Context, number int) (*Turn, prompt, *openaiclient.Answer, error) {
	long := maxLong / 2
	if o.MaxTokens > 0 {
		long = min(long, o.MaxTokens/2)
	}
	text := story(rounds+1+number, long)
	begun := o.greedy("first turn", text)
	first, err := begun.send(ctx, o.Gateway)
	if err != nil {
		return nil, begun, nil, fmt.Errorf("demo: a first turn: %w", err)
	}
	records, err := recordsOf(ctx, o.StateDir, []*openaiclient.Answer{first})
	if err != nil {
		return nil, begun, nil, err
	}
	turn := &Turn{First: decodedAt(records[0])}
	turn.Second = o.another(turn.First)
	select {
	case <-time.After(keepPause):
	case <-ctx.Done():
		return nil, begun, nil, context.Cause(ctx)
	}
	again := o.greedy("second turn", text+first.Text+" And then?")
	before, err := o.FoundTokens(ctx, turn.Second)
	if err != nil {
		return nil, again, nil, err
	}
	answer, err := again.send(ctx, o.Workers[turn.Second])
	if err != nil {
		return nil, again, nil, fmt.Errorf("demo: a second turn at %s: %w", turn.Second, err)
	}
	after, err := o.FoundTokens(ctx, turn.Second)
	turn.PromptTokens, turn.FoundTokens = len(answer.PromptTokens), after-before
	return turn, again, answer, err
}

// greedy is a prompt that is neither sampled nor streamed.
func (o Options) greedy(kind, text string) prompt {
	s := o.sampling(1)
	return prompt{kind: describe(kind, s), completion: &openai.CompletionRequest{Sampling: s, Prompt: openai.Prompt{Texts: []string{text}}}}
}

// decodedAt is the worker that gave the answer.
func decodedAt(r *ledger.Record) (worker string) {
	for _, leg := range r.Legs {
		if leg.Kind != ledger.PrefillLeg {
			worker = leg.Engine
		}
	}
	return worker
}

// another is a worker that is not this one, always the same.
func (o Options) another(than string) string {
	for _, name := range slices.Sorted(maps.Keys(o.Workers)) {
		if name != than {
			return name
		}
	}
	return than
}
