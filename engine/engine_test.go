package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/until"
	"meridian/serve/openai"
)

// variants are requests whose answers every way to compute them must give.
func variants() map[string]Request {
	p := prompt(7, 45)
	return map[string]Request{
		"greedy":       {Prompts: [][]uint32{p}, MaxTokens: 40, IgnoreEOS: true},
		"sampled":      {Prompts: [][]uint32{p}, MaxTokens: 40, Sampling: Sampling{Temperature: 1, Seed: 5}},
		"nucleus":      {Prompts: [][]uint32{p}, MaxTokens: 40, Sampling: Sampling{Temperature: 1.5, TopP: 0.9, TopK: 30, Seed: 6}},
		"penalties":    {Prompts: [][]uint32{p}, MaxTokens: 40, IgnoreEOS: true, Sampling: Sampling{PresencePenalty: 1, FrequencyPenalty: 0.5}},
		"three":        {Prompts: [][]uint32{p}, N: 3, MaxTokens: 20, Sampling: Sampling{Temperature: 1, Seed: 9}},
		"logprobs":     {Prompts: [][]uint32{p}, MaxTokens: 10, Logprobs: true, TopLogprobs: 4, Sampling: Sampling{Temperature: 1, Seed: 3}},
		"whole blocks": {Prompts: [][]uint32{p[:32]}, MaxTokens: 40, IgnoreEOS: true},
		"one token":    {Prompts: [][]uint32{p[:1]}, MaxTokens: 40, IgnoreEOS: true},
	}
}

// withStop is a request that a stop text ends in the middle, across tokens.
func withStop(t testing.TB, e *Engine) Request {
	r := Request{Prompts: [][]uint32{prompt(8, 20)}, MaxTokens: 40, IgnoreEOS: true}
	all, _ := ask(t, e, r)
	r.Stop = []string{"never there", all[0].Text[15:18]}
	stopped, _ := ask(t, e, r)
	if stopped[0].Finish != openai.FinishStop || len(stopped[0].Text) > 15 || stopped[0].Text != all[0].Text[:len(stopped[0].Text)] {
		t.Fatalf("%q did not stop %q: %+v", r.Stop[1], all[0].Text, stopped[0])
	}
	return r
}

// A prompt that another engine computed, however both are cut, gives the same
// answer as one engine alone.
func TestSplitEqualsAggregated(t *testing.T) {
	alone := join(t, nil, Options{})
	requests := variants()
	requests["stop"] = withStop(t, alone)
	want := make(map[string][]told)
	for name, r := range requests {
		want[name], _ = ask(t, alone, r)
	}
	for _, c := range []struct{ prefill, decode Options }{
		{Options{BlockTokens: 16}, Options{BlockTokens: 16}},
		{Options{TP: 2, BlockTokens: 16}, Options{TP: 4, PP: 2, BlockTokens: 64}},
		{Options{TP: 4, BlockTokens: 8, Layout: "BLHNC"}, Options{PP: 4, BlockTokens: 32, Layout: "LBNHC"}},
	} {
		world := newCell()
		p, d := join(t, world, c.prefill), join(t, world, c.decode)
		transfer := [16]byte{}
		for name, r := range requests {
			transfer[0]++
			id := transfer
			leg := Request{Prompts: r.Prompts, MaxTokens: 1, Offer: &id, Salt: name} // so that nothing is found in the cache
			_, offered := ask(t, p, leg)
			if offered.Ticket == nil {
				t.Fatalf("%s: no ticket: %+v", name, offered.Report)
			}
			r.Ticket, r.Salt = offered.Ticket, name
			got, result := ask(t, d, r)
			if diff := cmp.Diff(want[name], got); diff != "" {
				t.Errorf("%s, %s → %s: %s", name, p.cutText, d.cutText, diff)
			}
			if result.Report.KV != openai.KVHandoff {
				t.Errorf("%s: %+v", name, result.Report)
			}
		}
		resumeAfterHandOff(t, p, d, requests["greedy"], want["greedy"][0])
		if s := idle(t, d); s.Handoffs.Ready != uint64(len(requests)+1) || s.Handoffs.Local != 0 {
			t.Errorf("%+v", s.Handoffs)
		}
		idle(t, p)
	}
}

