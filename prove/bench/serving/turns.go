package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// TurnsOptions says how to measure second turns of chats with a model that thinks.
type TurnsOptions struct {
	// Model thinks by script.
	Model    string `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	Question int    `default:"256" placeholder:"N" help:"Tokens of a user's first question; default ${default}."`
	Thought  int    `default:"64" placeholder:"N" help:"Tokens of the thought about it; default ${default}."`
	// Answers have a row each.
	Answers       []int `name:"answer" default:"64,128" placeholder:"N" help:"Tokens of the answer; default ${default}."`
	Rounds        int   `default:"5" placeholder:"N" help:"Chats that each figure is the median of; default ${default}."`
	bench.Setting `kong:"-"`
}

// maxTurnTokens keeps both turns within the context of the built-in models: text that
// such a model makes up takes up to three tokens where it took one.
const maxTurnTokens = 512

func (o *TurnsOptions) validate() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("%w: %d rounds; at least 1", bench.ErrOptions, o.Rounds)
	case len(o.Answers) == 0:
		return fmt.Errorf("%w: no answers: say how long they are", bench.ErrOptions)
	}
	for _, n := range append([]int{o.Question, o.Thought}, o.Answers...) {
		if n < 1 || n > maxTurnTokens {
			return fmt.Errorf("%w: %d tokens of a question, a thought or an answer; 1 to %d", bench.ErrOptions, n, maxTurnTokens)
		}
	}
	return nil
}

// shortAnswer is how many tokens a second turn's answer has; only its first counts.
const shortAnswer = 8

// Sides of the measurement.
const (
	coldTurns = "without"
	warmTurns = "with"
)

// turnsRun is two gateways before the same two engines of a cell that keeps prefixes.
type turnsRun struct {
	*trial
	options  TurnsOptions
	gateways map[string]cell.PartRecord
	warmed   int // next turns that are known to be computed ahead
}

// RunTurns measures what gateway.warm_next_turn does for the first token of a second
// turn. Two gateways stand before the same engines, one with it and one without; the same
// chats go through both in turn, under two salts, so that neither finds what the other
// had computed. What is answered must be the same.
func RunTurns(ctx context.Context, o TurnsOptions) (report *TurnsReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t, err := newTrial(o.Setting, 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	spec := cell.DefaultSpec()
	spec.Model, spec.Workers, spec.Store = o.Model, cell.Workers{Prefill: 1, Decode: 1}, "256MiB"
	c, err := t.open(ctx, "cell", spec)
	if err != nil {
		return nil, err
	}
	var both []string // each of the engines does everything
	for _, part := range engines(c) {
		both = append(both, "--both", part.URL)
	}
	run := &turnsRun{trial: t, options: o, gateways: make(map[string]cell.PartRecord)}
	for side, flags := range map[string][]string{coldTurns: both, warmTurns: append(both, "--warm-next-turn")} {
		if run.gateways[side], err = addGateway(ctx, c, t.scratch, side, "127.0.0.1:0", flags...); err != nil {
			return nil, err
		}
	}
	report = &TurnsReport{Head: bench.NewHead(o.Version), options: o}
	report.Rows, err = rows(&o.Setting, "answers of %d tokens", o.Answers, o.Rounds, func(answer int, progress func(int, string)) (TurnsRow, error) {
		return run.row(ctx, answer, progress)
	})
	return report, err
}

// secondTurn is what was seen of one.
type secondTurn struct {
	first          time.Duration // to its first token
	prompt, cached int           // tokens
	tokens         []uint32
}

// row has chats of one kind go through both gateways. The first round warms up.
func (r *turnsRun) row(ctx context.Context, answer int, progress func(int, string)) (TurnsRow, error) {
	seen := make(map[string][]secondTurn)
	err := inTurn(r.options.Rounds, []string{coldTurns, warmTurns}, func(round int, side string) error {
		progress(round, side+" warm_next_turn")
		turn, err := r.chat(ctx, side, answer, round)
		if err != nil {
			return fmt.Errorf("%w: %s warm_next_turn: %w", ErrMeasure, side, err)
		}
		seen[side] = append(seen[side], turn)
		return nil
	})
	if err != nil {
		return TurnsRow{}, err
	}
	cold, warm := seen[coldTurns], seen[warmTurns]
	for round := range cold {
		if !slices.Equal(cold[round].tokens, warm[round].tokens) {
			return TurnsRow{}, fmt.Errorf("%w: with warm_next_turn the answer is another one", ErrMeasure)
		}
	}
	return turnsRow(answer, cold[1:], warm[1:]), nil
}

// chat takes two turns, and tells of the second.
func (r *turnsRun) chat(ctx context.Context, side string, answer, round int) (secondTurn, error) {
	client := &openaiclient.Client{URL: r.gateways[side].URL}
	chance := rand.New(rand.NewPCG(uint64(answer), uint64(round)))
	question := words(chance, r.options.Question)
	messages := []openai.Message{{Role: "user", Content: openai.Content(question)}}
	first, err := client.Chat(ctx, r.request(messages, side, answer), nil)
	if err != nil {
		return secondTurn{}, err
	}
	if first.Thought == "" || first.Text == "" {
		return secondTurn{}, errors.New("the first answer has no thought, or is nothing else")
	}
	if side == warmTurns {
		r.warmed++
		if err := r.awaitWarmed(ctx, r.warmed); err != nil {
			return secondTurn{}, err
		}
	}
	messages = append(messages, openai.Message{Role: "assistant", Content: openai.Content(first.Text)}, openai.Message{Role: "user", Content: "And then?"})
	var turn secondTurn
	began := time.Now()
	second, err := client.Chat(ctx, r.request(messages, side, shortAnswer), func(openaiclient.Piece) {
		if turn.first == 0 {
			turn.first = time.Since(began)
		}
	})
	if err != nil {
		return turn, err
	}
	turn.tokens = second.Tokens
	if second.Usage != nil {
		turn.prompt = second.Usage.PromptTokens
		if d := second.Usage.PromptDetails; d != nil {
			turn.cached = d.CachedTokens
		}
	}
	return turn, r.settle(ctx, side)
}

func (r *turnsRun) request(messages []openai.Message, side string, answer int) openai.ChatRequest {
	zero, thought := 0.0, r.options.Thought
	most := thought + 2 + answer // with the marks around the thought
	return openai.ChatRequest{Messages: messages, Sampling: openai.Sampling{
		MaxTokens: &most, Temperature: &zero, Stream: true, StreamOptions: &openai.StreamOptions{IncludeUsage: true}, IgnoreEOS: true, ReturnTokenIDs: true,
		ThinkTokens: &thought, CacheSalt: side,
	}}
}

// words are as many letters and spaces: reference engines have a token for each.
func words(chance *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteByte(byte('a' + chance.IntN(26)))
		if chance.IntN(5) == 0 && b.Len() < n-1 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// settle waits until what a second turn has left to be computed ahead is done: its own
// next turn is of no interest, and must not be in the next one's way.
func (r *turnsRun) settle(ctx context.Context, side string) error {
	if side != warmTurns {
		return nil
	}
	r.warmed++
	return r.awaitWarmed(ctx, r.warmed)
}

func (r *turnsRun) awaitWarmed(ctx context.Context, n int) error {
	return await(ctx, func() (string, error) {
		warmed, dropped, err := readWarmed(ctx, r.client, r.gateways[warmTurns].Admin)
		if err != nil || warmed >= n {
			return "", err
		}
		lacking := fmt.Sprintf("%d of %d next turns were computed ahead, %d were not", warmed, n, dropped)
		if dropped > 0 {
			return "", errors.New(lacking)
		}
		return lacking, nil
	})
}

// readWarmed reads how many next turns a gateway had computed, and how many came to
// nothing.
func readWarmed(ctx context.Context, client *http.Client, admin string) (warmed, dropped int, err error) {
	response, err := send(ctx, client, http.MethodGet, admin+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	const most = 16 << 20
	lines := bufio.NewScanner(io.LimitReader(response.Body, most))
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		if !found || err != nil || !strings.HasPrefix(name, "meridian_gateway_warm_total{") {
			continue
		}
		if strings.Contains(name, `end="warmed"`) {
			warmed = int(n)
		} else {
			dropped += int(n)
		}
	}
	return warmed, dropped, lines.Err()
}
