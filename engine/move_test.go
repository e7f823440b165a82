package engine

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/serve/door/doorpb"
	"meridian/serve/openai"
)

// movable is r in a leg that may move under a transfer of its own.
func movable(r Request, n byte) (Request, [16]byte) {
	transfer := [16]byte{n, 77}
	r.Move = &Move{Transfer: transfer}
	return r, transfer
}

// goesOn is r where another engine left off.
func goesOn(r Request, left told, from Result) Request {
	r.Resume, r.Ticket, r.TicketTokens = slices.Concat(r.Resume, left.Tokens), from.Ticket, from.TicketTokens
	return r
}

func join2(a, b told) told {
	return told{slices.Concat(a.Tokens, b.Tokens), a.Text + b.Text, a.Thought + b.Thought, slices.Concat(a.Logprobs, b.Logprobs), b.Finish}
}

// Wherever an answer moves, to engines of another cut, it is the one that stays: tokens, text
// that was held back, logprobs, thoughts and usage.
func TestMoveAtEveryToken(t *testing.T) {
	world := newCell()
	alone := join(t, nil, Options{Reasoning: true})
	from := join(t, world, Options{Reasoning: true, BlockTokens: 8})
	to := join(t, world, Options{Reasoning: true, TP: 2, BlockTokens: 16})
	think := 7
	r := Request{
		Prompts: [][]uint32{prompt(3, 45)}, MaxTokens: 30, IgnoreEOS: true, ThinkTokens: &think, SplitThought: true, Logprobs: true,
		Stop: []string{"\x00\x00never\x00"}, Sampling: Sampling{Temperature: 1.3, FrequencyPenalty: 0.4, Seed: 5},
	}
	whole, usual := ask(t, alone, r)
	for at := 1; at < r.MaxTokens; at++ {
		r.Salt = strconv.Itoa(at) // no engine finds what it computed before
		first, _ := movable(r, byte(at))
		first.Move.After = at
		began, moved := ask(t, from, first)
		if began[0].Finish != openai.FinishMoved || len(began[0].Tokens) != at || moved.TicketTokens != 45+at-1 {
			t.Fatalf("after %d tokens: %q with %d, a ticket of %d", at, began[0].Finish, len(began[0].Tokens), moved.TicketTokens)
		}
		rest, ended := ask(t, to, goesOn(r, began[0], moved))
		if got := join2(began[0], rest[0]); !cmp.Equal(got, whole[0]) {
			t.Fatalf("moved after %d tokens: %s", at, cmp.Diff(whole[0], got))
		}
		if ended.Report.KV != openai.KVHandoff {
			t.Errorf("after %d tokens the cache was %s: %s", at, ended.Report.KV, ended.Report.KVReason)
		}
		ended.Usage.PromptDetails, usual.Usage.PromptDetails = nil, nil
		if !cmp.Equal(ended.Usage, usual.Usage) {
			t.Errorf("usage %+v, want %+v", ended.Usage, usual.Usage)
		}
		idle(t, from)
		idle(t, to)
	}
	if moved := from.Stats().Counters.Moved; moved != uint64(r.MaxTokens-1) {
		t.Errorf("%d requests moved", moved)
	}
}

// A request leaves right after the token that it was told of, and not after one like it that
// it resumes after.
func TestMoveAtToken(t *testing.T) {
	world := newCell()
	e := join(t, world, Options{})
	r := Request{Prompts: [][]uint32{prompt(4, 20)}, MaxTokens: 16, IgnoreEOS: true, Sampling: Sampling{Seed: 1}}
	whole, _ := ask(t, e, r)
	at := whole[0].Tokens[5]
	first, _ := movable(r, 1)
	first.Move.AtToken = &at
	began, moved := ask(t, e, first)
	if n := len(began[0].Tokens); began[0].Finish != openai.FinishMoved || began[0].Tokens[n-1] != at || n != 1+slices.Index(whole[0].Tokens, at) {
		t.Fatalf("%+v, want to leave after %d in %v", began[0], at, whole[0].Tokens)
	}
	second, _ := movable(goesOn(r, began[0], moved), 2)
	rest, _ := ask(t, e, second)
	if got := join2(began[0], rest[0]); !cmp.Equal(got, whole[0]) {
		t.Error(cmp.Diff(whole[0], got))
	}
	idle(t, e)
}

