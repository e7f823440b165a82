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
	Prompts []int `name:"prompt" default:"256,1024" placeholder:"N" help:"Tokens of the prompt; default ${default}."`
	Answer  int   `default:"64" placeholder:"N" help:"Tokens of the answer; default ${default}."`
	Rounds  int   `default:"20" placeholder:"N" help:"Answers that each figure is of; default ${default}."`
	// Program is Meridian; empty means this program.
	Program string `kong:"-"`
	Version string `kong:"-"`
	// Progress is told what is being measured; it may be nil.
	Progress func(bench.Progress) `kong:"-"`
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
	options MovesOptions
	gateway cell.PartRecord
	wires   map[string]*wire // by engine
	client  *http.Client
}

// RunMoves measures the longest wait between two tokens of an answer that moves in its middle,
// beside one whose engine is lost there, so that another computes everything again, and one
// that stays. All three go through one gateway before the same two engines, in turn, under
// salts of their own, and must have the same tokens.
func RunMoves(ctx context.Context, o MovesOptions) (report *MovesReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(bench.Progress) {}
	}
	scratch, err := os.MkdirTemp("", "meridian-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	spec := cell.DefaultSpec()
	spec.Model, spec.Workers = o.Model, cell.Workers{Prefill: 1, Decode: 1}
	c, err := cell.Open(ctx, cell.Options{
		StateDir: filepath.Join(scratch, "cell"), Spec: spec, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Program: o.Program, NoRestart: true, Watch: tellStarts(o.Progress),
	})
	if err != nil {
		return nil, err
	}
	run := &movesRun{options: o, wires: make(map[string]*wire), client: &http.Client{Transport: &http.Transport{}}}
	defer func() {
		run.client.CloseIdleConnections()
		stop, done := context.WithTimeout(context.Background(), routesStop)
		defer done()
		err = errors.Join(err, c.Close(stop))
		for _, w := range run.wires {
			w.close()
		}
	}()
	if err := run.open(ctx, c, scratch); err != nil {
		return nil, err
	}
	report = &MovesReport{Head: bench.NewHead(o.Version), Rows: []MovesRow{}, options: o}
	for i, prompt := range o.Prompts {
		row, err := run.row(ctx, prompt, func(round int, who string) {
			o.Progress(bench.Progress{Row: i + 1, Rows: len(o.Prompts), What: fmt.Sprintf("prompts of %d tokens", prompt), Round: round, Rounds: o.Rounds, Who: who})
		})
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

// open lays a wire to each engine and starts the gateway before them.
func (r *movesRun) open(ctx context.Context, c *cell.Cell, scratch string) (err error) {
	state := filepath.Join(scratch, "gateway")
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	// Agents refuse the word of a gateway that has another key than theirs.
	key, err := os.ReadFile(filepath.Join(c.StateDir(), cellKeyFile))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(state, cellKeyFile), key, 0o600); err != nil {
		return err
	}
	args := []string{"gateway", "--state", state, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	for _, part := range c.Record().Parts {
		if part.Kind == cell.Prefill || part.Kind == cell.Decode {
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
			args = append(args, "--both", "http://"+w.address())
		}
	}
	r.gateway, err = c.Add(ctx, cell.Plan{Name: "gateway-moves", Kind: cell.Beside, Args: args, Ready: "gateway ready at "})
	return err
}

// row has prompts of one length answered in all three ways. The first round warms up.
func (r *movesRun) row(ctx context.Context, prompt int, progress func(int, string)) (MovesRow, error) {
	sides := []string{movesStay, movesMove, movesResume}
	waits := make(map[string][]time.Duration)
	for round := range r.options.Rounds + 1 {
		var before []uint32
		for k := range sides {
			side := sides[(k+round)%len(sides)]
			progress(round, "it "+side)
			tokens, wait, err := r.answer(ctx, side, prompt, round)
			if err != nil {
				return MovesRow{}, fmt.Errorf("%w: an answer that %s: %w", ErrMeasure, side, err)
			}
			if before != nil && !slices.Equal(before, tokens) {
				return MovesRow{}, fmt.Errorf("%w: an answer that %s is another one", ErrMeasure, side)
			}
			before = tokens
			if round > 0 {
				waits[side] = append(waits[side], wait)
			}
		}
	}
	return movesRow(prompt, waits), nil
}

// answer asks for one, does to it what side says when half of it is there, and returns its
// tokens and the longest wait between two of them from then on.
func (r *movesRun) answer(ctx context.Context, side string, prompt, round int) (tokens []uint32, wait time.Duration, err error) {
	if err := r.awaitEngines(ctx); err != nil {
		return nil, 0, err
	}
	chance := rand.New(rand.NewPCG(uint64(prompt), uint64(round)))
	ids := make([]uint32, prompt)
	for i := range ids {
		ids[i] = 'a' + chance.Uint32N(26)
	}
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
	events := openai.NewEventReader(response.Body, openai.MaxEvent)
	var last time.Time
	gone := false
	for {
		data, err := events.Next()
		if err != nil {
			return nil, 0, err
		}
		now := time.Now()
		if string(data) == openai.Done {
			break
		}
		var chunk openai.Chunk
		if !chunk.Parse(data) || chunk.Fault != nil {
			return nil, 0, fmt.Errorf("the stream has %.200s", data)
		}
		if len(chunk.Tokens) == 0 {
			continue
		}
		if gone {
			wait = max(wait, now.Sub(last))
		}
		tokens, last = append(tokens, chunk.Tokens...), now
		if !gone && len(tokens) >= r.options.Answer/2 {
			gone = true
			if err := r.away(ctx, side, response.Header); err != nil {
				return nil, 0, err
			}
		}
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
	for deadline := time.Now().Add(warmPatience); ; {
		err := getJSON(ctx, r.client, r.gateway.Admin+"/debug/requests/"+id, &record)
		if err == nil {
			break
		}
		if ctx.Err() != nil || time.Now().After(deadline) { // it is written after the answer
			return err
		}
		time.Sleep(settling)
	}
	moved := len(record.Moves) == 1 && record.Moves[0].KV == openai.KVHandoff
	if moved != (side == movesMove) || (record.Resumed == 1) != (side == movesResume) {
		return fmt.Errorf("it has %d moves %v and was resumed %d times", len(record.Moves), record.Moves, record.Resumed)
	}
	return nil
}

// awaitEngines waits until the gateway believes in both.
func (r *movesRun) awaitEngines(ctx context.Context) error {
	for deadline := time.Now().Add(warmPatience); ; {
		var page struct{ Engines []struct{ Up bool } }
		if err := getJSON(ctx, r.client, r.gateway.Admin+"/debug/engines", &page); err != nil {
			return err
		}
		up := 0
		for _, e := range page.Engines {
			if e.Up {
				up++
			}
		}
		switch {
		case up == len(r.wires):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d engines answer", up, len(r.wires))
		}
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
