package engine

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"meridian/engine/model"
	"meridian/internal/until"
	"meridian/serve/openai"
)

func longPrompt(length int) []uint32 {
	prompt := make([]uint32, length)
	for i := range prompt {
		prompt[i] = uint32(i*7%200 + 1)
	}
	return prompt
}

// until waits for something that the cell's lock protects.
func (c *cell) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	until.True(t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return done()
	})
}

// tellsEachLayer has an engine compute the next layer when the agent has been told of the one
// before: else it may be told of the last alone.
func tellsEachLayer(e *Engine) {
	r := e.runner.(*model.Runner)
	tell := r.LayerDone
	r.LayerDone = func(layers int) {
		tell(layers)
		telling := true
		for deadline := time.Now().Add(patience); telling && time.Now().Before(deadline); runtime.Gosched() {
			e.news.mu.Lock()
			telling = e.news.telling
			e.news.mu.Unlock()
		}
	}
}

// A long prompt is offered when its first chunk begins. Its chunks and layers are taken
// while the rest is computed, each once, and the answer is that of an engine alone.
func TestChunksAreTakenWhileTheNextIsComputed(t *testing.T) {
	prompt := longPrompt(300)
	want, _ := ask(t, join(t, nil, Options{}), Request{Prompts: [][]uint32{prompt}, MaxTokens: 12})
	for _, cuts := range [][2]Options{
		{{BlockTokens: 16, StepTokens: 64, MaxRunning: 4}, {BlockTokens: 16}},
		{{BlockTokens: 5, StepTokens: 33, MaxRunning: 4, TP: 2}, {BlockTokens: 8, PP: 2}},
	} {
		c := newCell()
		gate := make(chan struct{})
		first := true
		cuts[0].OnStep = func(Step) {
			if first { // the decode engine asks when one chunk is computed
				first = false
				<-gate
			}
		}
		prefill, decode := join(t, c, cuts[0]), join(t, c, cuts[1])
		prefill.post(func() { tellsEachLayer(prefill) })
		transfer := [16]byte{7}
		s, err := prefill.Submit(within(t), Request{Prompts: [][]uint32{prompt}, MaxTokens: 1, Offer: &transfer})
		if err != nil {
			t.Fatal(err)
		}
		c.until(t, "the offer", func() bool { return c.offers[transfer] != nil })
		d, err := decode.Submit(within(t), Request{Prompts: [][]uint32{prompt}, MaxTokens: 12, Ticket: ticketOf(transfer)})
		if err != nil {
			t.Fatal(err)
		}
		c.until(t, "the ask", func() bool { return len(c.offers[transfer].takers) == 1 })
		close(gate)
		_, result, err := readAll(within(t), s, 1)
		if err != nil || !slices.Equal(result.Ticket, ticketOf(transfer)) {
			t.Errorf("the prefill leg: ticket %q, %v", result.Ticket, err)
		}
		got, result, err := readAll(within(t), d, 1)
		if err != nil || !slices.Equal(got[0].Tokens, want[0].Tokens) || result.Report.KV != openai.KVHandoff {
			t.Errorf("%v: %v, want %v: %v", result.Report, got[0].Tokens, want[0].Tokens, err)
		}
		c.mu.Lock()
		if c.early == 0 {
			t.Error("nothing was taken before all was computed")
		}
		if c.layered == 0 {
			t.Error("of layers it was not told before all of them were computed")
		}
		c.mu.Unlock()
		if s := idle(t, prefill); s.Counters.Offered != 1 || s.Counters.Declined != 0 {
			t.Errorf("%+v", s.Counters)
		}
		idle(t, decode)
	}
}

// A prompt that is not computed any more in the blocks that were offered, because its
// client went away or because it was preempted, is withdrawn in the middle of it: who
// waits for the rest hears so and computes for itself.
func TestEarlyOfferIsWithdrawn(t *testing.T) {
	prompt := longPrompt(300)
	want, _ := ask(t, join(t, nil, Options{}), Request{Prompts: [][]uint32{prompt}, MaxTokens: 6})
	for name, preempted := range map[string]bool{"cancelled": false, "preempted": true} {
		t.Run(name, func(t *testing.T) {
			c := newCell()
			gate := make(chan struct{})
			steps := 0
			prefill := join(t, c, Options{BlockTokens: 16, StepTokens: 64, MaxRunning: 4, OnStep: func(Step) {
				if steps++; steps == 2 {
					<-gate
				}
			}})
			decode := join(t, c, Options{BlockTokens: 8})
			transfer := [16]byte{9}
			ctx, leave := context.WithCancel(within(t))
			defer leave()
			s, err := prefill.Submit(ctx, Request{Prompts: [][]uint32{prompt}, MaxTokens: 1, Offer: &transfer})
			if err != nil {
				t.Fatal(err)
			}
			c.until(t, "the offer", func() bool { return c.offers[transfer] != nil })
			d, err := decode.Submit(within(t), Request{Prompts: [][]uint32{prompt}, MaxTokens: 6, Ticket: ticketOf(transfer)})
			if err != nil {
				t.Fatal(err)
			}
			c.until(t, "the ask", func() bool { return len(c.offers[transfer].takers) == 1 })
			if preempted {
				prefill.post(func() {
					for q := range prefill.requests {
						if !prefill.scheduler.Preempt(&q.choices[0].sequence) {
							t.Error("it was not preempted")
						}
					}
				})
			} else {
				leave()
			}
			close(gate)
			alone, result, err := readAll(within(t), s, 1)
			switch {
			case preempted && (err != nil || !slices.Equal(alone[0].Tokens, want[0].Tokens[:1]) || result.Ticket != nil):
				t.Errorf("the prefill leg: %v, ticket %q, %v", alone, result.Ticket, err)
			case !preempted && err == nil:
				t.Error("a cancelled request ended well")
			}
			c.until(t, "the withdrawal", func() bool { return c.offers[transfer] == nil })
			got, result, err := readAll(within(t), d, 1)
			if err != nil || !slices.Equal(got[0].Tokens, want[0].Tokens) || result.Report.KV != openai.KVLocal {
				t.Errorf("%v: %v, want %v: %v", result.Report, got[0].Tokens, want[0].Tokens, err)
			}
			idle(t, prefill)
			idle(t, decode)
		})
	}
}
