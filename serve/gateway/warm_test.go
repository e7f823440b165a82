package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

func warming(o *Options) { o.WarmNextTurn = true }

// ahead are the requests of a stub that only compute a prompt.
func (s *stub) ahead() (found []stubRequest) {
	for _, r := range s.seen() {
		if _, is := r.body["add_generation_prompt"]; is {
			found = append(found, r)
		}
	}
	return found
}

// settled waits until nothing is computed ahead or waits for it, all memory for that
// is given back, and returns what became of it.
func (c *testCell) settled() map[string]uint64 {
	c.t.Helper()
	var m warm.Metrics
	c.until("nothing is computed ahead", func() bool {
		gone := c.warmer.Held() == 0 // what is gone is counted
		m = c.Metrics().Warm
		return gone && m.Waiting == 0 && m.Working == 0
	})
	ends := make(map[string]uint64)
	for end, n := range m.Ends {
		if n > 0 {
			ends[end] = n
		}
	}
	return ends
}

const thoughtful = `,"stream":true,"think_tokens":4`

// After an answer with a thought an engine gets the history as the next turn has it,
// with everything that the prompt is made of as it was.
func TestNextTurnIsComputedAhead(t *testing.T) {
	c := newCell(t, 1, 1, warming)
	r := c.post(openai.PathChat, chat("how are you", thoughtful+`,"cache_salt":"green","tools":[{"type":"function"}],"chat_template_kwargs":{"a":1},"user":"u",
		"stop":["x"],"n":1,"logprobs":true,"top_logprobs":2,"stream_options":{"include_usage":true},"min_tokens":2,"temperature":0.5`))
	r.whole(t, "how are you", 5, 12)
	text, thought, _, _ := r.text(t)
	if thought == "" || text == "" {
		t.Fatalf("the answer is %q after %q", text, thought)
	}
	c.record(r)
	c.until("it was computed ahead", func() bool { return c.Metrics().Warm.Ends["warmed"] == 1 })
	if got := len(c.decode[0].ahead()); got != 0 {
		t.Errorf("the decode engine got it, beside an idle prefill engine")
	}
	got := c.prefill[0].ahead()
	if len(got) != 1 || got[0].path != openai.PathChat {
		t.Fatalf("the prefill engine got %v", got)
	}
	var want map[string]any
	decoder := json.NewDecoder(strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"how are you"},{"role":"assistant","content":%q},{"role":"user","content":""}],
		"max_completion_tokens":1,"max_tokens":1,"seed":5,"stream":false,"cache_salt":"green","tools":[{"type":"function"}],"chat_template_kwargs":{"a":1},"user":"u",
		"temperature":0.5,"add_generation_prompt":false}`, text)))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(got[0].body), fmt.Sprint(want); a != b {
		t.Errorf("it got\n%s, and not\n%s", a, b)
	}
	if ends := fmt.Sprint(c.settled()); ends != "map[warmed:1]" {
		t.Errorf("what became of it: %s", ends)
	}
	// Placement knows it.
	next, fault := request.Parse(openai.PathChat, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"how are you"},{"role":"assistant","content":%q},{"role":"user","content":%q}],
		"cache_salt":"green","tools":[{"type":"function"}],"chat_template_kwargs":{"a":1}}`, text, strings.Repeat("and ", 200)))
	if fault != nil {
		t.Fatal(fault)
	}
	for _, e := range c.roster.All() {
		if held := c.roster.Holds(e.Key, next.Prefix, time.Now()); (held > 0) != (e.Role == placement.Prefill && len(text) > 256) {
			t.Errorf("%s is thought to hold %d chunks of the next turn, whose answer has %d bytes", e.Name(), held, len(text))
		}
	}
}

