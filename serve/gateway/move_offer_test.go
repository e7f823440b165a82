package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// vllmCell is a gateway before two engines that look like vLLM, of which d0 gets requests.
func vllmCell(t *testing.T, role placement.Role, change func(*Options)) *testCell {
	t.Helper()
	c := newCell(t, 0, 2, func(o *Options) {
		for i := range o.Backends {
			o.Backends[i].Role = role
		}
		if change != nil {
			change(o)
		}
	})
	c.until("the engines are there", func() bool {
		for _, e := range c.roster.All() {
			if !e.Up.Load() {
				return false
			}
		}
		return true
	})
	c.vllm().prefer("d0")
	for _, s := range c.decode {
		s.set(slowly)
	}
	return c
}

var slowly = habits{slow: 3 * time.Millisecond}

const greedyTokens = 60

const (
	greedyStream = `{"model":"m","prompt":"short","max_tokens":60,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`
	greedyChat   = `{"model":"m","messages":[{"role":"user","content":"short"}],"max_tokens":60,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`
)

// leaver waits until a stream at an engine has so many tokens, and returns its id.
func (c *testCell) leaver(s *stub, tokens int64) (id string) {
	c.t.Helper()
	c.until("it is in the middle", func() bool {
		for _, d := range c.moves.At(c.engine(s)) {
			if d.Answered.Load() >= tokens {
				id = d.ID
			}
		}
		return id != ""
	})
	return id
}

// moveFromD0 moves a greedy stream, and returns it; before is done when it runs.
func (c *testCell) moveFromD0(path, body string, before func()) reply {
	c.t.Helper()
	var got reply
	done := make(chan struct{})
	go func() { defer close(done); got = c.post(path, body) }()
	id := c.leaver(c.decode[0], 10)
	if before != nil {
		before()
	}
	if status := c.askMove(id, "application/json"); status != http.StatusAccepted {
		c.t.Errorf("status %d", status)
	}
	<-done
	got.whole(c.t, "short", 0, greedyTokens)
	if !strings.Contains(string(got.body), `"usage":{"prompt_tokens":5,"completion_tokens":60,"total_tokens":65`) {
		c.t.Errorf("usage: %s", got.events[len(got.events)-2])
	}
	c.nothingLeft()
	return got
}

// nothingLeft: no engine runs anything or is counted on, and no leg may leave.
func (c *testCell) nothingLeft() {
	c.t.Helper()
	c.until("nothing is left", func() bool {
		for _, e := range c.roster.All() {
			if e.Running.Load() != 0 || e.Arriving.Load() != 0 || len(c.moves.At(e)) != 0 {
				return false
			}
		}
		return c.decode[0].open.Load() == 0 && c.decode[1].open.Load() == 0
	})
}

// A greedy stream of vLLM leaves with its cache: the engine that it left is asked to offer what
// it has, and the other goes on with that ticket, for the same tokens.
func TestVLLMMovesWithItsCache(t *testing.T) {
	for path, body := range map[string]string{openai.PathCompletions: greedyStream, openai.PathChat: greedyChat} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c := vllmCell(t, placement.Both, nil)
			record := c.record(c.moveFromD0(path, body, nil))
			if got := legsOf(record); got != "decode d0, prefill d0, move d1" {
				t.Errorf("legs: %s", got)
			}
			if len(record.Moves) != 1 || record.Moves[0].From != "d0" || record.Moves[0].To != "d1" || record.Moves[0].Why != "operator" || record.Moves[0].GapMs <= 0 || record.Resumed != 0 {
				t.Errorf("moves: %+v, resumed %d times", record.Moves, record.Resumed)
			}
			if n := c.Metrics().Moves["operator"]["moved"]; n != 1 {
				t.Errorf("%d moves are counted", n)
			}
			shared := c.decode[0].shared
			if used := shared.used["ticket of d0 for "+record.Legs[1].Transfer]; !used || len(shared.givenBack()) != 0 {
				t.Errorf("tickets: %v, given back %v", shared.used, shared.givenBack())
			}
			offer, took := c.decode[0].seen()[1], c.decode[1].seen()[0]
			if offer.path != openai.PathCompletions || fmt.Sprint(offer.body["prompt"]) != fmt.Sprint(took.body["prompt"]) {
				t.Errorf("a ticket for %v is given for %v", offer.body["prompt"], took.body["prompt"])
			}
			if n := c.decode[0].canceled.Load(); n != 1 {
				t.Errorf("%d legs ended at the engine that was left", n)
			}
		})
	}
}

