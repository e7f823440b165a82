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
	"strings"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
	"meridian/serve/openai"
)

// MovesOptions says how to measure what a client notices of an answer that goes on at another
// engine.
type MovesOptions struct {
	Model string `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	// Prompts have a row each; an answer goes elsewhere in its middle.
	Prompts       []int `name:"prompt" default:"256,1024" placeholder:"N" help:"Tokens of the prompt; default ${default}."`
	Answer        int   `default:"64" placeholder:"N" help:"Tokens of the answer; default ${default}."`
	Rounds        int   `default:"20" placeholder:"N" help:"Answers that each figure is of; default ${default}."`
	bench.Setting `kong:"-"`
}

// maxMoveTokens keeps prompt and answer within the context of the built-in models.
const maxMoveTokens = 2048

func (o *MovesOptions) validate() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("%w: %d rounds; at least 1", bench.ErrOptions, o.Rounds)
	case len(o.Prompts) == 0:
		return fmt.Errorf("%w: no prompts: say how long they are", bench.ErrOptions)
	case o.Answer < 16:
		return fmt.Errorf("%w: an answer of %d tokens; at least 16", bench.ErrOptions, o.Answer)
	}
	for _, n := range o.Prompts {
		if n < 1 || n+o.Answer > maxMoveTokens {
			return fmt.Errorf("%w: a prompt of %d tokens and an answer of %d; together at most %d", bench.ErrOptions, n, o.Answer, maxMoveTokens)
		}
	}
	return nil
}

// cellKeyFile is where a state directory keeps its cell's key, as trust has it.
const cellKeyFile = "cell.key"

// How an answer goes on.
const (
	movesStay   = "stays"
	movesMove   = "moves"
	movesResume = "resumes"
)

// movesRun is a gateway before two engines, each behind a wire that can be cut.
type movesRun struct {
	*trial
	options MovesOptions
	gateway cell.PartRecord
	wires   map[string]*wire // by engine
}

// RunMoves measures the longest wait between two tokens of an answer that moves in its middle,
// beside one whose engine is lost there, so that another computes everything again, and one
// that stays. All three go through one gateway before the same two engines, in turn, under
// salts of their own, and must have the same tokens.
func RunMoves(ctx context.Context, o MovesOptions) (report *MovesReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t, err := newTrial(o.Setting, 2)
	if err != nil {
		return nil, err
	}
	run := &movesRun{trial: t, options: o, wires: make(map[string]*wire)}
	defer func() {
		err = errors.Join(err, t.close())
		for _, w := range run.wires {
			w.close()
		}
	}()
	if err := run.open(ctx); err != nil {
		return nil, err
	}
	report = &MovesReport{Head: bench.NewHead(o.Version), options: o}
	report.Rows, err = rows(&o.Setting, "prompts of %d tokens", o.Prompts, o.Rounds, func(prompt int, progress func(int, string)) (MovesRow, error) {
		return run.row(ctx, prompt, progress)
	})
	return report, err
}

// open starts a cell, lays a wire to each engine and starts the gateway before them.
func (r *movesRun) open(ctx context.Context) error {
	spec := cell.DefaultSpec()
	spec.Model, spec.Workers = r.options.Model, cell.Workers{Prefill: 1, Decode: 1}
	c, err := r.trial.open(ctx, "cell", spec)
	if err != nil {
		return err
	}
	// Agents refuse the word of a gateway that has another key than theirs.
	key, err := os.ReadFile(filepath.Join(c.StateDir(), cellKeyFile))
	if err != nil {
		return err
	}
	state := filepath.Join(r.scratch, "gateway-moves")
	if err := errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, cellKeyFile), key, 0o600)); err != nil {
		return err
	}
	var flags []string
	for _, part := range engines(c) {
		w, err := openWire(strings.TrimPrefix(part.URL, "http://"))
		if err != nil {
			return err
		}
		var stats struct {
			Engine string `json:"engine"`
		}
		if err := getJSON(ctx, r.client, part.URL+"/stats", &stats); err != nil {
			w.close()
			return err
		}
		r.wires[stats.Engine] = w
		flags = append(flags, "--both", "http://"+w.address())
	}
	r.gateway, err = addGateway(ctx, c, r.scratch, "moves", "127.0.0.1:0", flags...)
	return err
}

// row has prompts of one length answered in all three ways. The first round warms up.
func (r *movesRun) row(ctx context.Context, prompt int, progress func(int, string)) (MovesRow, error) {
	waits := make(map[string][]time.Duration)
	answers := make(map[int][]uint32) // of each round
	err := inTurn(r.options.Rounds, []string{movesStay, movesMove, movesResume}, func(round int, side string) error {
		progress(round, "it "+side)
		tokens, wait, err := r.answer(ctx, side, prompt, round)
		if err != nil {
			return fmt.Errorf("%w: an answer that %s: %w", ErrMeasure, side, err)
		}
		if before, there := answers[round]; there && !slices.Equal(before, tokens) {
			return fmt.Errorf("%w: an answer that %s is another one", ErrMeasure, side)
		}
		answers[round] = tokens
		if round > 0 {
			waits[side] = append(waits[side], wait)
		}
		return nil
	})
	if err != nil {
		return MovesRow{}, err
	}
	return movesRow(prompt, waits), nil
}

// answer asks for one, does to it what side says when half of it is there, and returns its
// tokens and the longest wait between two of them from then on.
func (r *movesRun) answer(ctx context.Context, side string, prompt, round int) (tokens []uint32, wait time.Duration, err error) {
	if err := r.awaitEngines(ctx); err != nil {
		return nil, 0, err
	}
	ids := letters(rand.New(rand.NewPCG(uint64(prompt), uint64(round))), prompt)
	body, err := json.Marshal(map[string]any{
		"prompt": ids, "max_tokens": r.options.Answer, "temperature": 1, "seed": round, "ignore_eos": true, "stream": true, "return_token_ids": true,
		"cache_salt": fmt.Sprintf("%s %d %d", side, prompt, round),
	})
	if err != nil {
		return nil, 0, err
	}
	response, err := post(ctx, r.client, r.gateway.URL+openai.PathCompletions, string(body))
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	var last time.Time
	gone := false
	err = stream(response.Body, func(chunk *openai.Chunk) error {
		if len(chunk.Tokens) == 0 {
			return nil
		}
		now := time.Now()
		if gone {
			wait = max(wait, now.Sub(last))
		}
		tokens, last = append(tokens, chunk.Tokens...), now
		if gone || len(tokens) < r.options.Answer/2 {
			return nil
		}
		gone = true
		return r.away(ctx, side, response.Header)
	})
	if err != nil {
		return nil, 0, err
	}
	return tokens, wait, r.check(ctx, side, response.Header.Get("X-Meridian-Request-Id"))
}

// away makes a running answer go on elsewhere, or not.
func (r *movesRun) away(ctx context.Context, side string, head http.Header) error {
	switch side {
	case movesMove:
		response, err := post(ctx, r.client, r.gateway.Admin+"/requests/"+head.Get("X-Meridian-Request-Id")+"/move", "{}")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	case movesResume:
		_, placed, _ := strings.Cut(head.Get("X-Meridian-Placement"), "decode=")
		name, _, _ := strings.Cut(placed, " ")
		w := r.wires[name]
		if w == nil {
			return fmt.Errorf("the answer comes from %q, which is no engine of this cell", name)
		}
		w.cut()
	}
	return nil
}

// check has the gateway's record say that it was as it should be.
func (r *movesRun) check(ctx context.Context, side, id string) error {
	var record struct {
		Resumed int                   `json:"resumed"`
		Moves   []struct{ KV string } `json:"moves"`
	}
	err := await(ctx, func() (string, error) { // it is written after the answer
		if err := getJSON(ctx, r.client, r.gateway.Admin+"/debug/requests/"+id, &record); err != nil {
			return err.Error(), ctx.Err()
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	moved := len(record.Moves) == 1 && record.Moves[0].KV == openai.KVHandoff
	if moved != (side == movesMove) || (record.Resumed == 1) != (side == movesResume) {
		return fmt.Errorf("it has %d moves %v and was resumed %d times", len(record.Moves), record.Moves, record.Resumed)
	}
	return nil
}

// awaitEngines waits until the gateway believes in both.
func (r *movesRun) awaitEngines(ctx context.Context) error {
	return await(ctx, func() (string, error) {
		var page struct{ Engines []struct{ Up bool } }
		if err := getJSON(ctx, r.client, r.gateway.Admin+"/debug/engines", &page); err != nil {
			return "", err
		}
		up := 0
		for _, e := range page.Engines {
			if e.Up {
				up++
			}
		}
		if up < len(r.wires) {
			return fmt.Sprintf("%d of %d engines answer", up, len(r.wires)), nil
		}
		return "", nil
	})
}