// An engine without an agent cannot offer, so that the other one computes; asked for a request
// that does not run, it says so.
func TestMoveWithoutAnAgent(t *testing.T) {
	from, to := join(t, nil, Options{}), join(t, newCell(), Options{})
	r := Request{Prompts: [][]uint32{prompt(5, 40)}, MaxTokens: 20, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 9}}
	whole, _ := ask(t, to, r)
	first, transfer := movable(r, 1)
	first.Move.After = 6
	began, moved := ask(t, from, first)
	if moved.Ticket != nil || moved.Report.KVReason != errNoDoor.Error() {
		t.Fatalf("%+v", moved)
	}
	rest, _ := ask(t, to, goesOn(r, began[0], Result{}))
	if got := join2(began[0], rest[0]); !cmp.Equal(got, whole[0]) {
		t.Error(cmp.Diff(whole[0], got))
	}
	if err := from.MoveAway(within(t), transfer); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a request that has moved: %v", err)
	}
	for name, r := range map[string]Request{
		"several answers":      {Prompts: [][]uint32{{1}}, N: 2, Move: &Move{}},
		"a prefill leg":        {Prompts: [][]uint32{{1}}, Move: &Move{}, Offer: new([16]byte)},
		"a ticket of too much": {Prompts: [][]uint32{{1}}, Ticket: []byte("x"), TicketTokens: 2},
		"a negative number":    {Prompts: [][]uint32{{1}}, Move: &Move{After: -1}},
	} {
		if _, err := from.Submit(within(t), r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever the agents and engines do, an answer that moves at random tokens, again and again,
// is the right one, and no block is lost.
func TestHammerOfMoves(t *testing.T) {
	alone := join(t, nil, Options{})
	world := newCell()
	world.trouble = trouble{dice: rand.New(rand.NewPCG(5, 6)), refuse: 10, fail: 15, late: 50, mute: 4, slowest: 2000}
	small := Options{Blocks: 60, BlockTokens: 8, MaxRunning: 6, StepTokens: 16, Layout: "BLHNC"}
	a, aDoor := joinAt(t, world, small)
	small.TP, small.BlockTokens, small.Blocks = 2, 16, 30
	b, bDoor := joinAt(t, world, small)
	engines := []*Engine{a, b}
	dice := rand.New(rand.NewPCG(7, 8))
	for i := range 40 {
		r := Request{Prompts: [][]uint32{prompt(uint64(i%5), 5+2*i)}, MaxTokens: 24, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: uint64(i)}}
		whole, _ := ask(t, alone, r)
		at, got, next := dice.IntN(2), told{}, r
		for leg := 0; got.Finish == "" || got.Finish == openai.FinishMoved; leg++ {
			now, _ := movable(next, byte(4*i+leg))
			now.Move.Transfer[2] = byte(i)
			if leg < 3 {
				now.Move.After = len(now.Resume) + 1 + dice.IntN(8)
			}
			said, result := ask(t, engines[at], now)
			got, next, at = join2(got, said[0]), goesOn(next, said[0], result), 1-at
		}
		if !cmp.Equal(got, whole[0]) {
			t.Fatalf("request %d: %s", i, cmp.Diff(whole[0], got))
		}
	}
	aDoor.lose(true) // offers that a mute agent has end with it
	bDoor.lose(true)
	if s := []Stats{idle(t, a), idle(t, b)}; s[0].Counters.Ready == 0 || s[1].Counters.Ready == 0 || s[0].Counters.Local == 0 || s[1].Counters.Local == 0 {
		t.Errorf("the test tests too little: %+v", s)
	}
}

// Over HTTP a running stream is asked to move by its transfer; its end is a chunk of its own
// that says nothing else, with the ticket.
func TestMoveOverHTTP(t *testing.T) {
	world := newCell()
	from, to := join(t, world, Options{}), join(t, world, Options{})
	a, b := serve(t, from), serve(t, to)
	transfer := [16]byte{9, 9}
	body := `{"prompt":"` + strings.Repeat("a long prompt ", 8) + `","max_tokens":1500,"ignore_eos":true,"seed":4,"stream":true,"return_token_ids":true,"stream_options":{"include_usage":true}`
	id := hex.EncodeToString(transfer[:])
	response := post(t, a, openai.PathCompletions, body+`,"kv_transfer_params":{"meridian_move":{"transfer":"`+id+`"}}}`)
	events := openai.NewEventReader(response.Body, 1<<20)
	var tokens []uint32
	var text string
	var params *openai.KVTransfer
	for {
		data, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if string(data) == openai.Done {
			break
		}
		var chunk openai.Chunk
		if !chunk.Parse(data) {
			t.Fatalf("%s", data)
		}
		if string(chunk.FinishReason) == `"moved"` {
			if len(chunk.Tokens) > 0 || chunk.Answered || !chunk.Transfers {
				t.Errorf("the end: %s", data)
			}
			params = new(openai.KVTransfer)
			if err := params.UnmarshalJSON(chunk.Get("kv_transfer_params")); err != nil {
				t.Fatal(err)
			}
		}
		if len(tokens) == 0 && len(chunk.Tokens) > 0 {
			if r := post(t, a, openai.PathMove, `{"transfer":"`+id+`"}`); r.StatusCode != http.StatusOK {
				t.Fatalf("status %d", r.StatusCode)
			}
		}
		tokens = append(tokens, chunk.Tokens...)
		text += textOf(t, &chunk)
	}
	if params == nil || len(tokens) >= 1500 {
		t.Fatalf("%d tokens, %+v", len(tokens), params)
	}
	resume := fmt.Sprintf(`,"resume_token_ids":%s,"kv_transfer_params":{"do_remote_prefill":true,"meridian_ticket":"%s","meridian_tokens":%d}}`,
		openai.AppendIDs(nil, tokens), base64.StdEncoding.EncodeToString(params.Ticket), params.Tokens)
	var rest, whole openai.Completion
	unstreamed := strings.NewReplacer(`"stream":true,`, "", `,"stream_options":{"include_usage":true}`, "", `"max_tokens":1500`, fmt.Sprintf(`"max_tokens":%d`, len(tokens)+20)).Replace(body)
	postJSON(t, b, openai.PathCompletions, unstreamed+resume, &rest)
	postJSON(t, b, openai.PathCompletions, unstreamed+"}", &whole)
	if got := slices.Concat(tokens, *rest.Choices[0].TokenIDs); !slices.Equal(got, *whole.Choices[0].TokenIDs) || text+rest.Choices[0].Text != whole.Choices[0].Text {
		t.Errorf("%v, want %v", got, *whole.Choices[0].TokenIDs)
	}
	if rest.Report.KV != openai.KVHandoff {
		t.Errorf("%+v", rest.Report)
	}
	for body, status := range map[string]int{`{"transfer":"` + id + `"}`: http.StatusNotFound, `{"transfer":"no"}`: http.StatusBadRequest, `{`: http.StatusBadRequest} {
		r := post(t, a, openai.PathMove, body)
		data, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != status {
			t.Errorf("%s: status %d, %s", body, r.StatusCode, data)
		}
	}
	idle(t, from)
	idle(t, to)
}

func textOf(t *testing.T, c *openai.Chunk) (text string) {
	t.Helper()
	if c.Text != nil {
		if err := json.Unmarshal(c.Text, &text); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

// A request that is asked to move between two tokens of a forced end leaves behind the last of
// them, and goes on as one that stays.
func TestAForcedEndDoesNotMoveInTheMiddle(t *testing.T) {
	world, think := keeping(t, 16), 40
	first := uint32(1) // no thought says it by itself
	r := Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 30, IgnoreEOS: true, ThinkTokens: &think, Sampling: Sampling{Temperature: 1, Seed: 5}}
	g := newFakeGovernor(nil, nil)
	g.decide = func(*doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, q := range g.live {
			if len(q.generated) == 8 {
				d.Force = append(d.Force, &doorpb.Force{Sequence: q.number, Tokens: append([]uint32{first}, g.terms.GetEndTokens()...), Reason: "converged"})
			}
		}
		return d
	}
	from, _ := governedAt(t, world, Options{Reasoning: true, BlockTokens: 8}, g)
	to := join(t, world, Options{Reasoning: true})
	whole, _ := ask(t, from, r)
	end := []uint32{first, from.source.thinkEnd.id}
	if !slices.Equal(whole[0].Tokens[8:10], end) || slices.Index(whole[0].Tokens, first) != 8 {
		t.Fatalf("%v", whole[0].Tokens)
	}
	moves, _ := movable(r, 3)
	moves.Move.AtToken = &first
	began, moved := ask(t, from, moves)
	if said := began[0].Tokens; began[0].Finish != openai.FinishMoved || len(said) != 10 || !slices.Equal(said[8:], end) {
		t.Fatalf("%+v", began[0])
	}
	rest, _ := ask(t, to, goesOn(r, began[0], moved))
	if got := join2(began[0], rest[0]); !cmp.Equal(got.Tokens, whole[0].Tokens) {
		t.Error(cmp.Diff(whole[0].Tokens, got.Tokens))
	}
	idle(t, from)
	idle(t, to)
}
