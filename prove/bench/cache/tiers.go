package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"time"

	"meridian/prove/bench"
	"meridian/serve/openai"
)

// TiersReport is what one prompt takes, wherever its cache is.
type TiersReport struct {
	Model    string     `json:"model"`
	Tokens   int        `json:"tokens"`
	RunBytes uint64     `json:"run_bytes"`
	Prompts  int        `json:"prompts"`
	Rows     []TiersRow `json:"rows"`
}

// TiersRow is one place that the cache came from.
type TiersRow struct {
	From string `json:"from"` // computed, memory, disk, s3
	// P50 and P99 are of the first token, in milliseconds; Fetch is the part of it that
	// was waited for the cache, from the question to the last byte.
	P50   float64 `json:"ttft_p50_ms"`
	P99   float64 `json:"ttft_p99_ms"`
	Fetch float64 `json:"fetch_p50_ms"`
	// OfComputed is P50 as part of what it takes to compute the prompt.
	OfComputed float64 `json:"of_computed"`
	// StoredWeight is what a token costs that comes from there against one that is computed:
	// what gateway.stored_token_weight stands for, with all that comes with a fetch.
	StoredWeight float64 `json:"stored_token_weight,omitempty"`
	// Missed prompts were computed all the same, because the answer came too late; their
	// times are not among the others.
	Missed int     `json:"missed"`
	Others float64 `json:"others"`
}

const (
	tiersModel  = "small"
	tiersUnit   = 64
	tiersMemory = 1 << 30
	tiersDisk   = 2 << 30
	computed    = "computed"
	memory      = "memory"
)

// runTiers has prompts computed by one engine, taken from memory by another, and from a
// tier by the first when memory has been let go.
func runTiers(ctx context.Context, o Options, r *Report) (*TiersReport, error) {
	t := &TiersReport{Model: tiersModel, Tokens: o.Tokens, RunBytes: uint64(o.Tokens/tiersUnit*tiersUnit) * models[tiersModel].bytesPerToken, Prompts: o.Prompts}
	// An engine lets a quarter of its blocks be kept at a time, and is to have forgotten
	// each prompt when it is asked again: there are more prompts than it has room for.
	perPrompt := o.Tokens/engineBlock + 1
	base := setup{model: tiersModel, blocks: 4*perPrompt + 4, unit: tiersUnit, memory: tiersMemory}
	disk, s3 := base, base
	disk.disk, s3.s3 = tiersDisk, true
	for _, below := range []struct {
		name string
		setup
	}{{"disk", disk}, {"s3", s3}} {
		if _, absent := o.s3Program(); below.s3 && absent != nil {
			r.Miss(*absent)
			continue
		}
		rows, err := tierRows(ctx, o, below.name, below.setup)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", below.name, err)
		}
		if len(t.Rows) > 0 {
			rows = rows[2:] // computed and memory are there
		}
		t.Rows = append(t.Rows, rows...)
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		r.OfComputed = ratio(r.P50, t.Rows[0].P50)
		if i > 0 {
			r.StoredWeight = storedWeight(o.Tokens, r.P50, t.Rows[0].P50)
		}
	}
	return t, nil
}

// storedWeight is what a token of whole units costs that is fetched, against one that is
// computed, where a prompt takes so long if they are fetched, and if all is computed.
func storedWeight(tokens int, fetched, computed float64) float64 {
	whole := (tokens - 1) / tiersUnit * tiersUnit
	token := computed / float64(tokens)
	return ratio(max(0, fetched-token*float64(tokens-whole))/float64(whole), token)
}

