package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

func (c *testCell) warm(query, body string) (reply, warm.ComputedPrompt) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+c.AdminAddr()+PathWarm+query, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	r := c.do(request)
	var computed warm.ComputedPrompt
	if r.status == http.StatusOK {
		if err := json.Unmarshal(r.body, &computed); err != nil {
			c.t.Errorf("%s: %v", r.body, err)
		}
	}
	return r, computed
}

// An operator has a prompt computed ahead, where it is to be.
func TestWarmCall(t *testing.T) {
	c := newCell(t, 1, 2, nil).atHome()
	for name, w := range map[string]struct{ query, body, engine string }{
		"anywhere":      {"", completion("some text", `,"stream":true,"n":1,"logprobs":2,"cache_salt":"green"`), "p0"},
		"an engine":     {"?engine=d1", chat("hi", ""), "d1"},
		"an agent":      {"?agent=d0", chat("hi", `,"continue_final_message":false`), "d0"},
		"without model": {"?engine=d0", `{"prompt":"some text"}`, "d0"},
	} {
		r, computed := c.warm(w.query, w.body)
		if r.status != http.StatusOK || computed.Engine != w.engine || computed.Agent != w.engine || computed.PromptTokens < 2 {
			t.Errorf("%s: status %d, %s", name, r.status, r.body)
		}
	}
	sent := c.prefill[0].seen()
	if len(sent) != 1 {
		t.Fatalf("the prefill engine got %d requests", len(sent))
	}
	body := sent[0].body
	if body["prompt"] != "some text" || body["cache_salt"] != "green" || body["stream"] != false || number(body["max_tokens"], 0) != 1 || body["n"] != nil || body["logprobs"] != nil || body["kv_transfer_params"] != nil {
		t.Errorf("it got %v", body)
	}
	if strings.Contains(string(c.get("/health").body), "some text") {
		t.Error("the prompt is shown")
	}
}

func TestWarmCallRefusals(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.MaxBodyBytes = 4096 })
	for name, w := range map[string]struct {
		query, body string
		status      int
	}{
		"no JSON":         {"", "hello", 400},
		"no prompt":       {"", `{"model":"m"}`, 400},
		"several prompts": {"", `{"model":"m","prompt":["a","b"]}`, 400},
		"transfers":       {"", completion("a", `,"kv_transfer_params":{"do_remote_decode":true}`), 400},
		"no such model":   {"", `{"model":"other","prompt":"a"}`, 404},
		"no such engine":  {"?engine=d9", completion("a", ""), 404},
		"no such agent":   {"?agent=d9", completion("a", ""), 404},
		"too large":       {"", completion(strings.Repeat("a", 5000), ""), 413},
	} {
		if r, _ := c.warm(w.query, w.body); r.status != w.status {
			t.Errorf("%s: status %d, want %d: %s", name, r.status, w.status, r.body)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.AdminAddr()+PathWarm, strings.NewReader(completion("a", "")))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "text/plain") // as a page in a browser can send it
	if r := c.do(request); r.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form: status %d", r.status)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Host = "evil.example"
	request.Body, _ = request.GetBody()
	if r := c.do(request); r.status != http.StatusForbidden {
		t.Errorf("another host: status %d", r.status)
	}
	if n := len(c.decode[0].seen()); n != 0 {
		t.Errorf("the engine got %d requests", n)
	}
	c.decode[0].set(habits{status: 500})
	if r, _ := c.warm("", completion("a", "")); r.status != http.StatusServiceUnavailable {
		t.Errorf("an engine that fails: status %d: %s", r.status, r.body)
	}
}

// However many prompts operators have computed ahead, the gateway can be asked how it is.
func TestWarmCallsLeaveTheAdminListenerOpen(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.decode[0].set(habits{deafAhead: true})
	ctx, leave := context.WithCancel(t.Context())
	var posts sync.WaitGroup
	defer posts.Wait()
	defer leave()
	var refused atomic.Int64
	alone := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range adminConnections {
		posts.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.AdminAddr()+PathWarm, strings.NewReader(chat("hi", `,"add_generation_prompt":false`)))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := alone.Do(request)
			if err != nil {
				return // it is left when the test ends
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
				t.Errorf("one too many: status %d, Retry-After %q", response.StatusCode, response.Header.Get("Retry-After"))
			}
			refused.Add(1)
		})
	}
	c.until("all are at the engine or refused", func() bool { return len(c.decode[0].ahead())+int(refused.Load()) == adminConnections })
	if n := len(c.decode[0].ahead()); n != MaxWarmCalls {
		t.Errorf("the engine has %d", n)
	}
	if r := c.get("/health"); r.status != http.StatusOK {
		t.Errorf("/health answers %d: %s", r.status, r.body)
	}
	leave()
	posts.Wait()
	c.decode[0].set(habits{})
	c.until("their places are given back", func() bool { return len(c.warmCalls) == 0 && c.roster.All()[0].Waiting.Load() == 0 })
	if r, _ := c.warm("", chat("hi", "")); r.status != http.StatusOK {
		t.Errorf("the next: status %d: %s", r.status, r.body)
	}
}

// An operator is told that the time was not enough, and the engine has not failed.
func TestWarmCallThatTakesTooLong(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.PrefillTimeout = 300 * time.Millisecond })
	c.decode[0].set(habits{deaf: true})
	r, _ := c.warm("", completion("a", ""))
	if r.status != http.StatusGatewayTimeout || !strings.Contains(string(r.body), "gateway.prefill_timeout_ms") {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	if e := c.roster.All()[0]; e.Failed.Load() != 0 || !e.Up.Load() {
		t.Errorf("the engine is thought to have failed %d times, up %v", e.Failed.Load(), e.Up.Load())
	}
}

// A refusal is a refusal; only one that speaks of the priority is asked again without.
func TestWarmCallIsRefusedOnce(t *testing.T) {
	for fault, sent := range map[string]int{"no such thing": 1, "Got Priority 1000000": 2} {
		c := newCell(t, 0, 1, nil).vllm()
		c.decode[0].set(habits{status: http.StatusBadRequest, fault: fault})
		r, _ := c.warm("", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if got := c.decode[0].seen(); r.status != http.StatusBadRequest || len(got) != sent || got[0].path != openai.PathChat {
			t.Errorf("%s: status %d after %d requests: %s", fault, r.status, len(got), r.body)
		}
	}
}