// resumeAfterHandOff is a decode leg that begins in the middle of the answer.
func resumeAfterHandOff(t *testing.T, p, d *Engine, r Request, want told) {
	t.Helper()
	r.Salt = "resumed"
	_, offered := ask(t, p, Request{Prompts: r.Prompts, MaxTokens: 1, Offer: &[16]byte{99}, Salt: r.Salt})
	r.Ticket, r.Resume = offered.Ticket, want.Tokens[:11]
	got, result := ask(t, d, r)
	if !slices.Equal(got[0].Tokens, want.Tokens[11:]) || result.Report.KV != openai.KVHandoff {
		t.Errorf("resumed: %v, want %v; %+v", got[0].Tokens, want.Tokens[11:], result.Report)
	}
}

// An engine that closes with an offer that is not fetched takes it back.
func TestCloseWithdrawsOffers(t *testing.T) {
	e := join(t, newCell(), Options{})
	if _, offered := ask(t, e, Request{Prompts: [][]uint32{prompt(1, 20)}, MaxTokens: 1, Offer: &[16]byte{1}}); offered.Ticket == nil {
		t.Fatal("no ticket")
	}
	began := time.Now()
	if err := e.Close(within(t)); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < offerGrace/2 || took > 4*offerGrace {
		t.Errorf("it took %v", took)
	}
	if s := e.Stats(); s.Blocks.Held != 0 {
		t.Errorf("%+v", s.Blocks)
	}
}

// A stream goes on exactly after any of its tokens, on another engine.
func TestResumeAtEveryPosition(t *testing.T) {
	first, second := join(t, nil, Options{}), join(t, nil, Options{TP: 2, BlockTokens: 8})
	requests := variants()
	requests["stop"] = withStop(t, first)
	delete(requests, "three")
	for name, r := range requests {
		ctx := within(t)
		s, err := first.Submit(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		all, result, err := readAll(ctx, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		whole := all[0]
		for cut := 0; cut <= len(whole.Tokens); cut += 1 + cut/8 {
			resumed := r
			resumed.Resume = whole.Tokens[:cut]
			rest, again := ask(t, second, resumed)
			if !slices.Equal(rest[0].Tokens, whole.Tokens[cut:]) || rest[0].Finish != whole.Finish {
				t.Fatalf("%s at %d: %+v, want %v", name, cut, rest[0], whole.Tokens[cut:])
			}
			if told := textAfter(t, second, r, whole.Tokens[:cut]) + rest[0].Text; told != whole.Text {
				t.Fatalf("%s at %d: %q, want %q", name, cut, told, whole.Text)
			}
			if r.Logprobs && !slices.EqualFunc(rest[0].Logprobs, whole.Logprobs[cut:], func(a, b Logprob) bool { return cmp.Equal(a, b) }) {
				t.Fatalf("%s at %d: other logprobs", name, cut)
			}
			if again.Usage.CompletionTokens != result.Usage.CompletionTokens {
				t.Fatalf("%s at %d: usage %+v, want %+v", name, cut, again.Usage, result.Usage)
			}
		}
	}
}

// textAfter is what a stream has told with the first tokens of an answer.
func textAfter(t *testing.T, e *Engine, r Request, tokens []uint32) (text string) {
	t.Helper()
	settled, err := e.settle(r)
	if err != nil {
		t.Fatal(err)
	}
	c := e.newRequest(settled).choices[0]
	for _, token := range tokens {
		text += c.take(e, token).Text
	}
	return text
}

// Whatever else is computed, in whatever chunks, and however often a request is
// thrown out: its tokens are its own.
func TestNothingDependsOnTheBatch(t *testing.T) {
	alone := join(t, nil, Options{})
	crowded := join(t, nil, Options{Blocks: 40, BlockTokens: 8, MaxRunning: 7, StepTokens: 11})
	var requests []Request
	for i := range 24 {
		requests = append(requests, Request{
			Prompts: [][]uint32{prompt(uint64(i%9), 3+i*4)}, MaxTokens: 60, IgnoreEOS: true, N: 1 + i%2,
			Sampling: Sampling{Temperature: float64(i % 3), Seed: uint64(i)},
		})
	}
	want := make([][]told, len(requests))
	for i, r := range requests {
		want[i], _ = ask(t, alone, r)
	}
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			if got, _ := ask(t, crowded, r); !cmp.Equal(got, want[i]) {
				t.Errorf("request %d: %s", i, cmp.Diff(want[i], got))
			}
		})
	}
	all.Wait()
	if s := idle(t, crowded); s.Counters.Preempted == 0 {
		t.Error("no request was thrown out: the test tests too little")
	}
}