// A chat that goes on in its answer says so to vLLM, which would look for the end of a thought in
// the end of its prompt, and cannot tell how long that was. Of a completion that is not known.
func TestVLLMIsToldThatItAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		thinks     int
		told       any
	}{
		"after a thought":   {openai.PathChat, greedyChat, 9, true},
		"without a thought": {openai.PathChat, greedyChat, 0, true},
		"a completion":      {openai.PathCompletions, greedyStream, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cell := vllmCell(t, placement.Both, nil)
			cell.decode[0].set(habits{slow: slowly.slow, thinks: c.thinks})
			cell.decode[1].set(habits{slow: slowly.slow, dieAfter: 5})
			got := cell.moveFromD0(c.path, c.body, nil)
			if legs := legsOf(cell.record(got)); legs != "decode d0, prefill d0, move d1 failed, resume d0" {
				t.Errorf("legs: %s", legs)
			}
			if told := strings.Contains(string(got.body), `"total_tokens":65,"completion_tokens_details":{"reasoning_tokens":9}}`); told != (c.thinks > 0) {
				t.Errorf("usage: %s", got.events[len(got.events)-2])
			}
			seen := cell.decode[0].seen()
			for i, leg := range []stubRequest{seen[0], seen[1], cell.decode[1].seen()[0], seen[2]} {
				params, _ := leg.body["kv_transfer_params"].(map[string]any)
				if told := params["meridian_answers"]; i == 0 && told != nil || i > 0 && told != c.told {
					t.Errorf("leg %d is told %v", i, told)
				}
			}
		})
	}
}

// Whatever becomes of the offer, the stream goes on, and computes again where it must.
func TestVLLMOffersNothing(t *testing.T) {
	for name, c := range map[string]struct {
		role    placement.Role
		offers  habits // of the engine that was left
		takes   habits
		legs    string
		outcome string
	}{
		"nothing to offer":    {placement.Both, habits{noTicket: true}, slowly, "decode d0, prefill d0, move d1", "recomputed"},
		"ill":                 {placement.Both, habits{status: 500}, slowly, "decode d0, prefill d0 failed, move d1", "recomputed"},
		"full":                {placement.Both, habits{status: 429}, slowly, "decode d0, prefill d0 failed, move d1", "recomputed"},
		"refuses":             {placement.Both, habits{status: 400}, slowly, "decode d0, prefill d0 failed, move d1", "recomputed"},
		"dead":                {placement.Both, habits{dieBefore: true}, slowly, "decode d0, prefill d0 failed, move d1", "recomputed"},
		"slow":                {placement.Both, habits{offersMute: true}, slowly, "decode d0, prefill d0 failed, move d1", "recomputed"},
		"only decodes":        {placement.Decode, slowly, slowly, "decode d0, move d1", "recomputed"},
		"it does not come":    {placement.Both, slowly, habits{noLoad: true}, "decode d0, prefill d0, move d1 failed, resume d0", "lost"},
		"the other is full":   {placement.Both, slowly, habits{status: 429}, "decode d0, prefill d0, move d1 failed, move d0", "returned"},
		"the other just died": {placement.Both, slowly, habits{dieBefore: true}, "decode d0, prefill d0, move d1 failed, resume d0", "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cell := vllmCell(t, c.role, func(o *Options) {
				if c.offers.offersMute {
					o.PrefillTimeout = standstill
				}
			})
			got := cell.moveFromD0(openai.PathCompletions, greedyStream, func() {
				cell.decode[0].set(c.offers)
				cell.decode[1].set(c.takes)
			})
			record := cell.record(got)
			if legs := legsOf(record); legs != c.legs {
				t.Errorf("legs: %s, want %s", legs, c.legs)
			}
			if m := cell.Metrics().Moves["operator"]; m[c.outcome] != 1 {
				t.Errorf("counted %v, want one %s", m, c.outcome)
			}
		})
	}
}

// A client that leaves while what an engine has is offered leaves nothing behind.
func TestClientLeavesAnOffer(t *testing.T) {
	c := vllmCell(t, placement.Both, nil)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(greedyStream))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := c.client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}()
	id := c.leaver(c.decode[0], 10)
	c.decode[0].set(habits{offersMute: true})
	if status := c.askMove(id, "application/json"); status != http.StatusAccepted {
		t.Errorf("status %d", status)
	}
	c.until("it is to offer", func() bool { return len(c.decode[0].seen()) == 2 })
	leave()
	<-done
	c.nothingLeft()
	if n := len(c.decode[1].seen()); n != 0 {
		t.Errorf("the other engine was asked %d times", n)
	}
}

