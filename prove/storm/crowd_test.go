package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// Question is a request and the answer that it must get.
type Question struct {
	Request openai.CompletionRequest
	Answer  *openaiclient.Answer
}

// Questions makes prompts of many lengths, some of which begin alike; half of
// the answers are greedy, half are drawn.
func Questions(model string, count, maxPromptBytes, maxTokens int, seed uint64) []Question {
	random := rand.New(rand.NewPCG(seed, 1))
	letters := func(n int) string {
		const alphabet = "abcdefghijklmnopqrstuvwxyz ,.\n"
		var b strings.Builder
		for range n {
			b.WriteByte(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	shared := letters(maxPromptBytes / 2)
	all := make([]Question, count)
	for i := range all {
		prompt := letters(1 + random.IntN(maxPromptBytes))
		if i%3 == 0 {
			prompt = shared[:random.IntN(len(shared))] + letters(1+random.IntN(maxPromptBytes/2))
		}
		r := openai.CompletionRequest{Prompt: openai.Prompt{Texts: []string{prompt}}}
		tokens, temperature, drawn := 1+random.IntN(maxTokens), float64(i%2), random.Int64N(1<<31)
		r.Model, r.Stream, r.ReturnTokenIDs = model, true, true
		r.MaxTokens, r.Temperature, r.Seed = &tokens, &temperature, &drawn
		all[i] = Question{Request: r}
	}
	return all
}

// Know asks an engine that is trusted for the answers.
func Know(ctx context.Context, c *openaiclient.Client, questions []Question) error {
	for i := range questions {
		a, err := c.Complete(ctx, questions[i].Request, nil)
		if err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		questions[i].Answer = a
	}
	return nil
}

// Crowd is many clients that ask one after the other until they are stopped.
type Crowd struct {
	Client    *openaiclient.Client
	Questions []Question
	Clients   int
	// Ask is how long one request may take: longer counts as silence.
	Ask  time.Duration
	Seed uint64
	// MayBeCut is where the engine that answers is killed: a request may then end
	// without a word, but not go on for ever, and not with a wrong token.
	MayBeCut bool
}

// Tally is what came of a crowd's questions.
type Tally struct {
	mu sync.Mutex

	Right  int
	Tokens int
	// Failed counts requests that ended with a clear error, by its text.
	Failed map[string]int
	// Wrong tells of the first few that ended otherwise, of WrongCount.
	Wrong      []string
	WrongCount int
	Slowest    time.Duration
}

// Failures is how many requests failed with a clear error.
func (t *Tally) Failures() (n int) {
	for _, count := range t.Failed {
		n += count
	}
	return n
}

func (t *Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d right (%d tokens), %d failed, slowest %v", t.Right, t.Tokens, t.Failures(), t.Slowest.Round(time.Millisecond))
	if t.WrongCount > 0 { // a word that the summary of tests never forgives
		fmt.Fprintf(&b, ", %d wrong", t.WrongCount)
	}
	for _, text := range slices.Sorted(maps.Keys(t.Failed)) {
		fmt.Fprintf(&b, "\n  %d × %s", t.Failed[text], text)
	}
	for _, text := range t.Wrong {
		fmt.Fprintf(&b, "\n  wrong: %s", text)
	}
	return b.String()
}

// Run asks until ctx ends; requests that run then are let come to their end.
func (c *Crowd) Run(ctx context.Context) *Tally {
	t := &Tally{Failed: map[string]int{}}
	var clients sync.WaitGroup
	for i := range c.Clients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for ctx.Err() == nil {
				c.askOne(ctx, t, &c.Questions[random.IntN(len(c.Questions))])
			}
		})
	}
	clients.Wait()
	return t
}

func (c *Crowd) askOne(ctx context.Context, t *Tally, q *Question) {
	began := time.Now()
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Ask)
	defer cancel()
	a, err := c.Client.Complete(asking, q.Request, nil)
	took := time.Since(began)
	if said := (*openai.Error)(nil); c.MayBeCut && err != nil && took < c.Ask && !errors.As(err, &said) {
		err = openai.Unavailable("the gateway hung up")
	}
	t.note(q, a, err, took)
	if err != nil { // as a client would, before it tries again
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// maxWrong is how many wrong answers are told of in words.
const maxWrong = 8

func (t *Tally) note(q *Question, a *openaiclient.Answer, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Slowest = max(t.Slowest, took)
	wrong := q.judge(a, err)
	var said *openai.Error
	switch {
	case wrong != "":
		t.WrongCount++
		if len(t.Wrong) < maxWrong {
			t.Wrong = append(t.Wrong, wrong)
		}
	case err == nil:
		t.Right++
		t.Tokens += len(a.Tokens)
	case errors.As(err, &said):
		t.Failed[said.Error()]++
	}
}

// judge says what is wrong about how a request ended, or "".
func (q *Question) judge(a *openaiclient.Answer, err error) string {
	var said *openai.Error
	if err != nil && !errors.As(err, &said) {
		return fmt.Sprintf("no clear error: %v", err)
	}
	if a == nil {
		return ""
	}
	known := q.Answer
	switch about := "request " + a.RequestID; {
	case len(a.Tokens) > len(known.Tokens) || !slices.Equal(a.Tokens, known.Tokens[:len(a.Tokens)]):
		return fmt.Sprintf("%s: tokens %v, should be %v", about, a.Tokens, known.Tokens)
	case !strings.HasPrefix(known.Thought+known.Text, a.Thought+a.Text):
		return fmt.Sprintf("%s: text %q, should be %q", about, a.Thought+a.Text, known.Thought+known.Text)
	case err != nil:
		return ""
	case len(a.Tokens) != len(known.Tokens) || a.Text != known.Text || a.Thought != known.Thought || a.Finish != known.Finish:
		return fmt.Sprintf("%s: ends after %d of %d tokens with %q, should be with %q", about, len(a.Tokens), len(known.Tokens), a.Finish, known.Finish)
	}
	return ""
}