// However requests, clients and the door fail, no block is lost, and a client that
// gets an answer gets the right one.
func TestHammer(t *testing.T) {
	alone := join(t, nil, Options{})
	world := newCell()
	world.trouble = trouble{dice: rand.New(rand.NewPCG(3, 4)), refuse: 10, fail: 20, silence: 5, late: 50, mute: 4, slowest: 3000}
	small := Options{Blocks: 60, BlockTokens: 8, MaxRunning: 6, StepTokens: 16, HandoffDeadline: time.Millisecond, Layout: "BLHNC"}
	p, pDoor := joinAt(t, world, small)
	small.TP, small.BlockTokens, small.Blocks = 2, 16, 30
	d, dDoor := joinAt(t, world, small)

	requests := make([]Request, 12)
	want := make([][]told, len(requests))
	for i := range requests {
		requests[i] = Request{Prompts: [][]uint32{prompt(uint64(i%5), 5+9*i)}, N: 1 + i%2, MaxTokens: 12, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: uint64(i)}}
		want[i], _ = ask(t, alone, requests[i])
	}
	const clients, rounds = 8, 25
	var all sync.WaitGroup
	var ids sync.Mutex
	next := uint16(0)
	for client := range clients {
		dice := rand.New(rand.NewPCG(uint64(client), 9))
		all.Go(func() {
			for range rounds {
				i := dice.IntN(len(requests))
				ids.Lock()
				next++
				transfer := [16]byte{byte(next), byte(next >> 8), 1}
				ids.Unlock()
				if err := oneRound(p, d, requests[i], want[i], transfer, dice); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		before := ended(p, d)
		until.True(t, "ten more requests have ended", func() bool { return ended(p, d) >= before+10 })
		pDoor.lose(true)
		dDoor.lose(true)
	}
	all.Wait()
	// Offers that were not fetched, and accepts of a silent agent, end with it.
	pDoor.lose(true)
	dDoor.lose(true)
	idle(t, p)
	s := idle(t, d)
	if s.Counters.Ready == 0 || s.Counters.Local == 0 || s.Counters.Cancelled == 0 {
		t.Errorf("the test tests too little: %+v", s.Counters)
	}
}

// oneRound is a request on both legs, whose client may go at any moment.
func oneRound(p, d *Engine, r Request, want []told, transfer [16]byte, dice *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if dice.IntN(3) == 0 {
		time.AfterFunc(time.Duration(dice.IntN(20_000))*time.Microsecond, cancel)
	}
	leg := Request{Prompts: r.Prompts, MaxTokens: 1, Offer: &transfer}
	s, err := p.Submit(ctx, leg)
	if err != nil {
		return err
	}
	_, offered, err := readAll(ctx, s, 1)
	if err != nil {
		return gone(ctx, err)
	}
	r.Ticket = offered.Ticket
	if s, err = d.Submit(ctx, r); err != nil {
		return err
	}
	got, _, err := readAll(ctx, s, r.N)
	if err != nil {
		return gone(ctx, err)
	}
	if !cmp.Equal(got, want) {
		return fmt.Errorf("transfer %x: %s", transfer[:3], cmp.Diff(want, got))
	}
	return nil
}

func gone(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// While the agent is lost the engine serves alone, and says so.
func TestServesAloneWithoutItsAgent(t *testing.T) {
	world := newCell()
	e, d := joinAt(t, world, Options{})
	want, _ := ask(t, e, variants()["greedy"])
	d.lose(false)
	r := variants()["greedy"]
	r.Ticket, r.Salt = ticketOf([16]byte{9}), "elsewhere"
	got, result := ask(t, e, r)
	if !cmp.Equal(got, want) || result.Report.KV != openai.KVLocal || result.Report.KVReason == "" {
		t.Errorf("%+v", result.Report)
	}
	leg := Request{Prompts: r.Prompts, MaxTokens: 1, Offer: &[16]byte{1}}
	if _, result = ask(t, e, leg); result.Ticket != nil {
		t.Error("a ticket without an agent")
	}
	if s := idle(t, e); s.Door != "lost" || s.Handoffs.Local != 1 {
		t.Errorf("%+v", s)
	}
	d.lose(true)
	leg.Offer[0]++
	if _, result = ask(t, e, leg); result.Ticket == nil {
		t.Errorf("no ticket with an agent: %+v", result.Report)
	}
	if s := e.Stats(); s.Door != "serving" || s.Blocks.Held == 0 {
		t.Errorf("%+v", s)
	}
	d.lose(true)
	idle(t, e)
}

func TestScriptedThought(t *testing.T) {
	e := join(t, nil, Options{Reasoning: true})
	length := 12
	r := Request{Prompts: [][]uint32{prompt(1, 9)}, MaxTokens: 30, SplitThought: true, ThinkTokens: &length, Sampling: Sampling{Temperature: 1, Seed: 1}}
	all, result := ask(t, e, r)
	a := all[0]
	if a.Tokens[0] != e.source.thinkStart.id || a.Tokens[13] != e.source.thinkEnd.id || len(a.Thought) != 12 || a.Text == "" {
		t.Errorf("%+v", a)
	}
	if result.Usage.OutputDetails.ReasoningTokens != 12 {
		t.Errorf("%+v", result.Usage.OutputDetails)
	}
	r.SplitThought = false
	if all, _ = ask(t, e, r); all[0].Text != "<think>"+a.Thought+"</think>"+a.Text {
		t.Errorf("not split: %q", all[0].Text)
	}
	r.ThinkTokens, r.SplitThought = nil, true
	if all, _ = ask(t, e, r); len(all[0].Thought) < leastThought {
		t.Errorf("as the prompt says: %q", all[0].Thought)
	}
}

func TestRefusedRequests(t *testing.T) {
	e := join(t, nil, Options{MaxWaiting: 3})
	p := prompt(1, 4)
	many := -1
	for name, c := range map[string]struct {
		r    Request
		want error
	}{
		"no prompt":          {Request{}, ErrInvalid},
		"empty prompt":       {Request{Prompts: [][]uint32{{}}}, ErrInvalid},
		"unknown token":      {Request{Prompts: [][]uint32{{1 << 20}}}, ErrInvalid},
		"long prompt":        {Request{Prompts: [][]uint32{prompt(1, 5000)}}, ErrTooLong},
		"long answer":        {Request{Prompts: [][]uint32{p}, MaxTokens: 2048}, ErrTooLong},
		"hot":                {Request{Prompts: [][]uint32{p}, Sampling: Sampling{Temperature: -1}}, ErrInvalid},
		"many":               {Request{Prompts: [][]uint32{p}, N: 129}, ErrInvalid},
		"empty stop":         {Request{Prompts: [][]uint32{p}, Stop: []string{""}}, ErrInvalid},
		"resume of two":      {Request{Prompts: [][]uint32{p}, N: 2, Resume: p}, ErrInvalid},
		"both legs":          {Request{Prompts: [][]uint32{p}, Offer: &[16]byte{}, Ticket: []byte{1}}, ErrInvalid},
		"thought":            {Request{Prompts: [][]uint32{p}, ThinkTokens: &many}, ErrInvalid},
		"more than may wait": {Request{Prompts: [][]uint32{p}, N: 4}, ErrBusy},
	} {
		if _, err := e.Submit(context.Background(), c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	idle(t, e)
}

// Who does not read does not stop others, and does not make the engine grow.
func TestSlowReaderPauses(t *testing.T) {
	e := join(t, nil, Options{})
	r := Request{Prompts: [][]uint32{prompt(1, 4)}, MaxTokens: 1000, IgnoreEOS: true}
	ctx := within(t)
	slow, err := e.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "it pauses", func() bool { return e.Metrics().Paused > 0 })
	generated := e.Metrics().Generated
	want, _ := ask(t, e, Request{Prompts: r.Prompts, MaxTokens: 100, IgnoreEOS: true})
	if more := e.Metrics().Generated - generated; more < 99 || more > 100 { // the last may not be counted yet
		t.Errorf("%d tokens while one request pauses, want 100 of the other", more)
	}
	got, _, err := readAll(ctx, slow, 1)
	if err != nil || len(got[0].Tokens) != 1000 || !slices.Equal(got[0].Tokens[:100], want[0].Tokens) {
		t.Errorf("%d tokens, %v", len(got[0].Tokens), err)
	}
	idle(t, e)
}

func TestCloseDrainsAndThenCancels(t *testing.T) {
	e := join(t, nil, Options{})
	ctx := within(t)
	s, err := e.Submit(ctx, Request{Prompts: [][]uint32{prompt(1, 4)}, MaxTokens: 50, IgnoreEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- e.Close(ctx) }()
	if got, _, err := readAll(ctx, s, 1); err != nil || len(got[0].Tokens) != 50 {
		t.Errorf("%d tokens, %v", len(got[0].Tokens), err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := e.Submit(ctx, Request{Prompts: [][]uint32{prompt(1, 4)}}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}

	hasty := join(t, nil, Options{})
	if s, err = hasty.Submit(ctx, Request{Prompts: [][]uint32{prompt(1, 4)}, MaxTokens: 1500, IgnoreEOS: true}); err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	if err := hasty.Close(now); err != nil {
		t.Error(err)
	}
	if _, _, err := readAll(ctx, s, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
