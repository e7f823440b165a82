package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// serve runs clients of an engine, which ask one thing after the other.
func (w *governedWorld) serve(ctx context.Context, m *worldEngine, client int, dice *rand.Rand) {
	defer w.clients.Done()
	for n := range 1 + dice.IntN(4) {
		time.Sleep(time.Duration(dice.IntN(int(200*time.Millisecond))) | 1)
		if w.over() {
			return
		}
		w.ask(ctx, m, w.draw(dice, fmt.Sprintf("%s/%d/%d", m.engine.options.ID, client, n)), dice)
	}
}

// draw is a request: long thinkers and short answerers, of which some begin alike.
func (w *governedWorld) draw(dice *rand.Rand, id string) Request {
	think, most := 2+dice.IntN(8), 4+dice.IntN(12)
	if dice.IntN(2) == 0 {
		think, most = 30+dice.IntN(40), 2+dice.IntN(30)
	}
	p := slices.Concat(prompt(uint64(dice.IntN(3)), 40)[:dice.IntN(41)], prompt(dice.Uint64(), 1+dice.IntN(30)))
	r := Request{
		ID: id, Salt: fmt.Sprint(dice.IntN(2)), Prompts: [][]uint32{p}, MaxTokens: think + most, IgnoreEOS: true, ThinkTokens: &think,
		Sampling: Sampling{Temperature: float64(dice.IntN(2)), Seed: dice.Uint64N(100)},
	}
	if dice.IntN(4) == 0 {
		most := 1 + dice.IntN(40)
		r.MaxThinkTokens = &most
	}
	if dice.IntN(6) == 0 {
		r.N = 2
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[id] = &r
	return r
}

// ask reads an answer, token by token.
func (w *governedWorld) ask(ctx context.Context, m *worldEngine, r Request, dice *rand.Rand) {
	if w.faults.cancel && dice.IntN(8) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(dice.IntN(int(time.Second)))|1)
		defer cancel()
		ctx = limited
	}
	got := worldAnswer{request: r, traced: m.engine.options.Trace != nil, told: make([]told, max(1, r.N))}
	progress := func(open bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(m.open) == 0 || open && m.open[r.ID] != (time.Time{}) {
			m.last = time.Now()
		}
		if m.open[r.ID] = time.Now(); !open {
			delete(m.open, r.ID)
			w.answers = append(w.answers, got)
		}
	}
	progress(true)
	stream, err := m.engine.Submit(ctx, r)
	for err == nil {
		var outputs []Output
		if outputs, err = stream.Next(ctx); err != nil {
			break
		}
		progress(true)
		for _, o := range outputs {
			a := &got.told[o.Choice]
			a.Tokens, a.Finish = append(a.Tokens, o.Tokens...), o.Finish
		}
	}
	if errors.Is(err, io.EOF) {
		got.result, err = stream.Result(), nil
	}
	got.err = err
	progress(false)
}

// watch demands that engines and requests go on.
func (w *governedWorld) watch(longest *time.Duration) {
	for !w.over() {
		time.Sleep(50*time.Millisecond + 7)
		now := time.Now()
		var wrong []string
		for _, m := range w.engines {
			if m.engine.Stats().Fetching > 0 {
				m.fetched = now
			}
		}
		w.mu.Lock()
		for _, m := range w.engines {
			if since := now.Sub(m.last); len(m.open) > 0 && (since > stands || since > idles && now.Sub(m.fetched) > idles) {
				wrong = append(wrong, fmt.Sprintf("engine %s has %d requests, and stands still for %v", m.engine.options.ID, len(m.open), now.Sub(m.last)))
			}
			for id, since := range m.open {
				if *longest = max(*longest, now.Sub(since)); now.Sub(since) > starves {
					wrong = append(wrong, fmt.Sprintf("request %s has not got a token for %v", id, now.Sub(since)))
				}
			}
		}
		w.mu.Unlock()
		for _, text := range wrong {
			w.broke("%s", text)
		}
	}
}
