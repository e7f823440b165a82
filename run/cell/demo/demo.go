// Package demo shows that a cell works: it sends a small mixed load through the
// gateway, then the same prompts to one engine that serves alone, and compares
// the answers token by token.
//
//	prompts ─► gateway ─► prefill ─► hand-off ─► decode ─► tokens ─┐
//	   └─────► an engine alone ──────────────────────────► tokens ─┴─► equal, or the first difference
//	           the gateway's records ─► latency by phase
//
// Where the cell has a shared cache, a conversation goes on at another worker, which
// finds there what the first has computed.
//
// A cell in which nothing was handed over shows nothing, so that is an error.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/run/cell/openaiclient"
	"meridian/see/ledger"
)

// Options says what is compared.
type Options struct {
	Gateway *openaiclient.Client
	// Alone is an engine of the same model that serves by itself. It is asked
	// for when it is needed, so that it does not slow the cell down.
	Alone func(context.Context) (*openaiclient.Client, error)
	// StateDir is where the gateway keeps its records.
	StateDir string
	// Model is what it is called, MaxTokens how long its context is.
	Model     string
	MaxTokens int
	// Reasoning has some of the prompts thought about.
	Reasoning bool
	// Greedy leaves sampling out, for engines that do not sample the same
	// twice.
	Greedy bool
	// Received tells how many tokens of cache decode workers have taken from
	// prefill workers so far, where answers do not tell it; it may be nil.
	Received func(context.Context) (int64, error)
	// Workers are those that a conversation can go on at, by name, where the cell has a
	// shared cache: each is asked for FoundTokens, which it took from there so far. Without
	// workers no second turn is shown.
	Workers     map[string]*openaiclient.Client
	FoundTokens func(ctx context.Context, worker string) (int64, error)
	// Together is how many requests run at a time; 0 means 8.
	Together int
	// Tell hears how far the load has come; it may be nil.
	Tell func(Stage)
}

// Report is how it went.
type Report struct {
	Prompts int `json:"prompts"`
	// Tokens is how many were compared.
	Tokens int `json:"tokens"`
	// HandedOver is how many requests took the cache from a prefill worker,
	// Cached and Local how many had it or computed it where they were decoded.
	HandedOver int `json:"handed_over"`
	Cached     int `json:"cached"`
	Local      int `json:"local"`
	// Found is how many began with what the cell's shared cache had.
	Found int `json:"found,omitempty"`
	// SecondTurn is a conversation that went on at another worker; nil where the cell
	// has no shared cache.
	SecondTurn *Turn `json:"second_turn,omitempty"`
	// Untold is how many went by a prefill worker and came from an engine that
	// does not tell what became of it; HandedTokens is how many tokens decode
	// workers say that they took.
	Untold       int   `json:"untold,omitempty"`
	HandedTokens int64 `json:"handed_tokens,omitempty"`
	// Reasons says why requests were not handed over, and how many.
	Reasons map[string]int `json:"reasons,omitempty"`
	// CellSeconds and AloneSeconds are how long each run took.
	CellSeconds  float64   `json:"cell_seconds"`
	AloneSeconds float64   `json:"alone_seconds"`
	Latency      []Phase   `json:"latency_ms"`
	Difference   *Mismatch `json:"difference,omitempty"`
}

// Equal is whether both gave the same tokens.
func (r *Report) Equal() bool { return r.Difference == nil }

// Verdict is the line by which a report ends.
func (r *Report) Verdict() string {
	if r.Equal() {
		return fmt.Sprintf("parity: equal (%d prompts, %d tokens)", r.Prompts, r.Tokens)
	}
	return "parity: DIFFERENT " + r.Difference.String()
}

// ErrNoHandOff means that the load passed without any hand-off.
var ErrNoHandOff = errors.New("demo: no request was handed over from a prefill worker to a decode worker")

// Stage is what the demo is doing, for people who wait.
type Stage struct {
	Name        string
	Done, Total int
}

