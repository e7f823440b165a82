package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// hostileCell is a gateway before one engine that answers as answer does, and lists
// models and its name as it likes.
func hostileCell(t *testing.T, models, name string, answer http.HandlerFunc) *testCell {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"engine":%q}`, name) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"data":[%s]}`, models) })
	mux.HandleFunc("POST /", answer)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return newCell(t, 0, 0, func(o *Options) { o.Backends = []Backend{{URL: server.URL, Role: placement.Both}} })
}

const hostileModel = `{"id":"m","owned_by":"meridian"}`

// Numbers and words of an answer end in metrics and records, and are bounded there.
func TestEngineTellsNonsenseOfItsAnswer(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	c := hostileCell(t, hostileModel, "e", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"choices":[{"index":0,"text":"t","finish_reason":%q}],"usage":{"prompt_tokens":-5,"completion_tokens":9007199254740993,"total_tokens":-1},
			"meridian":{"kv":%[1]q,"kv_reason":%[1]q,"queue_ms":-1e300,"handoff_ms":1e300,"prefill_ms":-1}}`, long)
	})
	r := c.post(openai.PathCompletions, completion("short", ""))
	if r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	record := c.record(r)
	if record.PromptTokens < 0 || record.OutputTokens > openai.MaxUsage || len(record.Finish) > lifecycle.MaxFinish || record.Legs[0].KV != "" || len(record.Legs[0].KVReason) > lifecycle.MaxReason {
		t.Errorf("recorded: %+v", record)
	}
	if m := c.Metrics(); m.PromptTokens > openai.MaxUsage || m.OutputTokens > openai.MaxUsage {
		t.Errorf("%d and %d tokens are counted", m.PromptTokens, m.OutputTokens)
	}
	if record.Latency.HandoffMs < 0 || record.Latency.PrefillMs < 0 || record.Latency == (ledger.Latency{}) {
		t.Errorf("%+v", record.Latency)
	}
}

// So are those of an engine that goes on with an answer, which the gateway translates.
func TestEngineThatGoesOnTellsNonsense(t *testing.T) {
	for _, nonsense := range []string{`,"completion_tokens":-50`, `,"prompt_tokens":-50`, `,"completion_tokens":9007199254740993`} {
		c := newCell(t, 0, 2, nil).vllm()
		c.prefer("d0")
		c.decode[0].set(habits{dieAfter: 5})
		c.decode[1].set(habits{cached: nonsense})
		r := c.post(openai.PathCompletions, `{"model":"m","prompt":"short","max_tokens":12,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
		if record := c.record(r); record.OutputTokens < 0 || record.OutputTokens > openai.MaxUsage || strings.Contains(string(r.body), "tokens\":-") {
			t.Errorf("%s: recorded %d, told %s", nonsense, record.OutputTokens, r.events[len(r.events)-2])
		}
		if counted := c.Metrics().OutputTokens; counted > openai.MaxUsage {
			t.Errorf("%s: %d tokens are counted", nonsense, counted)
		}
	}
}