// Whatever is no chat with one answer, had no thought, or did not end well is left
// alone.
func TestNothingToComputeAhead(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		habits     habits
	}{
		"no thought":          {openai.PathChat, chat("hi", `,"stream":true`), habits{}},
		"a completion":        {openai.PathCompletions, completion("hi", thoughtful), habits{}},
		"several answers":     {openai.PathChat, chat("hi", thoughtful+`,"n":2`), habits{}},
		"going on":            {openai.PathChat, chat("hi", thoughtful+`,"continue_final_message":true`), habits{}},
		"a tool is forced":    {openai.PathChat, chat("hi", thoughtful+`,"tool_choice":"required"`), habits{}},
		"no answer":           {openai.PathChat, chat("hi", thoughtful), habits{status: 500}},
		"an answer too short": {openai.PathChat, chat("hi", `,"stream":true,"think_tokens":12`), habits{}},
		"a broken answer":     {openai.PathChat, chat("hi", thoughtful), habits{dieAfter: 6}},
		"refused":             {openai.PathChat, chat("hi", thoughtful), habits{status: 400}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cell := newCell(t, 0, 1, warming)
			cell.decode[0].set(c.habits)
			cell.record(cell.post(c.path, c.body))
			if ends := fmt.Sprint(cell.settled()); ends != "map[]" || len(cell.decode[0].ahead()) != 0 {
				t.Errorf("what became of it: %s", ends)
			}
		})
	}
}

// A client that goes away in the middle of its answer has no next turn.
func TestNothingIsComputedAheadForWhoLeft(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.decode[0].set(habits{hangAfter: 6})
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathChat, strings.NewReader(chat("hi", thoughtful)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	c.until("half of it is there", func() bool { return c.decode[0].open.Load() == 1 && c.warmer.Held() > 0 })
	leave()
	c.until("it is over", func() bool { return c.Metrics().Requests["cancelled"] == 1 })
	if ends := fmt.Sprint(c.settled()); ends != "map[]" {
		t.Errorf("what became of it: %s", ends)
	}
}

// crowd has so many requests generate without end at the only engine, until the test ends
// or leave is called.
func (c *testCell) crowd(n int) (leave func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var begun atomic.Int64 // whose first byte has come: the engine has its habits
	for range n {
		go func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathChat, strings.NewReader(chat("on and on", `,"stream":true`)))
			if err != nil {
				return
			}
			if response, err := c.client.Do(request); err == nil {
				if _, err := response.Body.Read(make([]byte, 1)); err == nil {
					begun.Add(1)
				}
				_, _ = io.Copy(io.Discard, response.Body) // it ends when the test leaves
				response.Body.Close()
			}
		}()
	}
	e := c.roster.All()[0]
	c.until("the engine is busy", func() bool { return begun.Load() == int64(n) && e.Running.Load() == int64(n) })
	return cancel
}

// While an engine is busy histories wait, and are dropped when the gateway stops.
func TestAheadWaitsForAnIdleEngine(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.decode[0].set(habits{hangAfter: 1})
	leave := c.crowd(roster.IdleRunning + 1)
	defer leave()
	c.decode[0].set(habits{})
	c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
	if m := c.Metrics().Warm; m.Waiting != 1 || m.Working != 0 {
		t.Errorf("%d wait and %d are computed at a busy engine", m.Waiting, m.Working)
	}
	leave()
	if ends := fmt.Sprint(c.settled()); ends != "map[warmed:1]" || len(c.decode[0].ahead()) != 1 {
		t.Errorf("what became of it: %s", ends)
	}
}

// A history is written when an engine has time for it: a request has its end before,
// and gives its place back.
func TestAheadIsWrittenWhenAnEngineHasTime(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.decode[0].set(habits{hangAfter: 1})
	leave := c.crowd(roster.IdleRunning + 1)
	defer leave()
	c.decode[0].set(habits{})
	c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
	c.record(c.post(openai.PathChat, `{"model":"m","messages":[],"max_tokens":12,"seed":5`+thoughtful+`}`)) // no user began it
	if m := c.Metrics().Warm; m.Waiting != 2 || m.Ends["unfit"] != 0 {
		t.Errorf("at a busy engine %d wait, and of %d it is known that they do not fit", m.Waiting, m.Ends["unfit"])
	}
	leave()
	if ends := fmt.Sprint(c.settled()); ends != "map[unfit:1 warmed:1]" || len(c.decode[0].ahead()) != 1 {
		t.Errorf("what became of them: %s", ends)
	}
}

