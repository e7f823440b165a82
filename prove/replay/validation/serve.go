package validation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"meridian/engine"
	"meridian/prove/replay/workload"
)

// markers is how many tokens open and close a thought; they are part of it.
const markers = 2

// drawn is a request without a moment. Four in ten think for long.
func drawn(dice *rand.Rand) workload.Request {
	r := workload.Request{Prompt: 16 + dice.Int32N(241), Think: markers, Output: 16 + dice.Int32N(81)}
	if dice.IntN(10) < 4 {
		r.Think += 40 + dice.Int32N(261)
	}
	return r
}

// longest is more than any request has of tokens.
const longest = 16 + 241 + markers + 40 + 261 + 16 + 81

// answer is when the tokens of a request came, since the load began.
type answer struct {
	request workload.Request // At is when it was submitted
	tokens  []time.Duration
}

// driver submits requests to an engine.
type driver struct {
	engine *engine.Engine
	start  time.Time
}

// promptOf draws letters: no two prompts begin alike, so that no cache helps.
func promptOf(r workload.Request, dice *rand.Rand) []uint32 {
	prompt := make([]uint32, r.Prompt)
	for i := range prompt {
		prompt[i] = ' ' + dice.Uint32N('~'-' ')
	}
	return prompt
}

// ask submits a request and reads its answer.
func (d *driver) ask(ctx context.Context, r workload.Request, prompt []uint32) (answer, error) {
	thought := int(r.Think - markers)
	total := int(r.Think + r.Output)
	r.At = time.Since(d.start)
	stream, err := d.engine.Submit(ctx, engine.Request{
		Prompts: [][]uint32{prompt}, MaxTokens: total, MinTokens: total, IgnoreEOS: true, ThinkTokens: &thought,
	})
	if err != nil {
		return answer{}, err
	}
	a := answer{request: r}
	for {
		out, err := stream.Next(ctx)
		at := time.Since(d.start)
		for _, o := range out {
			for range o.Tokens {
				a.tokens = append(a.tokens, at)
			}
		}
		switch {
		case errors.Is(err, io.EOF) && len(a.tokens) == total:
			return a, nil
		case errors.Is(err, io.EOF):
			return a, fmt.Errorf("validation: an answer of %d tokens, %d were asked for", len(a.tokens), total)
		case err != nil:
			return a, err
		}
	}
}

// closed keeps so many requests in the engine for so long.
func (d *driver) closed(ctx context.Context, clients int, lasts time.Duration, seed uint64) error {
	until := time.Now().Add(lasts)
	return together(clients, func(client int) error {
		dice := rand.New(rand.NewPCG(seed, uint64(client)))
		for time.Now().Before(until) {
			r := drawn(dice)
			if _, err := d.ask(ctx, r, promptOf(r, dice)); err != nil {
				return err
			}
		}
		return nil
	})
}

// open submits requests at their moments, and waits for all of them.
func (d *driver) open(ctx context.Context, requests []workload.Request, seed uint64) ([]answer, error) {
	answers := make([]answer, len(requests))
	prompts := make([][]uint32, len(requests))
	dice := rand.New(rand.NewPCG(seed, 1))
	for i, r := range requests {
		prompts[i] = promptOf(r, dice)
	}
	d.start = time.Now()
	err := together(len(requests), func(i int) error {
		timer := time.NewTimer(time.Until(d.start.Add(requests[i].At)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		answers[i], err = d.ask(ctx, requests[i], prompts[i])
		return err
	})
	return answers, err
}

// together runs n functions at a time and waits for all.
func together(n int, f func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// fewest is how many requests there are at least, however long they take to come.
const fewest = 20

// arrivals are requests of a Poisson process.
func arrivals(perSecond float64, lasts time.Duration, seed uint64) []workload.Request {
	dice := rand.New(rand.NewPCG(seed, 0))
	var requests []workload.Request
	for at := time.Duration(0); ; {
		at += time.Duration(dice.ExpFloat64() / perSecond * float64(time.Second))
		if at > lasts && len(requests) >= fewest {
			return requests
		}
		r := drawn(dice)
		r.At = at
		requests = append(requests, r)
	}
}

// endless draws requests that come whenever there is room.
type endless struct {
	workload.Unread
	dice *rand.Rand
}

func (e endless) Next() (workload.Request, bool) { return drawn(e.dice), true }
