package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"meridian/prove/bench"
	"meridian/serve/openai"
)

// ForcingOptions says how to measure what ending thoughts saves, on scripted entropies.
type ForcingOptions struct {
	Thought int `default:"1800" placeholder:"N" help:"Tokens of a thought that nothing ends; default ${default}."`
	Answer  int `default:"32" placeholder:"N" help:"Tokens of the answer behind it; default ${default}."`
	// Settles, Strays and Caps have a row each.
	Settles       []int   `default:"200,800" placeholder:"N" help:"Tokens after which the answer settles, for the signal converged; default ${default}."`
	Strays        []int   `default:"1400" placeholder:"N" help:"Tokens after which a thought loses its way, for the signal overthinking, which a governor tells by the last 512 tokens, at three times the mean of all; default ${default}."`
	Caps          []int   `name:"cap" default:"256" placeholder:"N" help:"The longest thought that a request allows, max_think_tokens; default ${default}."`
	Requests      int     `default:"4" placeholder:"N" help:"Requests of a row, at a time; default ${default}."`
	Alpha         float64 `default:"0.2" placeholder:"X" help:"entropy.ema_alpha; default ${default}: with 0.05, the configuration's, a built-in model's context is too short for 80 looks."`
	Interval      int     `default:"8" placeholder:"N" help:"entropy.eat_probe_interval_tokens, twice the tokens of a paragraph; default ${default}."`
	MinThink      int     `default:"128" placeholder:"N" help:"scheduler.min_think_tokens; default ${default}."`
	bench.Setting `kong:"-"`
}

// forcingPrompt keeps prompts short, and maxForcing all of a request within the context
// of the built-in models.
const (
	forcingPrompt = 32
	maxForcing    = 2048 - forcingPrompt - 2
)

func (o *ForcingOptions) validate() error {
	switch {
	case o.Thought < 16 || o.Answer < 1 || o.Thought+o.Answer > maxForcing:
		return fmt.Errorf("%w: thoughts of %d tokens and answers of %d; at least 16 and 1, together at most %d", bench.ErrOptions, o.Thought, o.Answer, maxForcing)
	case o.Requests < 1 || o.Requests > 64:
		return fmt.Errorf("%w: %d requests; 1 to 64", bench.ErrOptions, o.Requests)
	case !(o.Alpha >= 0.001 && o.Alpha <= 1) || o.Interval < 4 || o.MinThink < 0 || o.MinThink >= o.Thought:
		return fmt.Errorf("%w: alpha %g, an interval of %d tokens, %d tokens at least; alpha is 0.001 to 1, an interval has 4 tokens or more, and a thought may be ended before its end", bench.ErrOptions, o.Alpha, o.Interval, o.MinThink)
	case len(o.Settles)+len(o.Strays)+len(o.Caps) == 0:
		return fmt.Errorf("%w: nothing that ends a thought", bench.ErrOptions)
	}
	for _, n := range slices.Concat(o.Settles, o.Strays, o.Caps) {
		if n < 1 || n >= o.Thought {
			return fmt.Errorf("%w: %d tokens into a thought of %d", bench.ErrOptions, n, o.Thought)
		}
	}
	return nil
}

// forcingCase is one row to be measured.
type forcingCase struct {
	signal string // one of openai's Forced; empty: none should come
	point  int    // tokens after which it is there
	trace  forcingTrace
	limit  *int // max_think_tokens of the requests
}

// forcingTrace is what --entropy-trace reads.
type forcingTrace struct {
	Tokens          []float32 `json:"tokens"`
	Forks           []float32 `json:"forks"`
	ParagraphTokens int       `json:"paragraph_tokens"`
}

// Entropies of the traces, in nats. An answer that has not settled changes with every
// paragraph; one that has does not. A chain that has lost its way is a hundred times as
// undecided as before.
const (
	undecided, swing = 1.5, 2.0
	settled          = 0.2
	onTheWay, astray = 0.05, 5.0
)