// An engine that has no time for what is computed ahead, which is of the lowest priority,
// has not failed.
func TestAheadThatTakesTooLongIsNoFailure(t *testing.T) {
	c := newCell(t, 1, 1, func(o *Options) { o.WarmNextTurn, o.PrefillTimeout = true, 300*time.Millisecond })
	c.prefill[0].set(habits{deafAhead: true})
	c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
	c.until("it was given up", func() bool { return c.Metrics().Warm.Ends["failed"] == 1 })
	for _, e := range c.roster.All() {
		if n := e.Failed.Load(); n != 0 || !e.Up.Load() {
			t.Errorf("engine %s is thought to have failed %d times, up %v", e.Name(), n, e.Up.Load())
		}
	}
}

// What is being computed ahead is given up when requests come.
func TestAheadIsGivenUpForRequests(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.decode[0].set(habits{deafAhead: true})
	c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
	c.until("it is being computed", func() bool { return c.Metrics().Warm.Working == 1 && len(c.decode[0].ahead()) == 1 })
	c.decode[0].set(habits{hangAfter: 1, deafAhead: true})
	leave := c.crowd(roster.IdleRunning + 1)
	defer leave()
	c.until("it was given up", func() bool { return c.Metrics().Warm.Ends["busy"] == 1 })
	leave() // those that run have answers gathered, too
	if ends := fmt.Sprint(c.settled()); ends != "map[busy:1]" {
		t.Errorf("what became of it: %s", ends)
	}
	if e := c.roster.All()[0]; !e.Up.Load() || e.Failed.Load() != 0 {
		t.Error("the engine is thought to have failed")
	}
}

// A gateway that stops does not wait for what is computed ahead.
func TestAheadEndsWithTheGateway(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.decode[0].set(habits{deafAhead: true})
	c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
	c.until("one is being computed", func() bool { return c.Metrics().Warm.Working == 1 })
	for range 2 { // a request would have the first be given up
		asked, fault := request.Parse(openai.PathChat, []byte(chat("hi", thoughtful)))
		if fault != nil {
			t.Fatal(fault)
		}
		var answer openai.Chunk
		answer.Parse([]byte(`{"choices":[{"delta":{"content":"<think>hm</think>a"}}]}`))
		said := c.warmer.Gather(asked)
		said.Add(&answer, false)
		c.warmer.Answered(warm.Ended{Request: asked, Answer: said, Finished: true, Finish: openai.FinishStop})
		said.Release()
	}
	c.close()
	if ends := fmt.Sprint(c.settled()); ends != "map[stopped:3]" {
		t.Errorf("what became of them: %s", ends)
	}
}

// An engine that fails what is computed ahead is counted, and no client hears of it.
func TestAheadFails(t *testing.T) {
	c := newCell(t, 1, 1, warming)
	c.prefill[0].set(habits{status: 400, fault: "no"})
	r := c.post(openai.PathChat, chat("hi", thoughtful))
	r.whole(t, "hi", 5, 12)
	c.until("it has failed", func() bool { return c.Metrics().Warm.Ends["failed"] == 1 })
	if ends := fmt.Sprint(c.settled()); ends != "map[failed:1]" {
		t.Errorf("what became of it: %s", ends)
	}
}

// vLLM gets it with the lowest priority, and without where it takes none; whether it
// does is asked once.
func TestAheadIsOfLowestPriority(t *testing.T) {
	for _, takes := range []bool{true, false} {
		c := newCell(t, 0, 1, warming).vllm()
		c.decode[0].set(habits{noPriority: !takes})
		for i := range uint64(2) {
			c.record(c.post(openai.PathChat, chat("hi", thoughtful)))
			c.until("it was computed ahead", func() bool { return c.Metrics().Warm.Ends["warmed"] == i+1 })
		}
		var sent []string
		for _, r := range c.decode[0].ahead() {
			sent = append(sent, fmt.Sprint(r.body["priority"]))
		}
		want := "1000000 1000000"
		if !takes {
			want = "1000000 <nil> <nil>"
		}
		if got := strings.Join(sent, " "); got != want {
			t.Errorf("takes priorities %v: sent %q, want %q", takes, got, want)
		}
	}
}
