package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"meridian/serve/openai"
)

// mixedRequest is one of a load of long thinkers and short answerers.
type mixedRequest struct {
	prompt        []uint32
	think, answer int // tokens; the two marks of a thought are beside them
	long          bool
}

func (q *mixedRequest) tokens() int { return q.think + q.answer + 2 }

// Places in the stream of a scripted answer: its thought's end, and what users see first.
func (q *mixedRequest) end() int     { return q.think + 1 }
func (q *mixedRequest) visible() int { return q.think + 2 }

// mixedLoad is requests of which every other one thinks long, for all rounds.
func mixedLoad(seed uint64, count, longest int) []mixedRequest {
	dice := rand.New(rand.NewPCG(seed, 1))
	all := make([]mixedRequest, count)
	for i := range all {
		q := &all[i]
		q.prompt = letters(dice, 16+dice.IntN(49))
		q.long = i%2 == 0
		q.think, q.answer = 4+dice.IntN(9), 16+dice.IntN(17)
		if q.long {
			q.think = longest/2 + dice.IntN(longest/2+1)
		}
	}
	return all
}

// meanTokens is how many a request of a load is answered with.
func meanTokens(load []mixedRequest) (mean float64) {
	for i := range load {
		mean += float64(load[i].tokens()) / float64(len(load))
	}
	return mean
}

// arrivals are when each is due, with gaps as of a Poisson process, the same for every
// policy of a round. Without a gap all come at once.
func arrivals(seed uint64, round, count int, gap time.Duration) []time.Duration {
	dice := rand.New(rand.NewPCG(seed, uint64(round)<<32|2))
	all := make([]time.Duration, count)
	at := time.Duration(0)
	for i := range all {
		at += time.Duration(dice.ExpFloat64() * float64(gap))
		all[i] = at
	}
	return all
}

// mixedAnswer is what a client saw, counted from when its request was due.
type mixedAnswer struct {
	tokens []uint32
	// ttfvt is to the first token that is not of the thought, ttot from the thought's end to
	// it, took to the last token.
	ttfvt, ttot, took time.Duration
	ended             time.Duration // the thought
}

// mixedTimeout is far beyond what a request of an overloaded cell takes.
const mixedTimeout = 5 * time.Minute

// sendMixed sends each request when it is due, whether or not others are answered, and
// waits for all of them. The first that fails ends it.
func sendMixed(ctx context.Context, client *http.Client, url, salt string, load []mixedRequest, due []time.Duration) ([]mixedAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, due[len(due)-1]+mixedTimeout)
	defer cancel()
	answers := make([]mixedAnswer, len(load))
	errs := make(chan error, len(load))
	var active sync.WaitGroup
	began := time.Now()
	for i := range load {
		active.Go(func() {
			timer := time.NewTimer(time.Until(began.Add(due[i])))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				errs <- ctx.Err()
				return
			}
			var err error
			if answers[i], err = askMixed(ctx, client, url, salt, i, &load[i], began.Add(due[i])); err != nil {
				errs <- fmt.Errorf("request %d: %w", i, err)
				cancel()
			}
		})
	}
	active.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
		return answers, nil
	}
}

// askMixed sends one request and reads its answer to the end.
func askMixed(ctx context.Context, client *http.Client, url, salt string, number int, q *mixedRequest, due time.Time) (a mixedAnswer, err error) {
	body, err := json.Marshal(map[string]any{
		"prompt": q.prompt, "max_tokens": q.tokens(), "think_tokens": q.think, "temperature": 1, "seed": number, "ignore_eos": true, "stream": true, "return_token_ids": true,
		"cache_salt": salt,
	})
	if err != nil {
		return a, err
	}
	response, err := post(ctx, client, url+openai.PathCompletions, string(body))
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	err = stream(response.Body, func(chunk *openai.Chunk) error {
		a.note(q, chunk.Tokens, time.Since(due))
		return nil
	})
	if err != nil {
		return a, err
	}
	if len(a.tokens) != q.tokens() {
		return a, fmt.Errorf("an answer of %d tokens, not %d", len(a.tokens), q.tokens())
	}
	return a, nil
}

// note takes tokens that came at a time.
func (a *mixedAnswer) note(q *mixedRequest, tokens []uint32, at time.Duration) {
	before, after := len(a.tokens), len(a.tokens)+len(tokens)
	a.tokens = append(a.tokens, tokens...)
	if before <= q.end() && after > q.end() {
		a.ended = at
	}
	if before <= q.visible() && after > q.visible() {
		a.ttfvt, a.ttot = at, at-a.ended
	}
	if after > before {
		a.took = at
	}
}

// sameAnswers names the first request that is answered differently.
func sameAnswers(want, got []mixedAnswer) error {
	for i := range want {
		if !slices.Equal(want[i].tokens, got[i].tokens) {
			return fmt.Errorf("request %d has another answer than from an engine alone", i)
		}
	}
	return nil
}
