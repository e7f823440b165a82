package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"meridian/prove/replay/workload"
	"meridian/serve/openai"
)

// prompter makes requests of the lengths that a workload has. Equal blocks of
// prompts come to equal texts, so that prefixes are found in caches as they
// would be.
type prompter struct {
	options Options
	// tokensPerWord and overhead are how the endpoint counts a chat.
	tokensPerWord, overhead float64
}

// words are common ones, which most tokenizers have whole.
var words = strings.Fields(`the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one
you were all her she there would their we him been has when who will no more if out so up said what its about than into them can only other time new`)

// firstID leaves out the ids that small vocabularies have for other things than
// text.
const firstID = 4

// Lengths of the two chats that tell how the endpoint counts.
const (
	shortProbe = 32
	longProbe  = 288
	probeWait  = time.Minute
)

func newPrompter(ctx context.Context, o Options) (prompter, error) {
	p := prompter{options: o}
	if o.Completions {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	var counted [2]float64
	for i, length := range []int{shortProbe, longProbe} {
		var b strings.Builder
		appendWords(&b, rand.New(rand.NewPCG(o.Seed, uint64(i))), length)
		one := 1
		answer, err := o.client().Chat(ctx, openai.ChatRequest{
			Sampling: openai.Sampling{Model: o.Model, MaxTokens: &one}, Messages: []openai.Message{{Role: "user", Content: openai.Content(b.String())}},
		}, nil)
		if err != nil {
			return p, fmt.Errorf("load: a first chat with %s: %w", o.Model, err)
		}
		if answer.Usage == nil || answer.Usage.PromptTokens < 1 {
			return p, fmt.Errorf("load: %s does not say how long a prompt was; send prompts of token ids, with --completions", o.URL)
		}
		counted[i] = float64(answer.Usage.PromptTokens)
	}
	p.tokensPerWord = (counted[1] - counted[0]) / (longProbe - shortProbe)
	if !(p.tokensPerWord > 0.1 && p.tokensPerWord < 100) {
		return p, fmt.Errorf("load: %d words are %.0f tokens and %d are %.0f, by which no length can be made; use --completions",
			shortProbe, counted[0], longProbe, counted[1])
	}
	p.overhead = max(0, counted[0]-shortProbe*p.tokensPerWord)
	return p, nil
}

// body is the request as it is sent.
func (p *prompter) body(q workload.Request, number int) ([]byte, error) {
	o := &p.options
	length := int(q.Think + q.Output)
	sampling := openai.Sampling{
		Model: o.Model, MaxTokens: &length, Stream: true, StreamOptions: &openai.StreamOptions{IncludeUsage: true},
		User: fmt.Sprintf("tenant-%d", q.Tenant),
	}
	if !o.Plain {
		sampling.IgnoreEOS, sampling.MinTokens, sampling.ReturnTokenIDs = true, length, true
	}
	if o.Script {
		// The marks of a thought count among its tokens.
		think := max(0, int(q.Think)-2)
		sampling.ThinkTokens = &think
	}
	if o.Completions {
		return json.Marshal(openai.CompletionRequest{Sampling: sampling, Prompt: openai.Prompt{Tokens: [][]uint32{p.ids(q, number)}}})
	}
	return json.Marshal(openai.ChatRequest{Sampling: sampling, Messages: []openai.Message{{Role: "user", Content: openai.Content(p.text(q, number))}}})
}

// parts calls add for every block of a prompt and for the rest, with the dice
// that make it, until so many units are there of which each block has some.
func parts(q workload.Request, p *prompter, number, units, perBlock int, add func(dice *rand.Rand, units int)) {
	for _, block := range q.Prefix {
		n := min(units, perBlock)
		add(rand.New(rand.NewPCG(p.options.Seed, block)), n)
		units -= n
	}
	if units > 0 {
		add(rand.New(rand.NewPCG(^p.options.Seed, uint64(number))), units)
	}
}

// ids are as many as the prompt has tokens.
func (p *prompter) ids(q workload.Request, number int) []uint32 {
	ids := make([]uint32, 0, q.Prompt)
	parts(q, p, number, int(q.Prompt), int(q.PrefixTokens), func(dice *rand.Rand, units int) {
		for range units {
			ids = append(ids, firstID+dice.Uint32N(uint32(p.options.Vocabulary-firstID)))
		}
	})
	return ids
}

// text is of about as many tokens as the prompt has, less what the endpoint adds.
func (p *prompter) text(q workload.Request, number int) string {
	var b strings.Builder
	count := func(tokens float64) int { return int(tokens/p.tokensPerWord + 0.5) }
	parts(q, p, number, max(1, count(float64(q.Prompt)-p.overhead)), count(float64(q.PrefixTokens)), func(dice *rand.Rand, units int) {
		appendWords(&b, dice, units)
	})
	return b.String()
}

func appendWords(b *strings.Builder, dice *rand.Rand, count int) {
	for range count {
		b.WriteString(words[dice.IntN(len(words))])
		b.WriteByte(' ')
	}
}