// No stream moves more often than any other may.
func TestVLLMMovesNotTooOften(t *testing.T) {
	c := vllmCell(t, placement.Both, nil)
	end := c.begin(greedyStream)
	id, said := "", int64(0)
	for i := range lifecycle.MaxMoves {
		id = c.leaver(c.decode[i%2], said+5) // some of them this engine's: one that leaves before its first has not moved
		if leg := c.moves.Of(id); leg != nil {
			said = leg.Answered.Load()
		}
		if i == lifecycle.MaxMoves-1 {
			c.decode[0].set(habits{slow: 50 * time.Millisecond}) // where it stays: it runs until it has been looked at
		}
		if status := c.askMove(id, "application/json"); status != http.StatusAccepted {
			t.Errorf("move %d: status %d", i, status)
		}
	}
	c.until("it has moved often", func() bool {
		ends := c.Metrics().Moves["operator"] // on a slow machine an offer can be late, and its prompt computed
		return ends["moved"]+ends["recomputed"] >= uint64(lifecycle.MaxMoves)-1 && c.decode[0].open.Load() == 1
	})
	if status := c.askMove(id, "application/json"); status != http.StatusNotFound {
		t.Errorf("once more: status %d", status)
	}
	got := end()
	got.whole(t, "short", 0, greedyTokens)
	if n := len(c.record(got).Moves); n != lifecycle.MaxMoves {
		t.Errorf("it moved %d times", n)
	}
	c.nothingLeft()
}

// A stream whose thought has ended moves where that is wanted and its cache comes along; where
// it does not, the stream stays, or goes back to where its cache is.
func TestVLLMMovesAtTheEndOfAThought(t *testing.T) {
	for name, c := range map[string]struct {
		role   placement.Role
		habits habits
		legs   string
		counts string
	}{
		"with its cache":  {placement.Both, habits{thinks: 9, slow: time.Millisecond}, "decode d0, prefill d0, move d1", "moved"},
		"nothing to take": {placement.Both, habits{thinks: 9, slow: time.Millisecond, noTicket: true}, "decode d0, prefill d0, move d0", "returned"},
		"only decodes":    {placement.Decode, habits{thinks: 9, slow: time.Millisecond}, "decode d0", ""},
		"a queue there":   {placement.Both, habits{thinks: 9, slow: time.Millisecond, offersMute: true}, "decode d0, prefill d0 failed, move d1", "recomputed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cell := vllmCell(t, c.role, func(o *Options) { o.MoveAtThinkEnd = true })
			cell.engine(cell.decode[0]).Running.Add(2)
			cell.engine(cell.decode[1]).Waiting.Add(290) // d0 gets it, and has more to do when the thought ends
			cell.decode[0].set(c.habits)
			done := make(chan reply)
			go func() { done <- cell.post(openai.PathChat, greedyChat) }()
			cell.until("it runs", func() bool { return cell.decode[0].open.Load() == 1 })
			cell.engine(cell.decode[1]).Waiting.Store(0)
			got := <-done
			got.whole(t, "short", 0, greedyTokens)
			if _, thought, _, _ := got.text(t); thought != textOf(tokensOf("short", 0, 9)) {
				t.Errorf("the thought is %q", thought)
			}
			record := cell.record(got)
			if legs := legsOf(record); legs != c.legs {
				t.Errorf("legs: %s, want %s", legs, c.legs)
			}
			for _, leg := range record.Legs {
				if most := lifecycle.Milliseconds(lifecycle.OfferTimeout / 2); leg.Kind == ledger.PrefillLeg && leg.Ms > most {
					t.Errorf("the client waited %v ms for an offer of what only saves time", leg.Ms)
				}
			}
			for outcome, n := range cell.Metrics().Moves["thought"] {
				if (n == 1) != (outcome == c.counts) {
					t.Errorf("%s: %d", outcome, n)
				}
			}
		})
	}
}

// A stream of vLLM that is lost within a thought ends, and one that is lost behind it goes on.
func TestVLLMIsLostAroundAThought(t *testing.T) {
	for dieAfter, goesOn := range map[int]bool{5: false, 20: true} {
		c := vllmCell(t, placement.Decode, nil)
		c.decode[0].set(habits{thinks: 9, dieAfter: dieAfter})
		got := c.post(openai.PathChat, greedyChat)
		if goesOn {
			got.whole(t, "short", 0, greedyTokens)
		} else if _, _, problem, done := got.text(t); done || !strings.Contains(problem, "the model was thinking") {
			t.Errorf("after %d tokens: %q, done %v", dieAfter, problem, done)
		}
	}
}