// How much an engine says that it found is bounded, and told where it found something.
func TestEngineTellsWhatItFound(t *testing.T) {
	for said, want := range map[string]ledger.Leg{
		`"kv":"found","kv_tokens":128`:                 {KV: "found", KVTokens: 128},
		`"kv":"found","kv_tokens":-1`:                  {KV: "found"},
		`"kv":"found","kv_tokens":9007199254740993`:    {KV: "found", KVTokens: openai.MaxUsage},
		`"kv":"local","kv_tokens":128`:                 {KV: "local"},
		`"kv":"found","kv_tokens":1e999,"engine":"e0"`: {},
	} {
		c := hostileCell(t, hostileModel, "e", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"choices":[{"index":0,"text":"t","finish_reason":"stop"}],"meridian":{%s}}`, said)
		})
		leg := c.record(c.post(openai.PathCompletions, completion("short", ""))).Legs[0]
		if leg.KV != want.KV || leg.KVTokens != want.KVTokens {
			t.Errorf("%s: recorded %q with %d tokens", said, leg.KV, leg.KVTokens)
		}
		if n := c.Metrics().KV["found"]; (n == 1) != (want.KV == "found") {
			t.Errorf("%s: %d are counted as found", said, n)
		}
	}
}

// An engine does not serve under names that cannot be used, neither a model's nor its
// own; its other models it does.
func TestEngineTellsNonsenseOfItself(t *testing.T) {
	for name, models := range map[string]string{
		"an empty name": `{"id":""}`, "a long name": fmt.Sprintf(`{"id":%q}`, strings.Repeat("m", 513)),
		"a name that moves the cursor": `{"id":"\u001b[2J"}`, "no object": `7`,
	} {
		t.Run(name, func(t *testing.T) {
			c := hostileCell(t, models, "e", func(http.ResponseWriter, *http.Request) {})
			if served := c.roster.Models(); len(served) > 0 || c.roster.Ready() {
				t.Errorf("%d models are served", len(served))
			}
			c = hostileCell(t, models+","+hostileModel, "e", func(http.ResponseWriter, *http.Request) {})
			if served := c.roster.Models(); len(served) != 1 || served[0] != "m" {
				t.Errorf("beside another: %d models are served", len(served))
			}
		})
	}
	many := strings.Repeat(hostileModel+",", 1024) + `{"id":"one too many"}`
	if served := hostileCell(t, many, "e", func(http.ResponseWriter, *http.Request) {}).roster.Models(); len(served) != 1 || served[0] != "m" {
		t.Errorf("of many %d models are served", len(served))
	}
	for _, name := range []string{strings.Repeat("e", 256), "two\nlines", "a/b", ""} {
		c := hostileCell(t, hostileModel, name, func(http.ResponseWriter, *http.Request) {})
		if a := c.roster.All()[0].About.Load(); !a.Nameless {
			t.Errorf("it is believed to be %q", a.ID)
		}
	}
}

// A status that is none is told as what it is, not passed on: the server would fall
// over it.
func TestEngineAnswersWithNoStatus(t *testing.T) {
	for _, status := range []int{42, 999} {
		c := hostileCell(t, hostileModel, "e", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 %03d what\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", status)
			conn.Close()
		})
		for _, path := range []string{openai.PathCompletions, "/v1/responses"} {
			if r := c.post(path, completion("short", "")); r.err != nil || r.status != http.StatusServiceUnavailable {
				t.Errorf("%s, status %d: %d %s, %v", path, status, r.status, r.body, r.err)
			}
		}
	}
}

// Where an engine is stays between the gateway and its operator.
func TestClientsHearNoAddress(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.ProbeInterval = time.Hour })
	address := strings.TrimPrefix(c.decode[0].server.URL, "http://")
	c.decode[0].server.Close()
	r := c.post(openai.PathCompletions, completion("short", ""))
	record := c.record(r)
	if r.status != http.StatusServiceUnavailable || strings.Contains(string(r.body), address) {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, leg := range record.Legs { // none, where the gateway knew already that the port is closed
		if !strings.Contains(leg.Problem, address) {
			t.Errorf("the operator is not told where: %s", leg.Problem)
		}
	}
}

// What a prefill engine answers goes into another engine's request: what is not JSON
// does not.
func TestPrefillEngineAnswersWithNoJSON(t *testing.T) {
	for _, answer := range []string{
		`{"kv_transfer_params":{"a":1]},"model":"other"}`, `{"kv_transfer_params":{"a":1}`, `{"kv_transfer_params":{"a" "b"},"x":1}`, `{"kv_transfer_params":{"a":1}} {}`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				fmt.Fprintf(w, `{"data":[%s]}`, hostileModel)
				return
			}
			fmt.Fprint(w, answer)
		}))
		t.Cleanup(server.Close)
		c := newCell(t, 0, 1, func(o *Options) {
			o.Backends = append(o.Backends, Backend{URL: server.URL, Role: placement.Prefill})
		})
		c.post(openai.PathCompletions, completion(longPrompt, "")).whole(t, longPrompt, 5, 12)
		for _, request := range c.decode[0].seen() {
			if request.body["kv_transfer_params"] != nil || request.body["model"] != "m" {
				t.Errorf("%s became a part of %v", answer, request.body)
			}
		}
	}
}
