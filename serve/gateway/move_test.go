package gateway

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/serve/openai"
)

// askMove asks the admin listener to move a request.
func (c *testCell) askMove(id, kind string) int {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+c.AdminAddr()+"/requests/"+id+"/move", strings.NewReader("{}"))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	return c.do(request).status
}

// slowStream starts a stream that takes its time, and returns its id and what waits for its end.
func (c *testCell) slowStream() (id string, end func() reply) {
	c.t.Helper()
	return c.streamOf(habits{slow: 5 * time.Millisecond})
}

// streamOf starts a stream of engines with these habits.
func (c *testCell) streamOf(h habits) (id string, end func() reply) {
	c.t.Helper()
	for _, s := range c.decode {
		s.set(h)
	}
	var got reply
	var active sync.WaitGroup
	active.Go(func() {
		got = c.post(openai.PathCompletions, `{"model":"m","prompt":"short","max_tokens":60,"seed":3,"stream":true}`)
	})
	c.until("it runs", func() bool {
		for _, d := range c.moves.Running() {
			id = d.ID
		}
		return id != ""
	})
	return id, func() reply { active.Wait(); return got }
}

// An engine that knows nothing of moves goes on as if it had not been asked, and that is
// counted; an operator who asks for what cannot be is told so.
func TestEngineThatCannotMove(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	id, end := c.slowStream()
	if status := c.askMove(id, "text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("a form is answered with status %d", status)
	}
	for range 2 { // the second time it has been asked
		if status := c.askMove(id, "application/json"); status != http.StatusAccepted {
			t.Errorf("status %d", status)
		}
	}
	if got := end(); got.status != http.StatusOK || len(got.events) < 60 || got.events[len(got.events)-1] != openai.Done {
		t.Errorf("status %d, %d events", got.status, len(got.events))
	}
	c.until("it is counted", func() bool { return c.Metrics().Moves["operator"]["stayed"] == 1 })
	for _, e := range c.roster.All() {
		if n := e.Arriving.Load(); n != 0 {
			t.Errorf("%d requests are still counted on at %s", n, e.Name())
		}
	}
	if status := c.askMove(id, "application/json"); status != http.StatusNotFound {
		t.Errorf("a request that has ended: status %d", status)
	}
}

// A stream that no other engine could go on with is not asked to leave: it would be ended.
func TestStreamThatCannotGoOnStays(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	id, end := c.streamOf(habits{slow: 50 * time.Millisecond, noIDs: true})
	c.until("its tokens are not told", func() bool { return c.moves.Of(id) == nil })
	if c.Metrics().Running != 1 {
		t.Error("it may leave until it has ended")
	}
	if status := c.askMove(id, "application/json"); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	if got := end(); got.status != http.StatusOK || got.events[len(got.events)-1] != openai.Done {
		t.Errorf("status %d", got.status)
	}
}

// Where there is no other engine, a request stays.
func TestNobodyToMoveTo(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	id, end := c.slowStream()
	if status := c.askMove(id, "application/json"); status != http.StatusConflict {
		t.Errorf("status %d", status)
	}
	c.moves.Drain(c.roster.All()[0])
	if got := end(); got.status != http.StatusOK || got.events[len(got.events)-1] != openai.Done {
		t.Errorf("status %d", got.status)
	}
	for reason, ends := range c.Metrics().Moves {
		for end, n := range ends {
			if n != 0 {
				t.Errorf("%s %s: %d", reason, end, n)
			}
		}
	}
}

// A stream that could not leave and ends as if it had is not complete: its engine is lost.
func TestLeavesUnasked(t *testing.T) {
	for _, first := range []bool{false, true} { // of two answers, where one was asked for
		leavesUnasked(t, habits{leaveAfter: 5, leavesFirst: first})
	}
}

func leavesUnasked(t *testing.T, h habits) {
	t.Helper()
	c := newCell(t, 0, 1, func(o *Options) { o.NoResume = true })
	c.decode[0].set(h)
	got := c.post(openai.PathCompletions, `{"model":"m","prompt":"short","max_tokens":12,"seed":3,"stream":true}`)
	if body := string(got.body); strings.Contains(body, "moved") || strings.Contains(body, "u006d") || !strings.Contains(body, `"error"`) {
		t.Errorf("status %d: %s", got.status, body)
	}
	if legs := legsOf(c.record(got)); legs != "decode d0 failed" {
		t.Errorf("legs: %s", legs)
	}
}

// Engines of other kinds, whole answers, and those that must not go on elsewhere do not leave.
func TestWhoMayLeave(t *testing.T) {
	for name, story := range map[string]struct {
		body    string
		options func(*Options)
		vllm    bool
		may     bool
	}{
		"a stream":    {`,"stream":true`, nil, false, true},
		"whole":       {``, nil, false, false},
		"two answers": {`,"stream":true,"n":2`, nil, false, false},
		"no resuming": {`,"stream":true`, func(o *Options) { o.NoResume = true }, false, false},
		"vLLM":        {`,"stream":true,"temperature":0`, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 0, 1, story.options)
			if story.vllm {
				c.vllm()
			}
			c.post(openai.PathCompletions, `{"model":"m","prompt":"short","max_tokens":3`+story.body+`}`)
			seen := c.decode[0].seen()
			if len(seen) == 0 {
				t.Fatal("the engine was not asked")
			}
			params, _ := seen[0].body["kv_transfer_params"].(map[string]any)
			if may := params["meridian_move"] != nil; may != story.may {
				t.Errorf("its params are %v", params)
			}
		})
	}
}