func tierRows(ctx context.Context, o Options, tier string, s setup) (rows []TiersRow, err error) {
	o.say("tiers", "starting a cell with "+tier)
	w, err := openWorld(ctx, o, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.CloseWithin(stopLimit)) }()
	prompts := make([][]uint32, o.Prompts+1)
	for i := range prompts {
		prompts[i] = tokensOf(uint64(i), o.Tokens)
	}
	first, second := w.url("decode-0"), w.url("decode-1")
	whole := o.Tokens / tiersUnit
	for _, pass := range []struct{ from, url, kv string }{
		{computed, first, openai.KVLocal}, {memory, second, openai.KVFound}, {tier, first, openai.KVFound},
	} {
		o.Tell(bench.Progress{Row: len(rows) + 1, Rows: 3, What: "tiers: " + pass.from, Round: 1, Rounds: 1, Who: "Meridian"})
		settle := func(int) error { return nil }
		switch pass.from {
		case computed: // one by one: an engine has few blocks out to be kept
			settle = func(asked int) error { return w.kept(ctx, asked*whole) }
		case tier: // what was used twice is there
			if err := w.sink(ctx, tier, (len(prompts)-rows[len(rows)-1].Missed)*whole); err != nil {
				return nil, err
			}
		}
		row, err := w.tierRow(ctx, pass.url, pass.from, pass.kv, prompts, settle)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pass.from, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// tierRow has all prompts answered, and everything settle after each; the first of them
// warms up.
func (w *world) tierRow(ctx context.Context, url, from, kv string, prompts [][]uint32, settle func(asked int) error) (TiersRow, error) {
	meter := bench.StartMeter(w.pids())
	var firsts, fetches []time.Duration
	missed := 0
	for i, prompt := range prompts {
		took, report, err := askOne(ctx, url, prompt)
		if err == nil {
			err = settle(i + 1)
		}
		if err != nil {
			return TiersRow{}, err
		}
		if found := report.KV == openai.KVFound; found != (kv == openai.KVFound) {
			missed++
			continue
		}
		if i > 0 {
			firsts = append(firsts, took)
			fetches = append(fetches, time.Duration(report.HandoffMs*float64(time.Millisecond)))
		}
	}
	if len(firsts) == 0 {
		return TiersRow{}, fmt.Errorf("bench: of %d prompts none was %s", len(prompts), kv)
	}
	ms := func(all []time.Duration, percent int) float64 {
		return bench.Rounded(bench.Percentile(all, percent) / 1e3)
	}
	return TiersRow{From: from, P50: ms(firsts, 50), P99: ms(firsts, 99), Fetch: ms(fetches, 50), Missed: missed, Others: meter.Others()}, nil
}

// kept waits until the store has so many objects.
func (w *world) kept(ctx context.Context, objects int) error {
	return until(ctx, fmt.Sprintf("%d objects are kept", objects), func() (bool, error) {
		n, err := w.counts(ctx, "meridian_store_objects")
		return n >= float64(objects), err
	})
}

// sink waits until a tier has so many objects, and has memory let go of all.
func (w *world) sink(ctx context.Context, tier string, objects int) error {
	err := until(ctx, fmt.Sprintf("%d objects are written to %s", objects, tier), func() (bool, error) {
		n, err := w.counts(ctx, "meridian_store_tier_objects", `tier="`+tier+`"`)
		return n >= float64(objects), err
	})
	if err != nil {
		return err
	}
	program := w.options.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	evict := exec.CommandContext(ctx, program, "store", "evict", "--below", "0", "--state", w.cell.StateDir(), "--directory", "unix://"+w.cell.StateDir()+"/directory.sock")
	if said, err := evict.CombinedOutput(); err != nil {
		return fmt.Errorf("bench: store evict: %w: %.300s", err, said)
	}
	return until(ctx, "memory is empty", func() (bool, error) {
		n, err := w.counts(ctx, "meridian_store_objects")
		return n == 0, err
	})
}

// tokensOf is a prompt that no other begins like.
func tokensOf(seed uint64, tokens int) []uint32 {
	dice := rand.New(rand.NewPCG(seed, 17))
	prompt := make([]uint32, tokens)
	for i := range prompt {
		prompt[i] = 4 + dice.Uint32N(250)
	}
	return prompt
}

const maxAnswer = 1 << 20

// askOne has a prompt answered with one token.
func askOne(ctx context.Context, url string, prompt []uint32) (took time.Duration, report openai.Report, err error) {
	one := 1
	body, err := json.Marshal(openai.CompletionRequest{Sampling: openai.Sampling{MaxTokens: &one, IgnoreEOS: true}, Prompt: openai.Prompt{Tokens: [][]uint32{prompt}}})
	if err != nil {
		return 0, report, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+openai.PathCompletions, bytes.NewReader(body))
	if err != nil {
		return 0, report, err
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, report, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	took = time.Since(began)
	if err != nil {
		return 0, report, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, report, fmt.Errorf("status %d: %w", response.StatusCode, openai.ParseError(response.StatusCode, text))
	}
	var answer struct {
		Meridian openai.Report `json:"meridian"`
	}
	return took, answer.Meridian, json.Unmarshal(text, &answer)
}

func (t *TiersReport) write(w io.Writer) {
	if t == nil {
		return
	}
	fmt.Fprintf(w, "\ntiers: a prompt of %d tokens of the model %s, a run of %s, on an idle engine; %d prompts from each\n"+
		"TTFT in ms; FETCH: what of it was waited for the cache; ×: TTFT beside computing; WEIGHT: what a token of it costs beside one that is computed (gateway.stored_token_weight); MISSED: computed all the same, not among the others; OTHERS: cores used by others\n\n", t.Tokens, t.Model, mib(t.RunBytes), t.Prompts)
	fmt.Fprint(w, bench.Table("FROM\tTTFT P50\tP99\tFETCH P50\t×\tWEIGHT\tMISSED\tOTHERS", t.Rows, func(r *TiersRow) string {
		return fmt.Sprintf("%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.3f\t%d\t%.1f", r.From, r.P50, r.P99, r.Fetch, r.OfComputed, r.StoredWeight, r.Missed, r.Others)
	}))
}