// Run sends the load twice and compares. With an error there may be a report
// of what came before it.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Together = cmp.Or(o.Together, 8)
	if o.Tell == nil {
		o.Tell = func(Stage) {}
	}
	if o.Received == nil {
		o.Received = func(context.Context) (int64, error) { return 0, nil }
	}
	before, err := o.Received(ctx)
	if err != nil {
		return nil, err
	}
	prompts := load(o)
	r := &Report{Prompts: len(prompts)}
	through, seconds, err := sendAll(ctx, o, target{"through the gateway", o.Gateway}, prompts)
	if err != nil {
		return nil, err
	}
	r.CellSeconds = seconds
	after, err := o.Received(ctx)
	if err != nil {
		return nil, err
	}
	r.HandedTokens = after - before
	counted := len(prompts)
	if len(o.Workers) > 0 {
		turn, again, answer, err := secondTurn(ctx, o)
		if err != nil {
			return nil, err
		}
		r.SecondTurn, prompts, through = turn, append(prompts, again), append(through, answer)
	}
	alone, err := o.Alone(ctx)
	if err != nil {
		return nil, err
	}
	straight, seconds, err := sendAll(ctx, o, target{"through one engine alone", alone}, prompts)
	if err != nil {
		return nil, err
	}
	r.AloneSeconds = seconds
	if r.Tokens, r.Difference, err = compare(prompts, through, straight); err != nil {
		return nil, err
	}
	records, err := recordsOf(ctx, o.StateDir, through[:counted])
	if err != nil {
		return nil, err
	}
	r.count(records)
	r.Latency = phases(records)
	if r.HandedOver == 0 && r.HandedTokens <= 0 {
		return r, ErrNoHandOff
	}
	return r, nil
}

// target is where prompts go.
type target struct {
	name   string
	client *openaiclient.Client
}

// sendAll sends all prompts, some at a time, each as soon as there is room.
func sendAll(ctx context.Context, o Options, to target, prompts []prompt) (answers []*openaiclient.Answer, seconds float64, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers = make([]*openaiclient.Answer, len(prompts))
	turns := make(chan int)
	var mu sync.Mutex // protects done, and the order of Tell
	done := 0
	var sending sync.WaitGroup
	for range o.Together {
		sending.Go(func() {
			for i := range turns {
				answer, err := prompts[i].send(ctx, to.client)
				if err != nil {
					cancel(fmt.Errorf("demo: prompt %d (%s) %s: %w", i+1, prompts[i].kind, to.name, err))
					continue
				}
				answers[i] = answer
				mu.Lock()
				done++
				o.Tell(Stage{Name: to.name, Done: done, Total: len(prompts)})
				mu.Unlock()
			}
		})
	}
	for i := range prompts {
		select {
		case turns <- i:
		case <-ctx.Done():
		}
	}
	close(turns)
	sending.Wait()
	return answers, time.Since(began).Seconds(), context.Cause(ctx)
}

// recordsWait is how long the gateway may take to write a record down.
const recordsWait = 5 * time.Second

// recordsOf finds the gateway's records of answers.
func recordsOf(ctx context.Context, dir string, answers []*openaiclient.Answer) ([]*ledger.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, recordsWait)
	defer cancel()
	wanted := make(map[string]bool)
	for i, a := range answers {
		if a.RequestID == "" {
			return nil, fmt.Errorf("demo: answer %d came without %s; is this Meridian's gateway?", i+1, openaiclient.RequestIDHeader)
		}
		wanted[a.RequestID] = true
	}
	for {
		records, _, err := ledger.LatestIn(dir, 2*len(answers)) // others may use the cell
		if err != nil {
			return nil, err
		}
		records = slices.DeleteFunc(records, func(r *ledger.Record) bool { return !wanted[r.ID] })
		if len(records) == len(wanted) {
			return records, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("demo: the gateway has records of %d of %d requests in %s", len(records), len(wanted), dir)
		}
	}
}