// cases are what is measured. A look takes the engine a step or two, so that one at every
// end of a paragraph as long as the interval would be missed every other time.
func (o *ForcingOptions) cases() (all []forcingCase) {
	unsettled := func(until int) (forks []float32) {
		dice := rand.New(rand.NewPCG(1, 1))
		nats := float32(0)
		for i := range until {
			if i%o.Interval == 0 {
				nats = undecided + swing*(dice.Float32()-0.5)
			}
			forks = append(forks, nats)
		}
		return forks
	}
	level := func(count int, nats float32) []float32 { return slices.Repeat([]float32{nats}, count) }
	for _, n := range o.Settles {
		all = append(all, forcingCase{signal: openai.ForcedConverged, point: n, trace: forcingTrace{
			Tokens: level(1, undecided), Forks: append(unsettled(n), settled), ParagraphTokens: o.Interval / 2,
		}})
	}
	for _, n := range o.Strays {
		all = append(all, forcingCase{signal: openai.ForcedOverthinking, point: n, trace: forcingTrace{
			Tokens: append(level(n, onTheWay), astray), Forks: unsettled(o.Thought + 1), ParagraphTokens: o.Interval / 2,
		}})
	}
	steady := forcingTrace{Tokens: level(1, undecided), Forks: unsettled(o.Thought + 1), ParagraphTokens: o.Interval / 2}
	for _, n := range o.Caps {
		all = append(all, forcingCase{signal: openai.ForcedHardCap, point: n, trace: steady, limit: &n})
	}
	return append(all, forcingCase{point: o.Thought, trace: steady}) // the last is the one without a signal
}

// forcingRun is one agent, whose governor decides for engines that come one after another.
type forcingRun struct {
	options ForcingOptions
	scratch string
	client  *http.Client
	alone   string          // where an engine without a governor serves
	full    []forcingAnswer // its answers, with whole thoughts
}

// RunForcing has thoughts play entropies of which it is known where they settle or lose
// their way, with a governor and without, and tells what was thought.
func RunForcing(ctx context.Context, o ForcingOptions) (report *ForcingReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	agent, err := openAgent(ctx, o.Program, []string{
		"MERIDIAN_ENTROPY_EMA_ALPHA=" + strconv.FormatFloat(o.Alpha, 'f', -1, 64),
		"MERIDIAN_ENTROPY_EAT_PROBE_INTERVAL_TOKENS=" + strconv.Itoa(o.Interval), "MERIDIAN_SCHEDULER_MIN_THINK_TOKENS=" + strconv.Itoa(o.MinThink),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agent.close()) }()
	o.Program = agent.program
	run := &forcingRun{options: o, scratch: agent.state, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Requests}}}
	defer run.client.CloseIdleConnections()
	report = &ForcingReport{Head: bench.NewHead(o.Version), options: o}
	cases := o.cases()
	o.Tell(bench.Progress{What: "the answers of an engine alone"})
	alone, url, err := run.start(ctx, "alone", &cases[len(cases)-1].trace, "--no-door")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServing(alone)) }()
	run.alone = url
	if run.full, err = run.ask(ctx, url, slices.Repeat([]int{o.Thought}, o.Requests), nil); err != nil {
		return nil, err
	}
	for i := range cases {
		o.Tell(bench.Progress{Row: i + 1, Rows: len(cases), What: cases[i].title(), Round: 1, Rounds: 1, Who: "with and without a governor"})
		row, err := run.row(ctx, &cases[i])
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMeasure, cases[i].title(), err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func (c *forcingCase) title() string {
	if c.signal == "" {
		return "thoughts that nothing ends"
	}
	return fmt.Sprintf("thoughts that are %s after %d tokens", c.signal, c.point)
}

// row has the requests answered by an engine with a governor, and by the one alone with
// thoughts as long as the governor has let them be.
func (r *forcingRun) row(ctx context.Context, c *forcingCase) (row ForcingRow, err error) {
	engine, url, err := r.start(ctx, "governed", &c.trace, "--state", r.scratch, "--agent", agentName)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, stopServing(engine)) }()
	if err := r.awaitGovernor(ctx, url); err != nil {
		return row, err
	}
	lengths := slices.Repeat([]int{r.options.Thought}, r.options.Requests)
	governed, err := r.ask(ctx, url, lengths, c.limit)
	if err != nil {
		return row, err
	}
	row = ForcingRow{Signal: c.signal, Point: c.point, Reasons: make(map[string]int)}
	for i := range governed {
		if lengths[i], err = governed[i].thought(r.full[i], r.options.Thought); err != nil {
			return row, fmt.Errorf("answer %d: %w", i, err)
		}
		row.add(r.options.Thought, lengths[i], governed[i].Report.ForcedThinkEnd)
	}
	again, err := r.ask(ctx, r.alone, lengths, nil)
	if err != nil {
		return row, err
	}
	for i := range again {
		if whole := again[i].tokens(); !slices.Equal(whole, governed[i].tokens()[:len(whole)]) {
			return row, fmt.Errorf("answer %d is not that of an engine alone that thinks for %d tokens", i, lengths[i])
		}
	}
	return row, nil
}

// forcingAnswer is what an engine answers.
type forcingAnswer struct {
	Choices []struct {
		TokenIDs []uint32 `json:"token_ids"`
	} `json:"choices"`
	Report openai.Report `json:"meridian"`
}

func (a *forcingAnswer) tokens() []uint32 { return a.Choices[0].TokenIDs }

// thought is how long it is. An answer must have one, between the marks that the same
// answer of an engine alone has, and something behind it.
func (a *forcingAnswer) thought(alone forcingAnswer, full int) (int, error) {
	tokens, marks := a.tokens(), alone.tokens()
	end := slices.Index(tokens, marks[full+1])
	if tokens[0] != marks[0] || end < 0 || end == len(tokens)-1 {
		return 0, fmt.Errorf("%d tokens lack a thought, its end, or an answer behind it", len(tokens))
	}
	return end - 1, nil
}

// start starts an engine whose thoughts play a trace, and returns where it serves.
func (r *forcingRun) start(ctx context.Context, id string, trace *forcingTrace, flags ...string) (*bench.Process, string, error) {
	data, err := json.Marshal(trace)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(r.scratch, id+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, "", err
	}
	engine, err := bench.StartProcess("the engine "+id, append([]string{r.options.Program, "engine", "--id", id, "--model", "tiny", "--reasoning", "--entropy-trace", file}, flags...), nil)
	if err != nil {
		return nil, "", err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := engine.Line(wait)
	if err != nil {
		return nil, "", errors.Join(err, stopServing(engine))
	}
	_, rest, _ := strings.Cut(string(line), " ready at ")
	url, _, found := strings.Cut(rest, " ")
	if !found {
		return nil, "", errors.Join(fmt.Errorf("the engine says %q", line), stopServing(engine))
	}
	return engine, url, nil
}

// awaitGovernor asks for short answers until one was governed.
func (r *forcingRun) awaitGovernor(ctx context.Context, url string) error {
	return await(ctx, func() (string, error) {
		if _, err := r.ask(ctx, url, []int{1}, nil); err != nil {
			return "", err
		}
		var stats struct{ Counters struct{ Decided uint64 } }
		if err := getJSON(ctx, r.client, url+"/stats", &stats); err != nil || stats.Counters.Decided > 0 {
			return "", err
		}
		return "no governor decides for the engine", nil
	})
}

// ask sends a request for each thought, all at a time.
func (r *forcingRun) ask(ctx context.Context, url string, thoughts []int, limit *int) ([]forcingAnswer, error) {
	answers, errs := make([]forcingAnswer, len(thoughts)), make([]error, len(thoughts))
	var active sync.WaitGroup
	for i, think := range thoughts {
		active.Go(func() { answers[i], errs[i] = r.askOne(ctx, url, i, think, limit) })
	}
	active.Wait()
	return answers, errors.Join(errs...)
}

func (r *forcingRun) askOne(ctx context.Context, url string, number, think int, limit *int) (a forcingAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, mixedTimeout)
	defer cancel()
	prompt := make([]uint32, forcingPrompt)
	for i := range prompt {
		prompt[i] = 'a' + uint32(number*7+i*3)%26
	}
	request := map[string]any{
		"prompt": prompt, "max_tokens": think + 2 + r.options.Answer, "think_tokens": think, "temperature": 1, "seed": number, "ignore_eos": true, "return_token_ids": true,
	}
	if limit != nil {
		request["max_think_tokens"] = *limit
	}
	body, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	response, err := post(ctx, r.client, url+openai.PathCompletions, string(body))
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(&a); err != nil {
		return a, err
	}
	if len(a.Choices) != 1 || len(a.tokens()) != think+2+r.options.Answer {
		return a, fmt.Errorf("not one answer of %d tokens", think+2+r.options.Answer)
	}
	return a, nil
}
