package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

func TestMain(m *testing.M) {
	// Many of these tests wait for a limit most of the time.
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

// standstill is longer than a busy machine stands still: a limit that something is
// to miss, and nothing else.
const standstill = 4 * time.Second

// testCell is a gateway before stubs.
type testCell struct {
	*Gateway
	t        *testing.T
	prefill  []*stub
	decode   []*stub
	client   *http.Client
	closedUp bool
}

func newCell(t *testing.T, prefills, decodes int, change func(*Options)) *testCell {
	t.Helper()
	c := &testCell{t: t, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	o := Options{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", LegKey: &[32]byte{7},
		Place:         placement.Options{DirectTokens: 16, AffinityWeight: 1, RunningTokens: 64},
		ProbeInterval: 20 * time.Millisecond, ProbeTimeout: time.Minute, EngineWait: 50 * time.Millisecond,
	}
	shared := &stubTickets{used: make(map[string]bool)}
	add := func(kind string, n int, role placement.Role) (stubs []*stub) {
		for i := range n {
			s := newStub(t, fmt.Sprintf("%s%d", kind, i))
			s.key, s.shared = *o.LegKey, shared
			stubs = append(stubs, s)
			o.Backends = append(o.Backends, Backend{URL: s.server.URL, Role: role})
		}
		return stubs
	}
	c.prefill, c.decode = add("p", prefills, placement.Prefill), add("d", decodes, placement.Decode)
	stubs := slices.Clone(o.Backends)
	if change != nil {
		change(&o)
	}
	var err error
	if c.Gateway, err = Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	if slices.Equal(o.Backends, stubs) { // else a request might come before they are found
		c.until("the engines are there", func() bool {
			return !slices.ContainsFunc(c.roster.All(), func(e *roster.Engine) bool { return !e.Up.Load() })
		})
	}
	return c
}

func (c *testCell) close() {
	if c.closedUp {
		return
	}
	c.closedUp = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		c.t.Error(err)
	}
	c.client.CloseIdleConnections()
}

// promising lets decode engines be asked before prefill engines have answered.
func promising(o *Options) { o.PromiseTokens = 4096 }

// atHome gives every engine an agent, as those in a directory have.
func (c *testCell) atHome() *testCell {
	for _, e := range c.roster.All() {
		e.Home.Store(&roster.Home{Name: e.Name(), Incarnation: [16]byte{1}})
	}
	return c
}

// vllm makes the decode engines look like vLLM.
func (c *testCell) vllm() *testCell {
	for _, s := range c.decode {
		s.owner = "vllm"
	}
	for _, e := range c.roster.All() {
		a := *e.About.Load()
		a.Kind = openai.KindVLLM
		e.About.Store(&a)
	}
	return c
}

// reply is a response, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
	events []string
	err    error
}

func (c *testCell) post(path, body string) reply {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+c.Addr()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	return c.do(request)
}

func (c *testCell) do(request *http.Request) reply {
	c.t.Helper()
	response, err := c.client.Do(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	r := reply{status: response.StatusCode, header: response.Header}
	r.body, r.err = io.ReadAll(response.Body)
	if strings.HasPrefix(r.header.Get("Content-Type"), openai.EventStream) {
		events := openai.NewEventReader(bytes.NewReader(r.body), 0)
		for {
			data, err := events.Next()
			if err != nil {
				break
			}
			r.events = append(r.events, string(data))
		}
	}
	return r
}

// text puts the answer together; problem is the error of a stream that broke
// off, and done whether it was ended.
func (r reply) text(t *testing.T) (text, thought, problem string, done bool) {
	t.Helper()
	bodies := r.events
	if bodies == nil {
		bodies = []string{string(r.body)}
		done = true
	}
	for _, event := range bodies {
		if event == openai.Done {
			done = true
			continue
		}
		type said struct {
			Content          string `json:"content"`
			ReasoningContent string `json:"reasoning_content"`
		}
		var chunk struct {
			Choices []struct {
				Text           string
				Delta, Message said
			}
			Error *openai.Error
		}
		if err := json.Unmarshal([]byte(event), &chunk); err != nil {
			t.Fatalf("%q: %v", event, err)
		}
		if chunk.Error != nil {
			problem = chunk.Error.Message
		}
		for _, choice := range chunk.Choices {
			text += choice.Text + choice.Delta.Content + choice.Message.Content
			thought += choice.Delta.ReasoningContent + choice.Message.ReasoningContent
		}
	}
	return text, thought, problem, done
}

// whole demands the answer to prompt, every token once.
func (r reply) whole(t *testing.T, prompt string, seed int64, n int) {
	t.Helper()
	text, thought, problem, done := r.text(t)
	if want := textOf(tokensOf(prompt, seed, n)); thought+text != want || problem != "" || !done || r.status != http.StatusOK || r.err != nil {
		t.Errorf("status %d, error %v, problem %q, done %v\n got %q\nwant %q", r.status, r.err, problem, done, thought+text, want)
	}
	for _, hidden := range []string{"token_ids", `"meridian"`} {
		if strings.Contains(string(r.body), hidden) {
			t.Errorf("%s came through to the client: %s", hidden, r.body)
		}
	}
}

func (c *testCell) record(r reply) *ledger.Record {
	c.t.Helper()
	id := r.header.Get(upstream.HeaderRequest)
	var record *ledger.Record
	c.until("there is a record of "+id, func() (found bool) { // it is written after the client has its answer
		var err error
		record, err = c.ledger.Find(id)
		return err == nil
	})
	return record
}

func legsOf(r *ledger.Record) string {
	var legs []string
	for _, l := range r.Legs {
		text := l.Kind + " " + l.Engine
		switch {
		case l.Problem == lifecycle.OtherLegFailed:
			text += " given up"
		case l.Problem != "":
			text += " failed"
		}
		legs = append(legs, text)
	}
	return strings.Join(legs, ", ")
}

const longPrompt = "a prompt of some length, which is more than sixteen tokens by any count, so that it is split"

func completion(prompt, more string) string {
	return fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":12,"seed":5%s}`, prompt, more)
}

func chat(prompt, more string) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_completion_tokens":12,"seed":5%s}`, prompt, more)
}

func TestServes(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	for name, r := range map[string]reply{
		"completion":          c.post(openai.PathCompletions, completion(longPrompt, "")),
		"completion, stream":  c.post(openai.PathCompletions, completion(longPrompt, `,"stream":true`)),
		"chat":                c.post(openai.PathChat, chat(longPrompt, "")),
		"chat, stream":        c.post(openai.PathChat, chat(longPrompt, `,"stream":true`)),
		"chat, with thoughts": c.post(openai.PathChat, chat(longPrompt, `,"stream":true,"think_tokens":4`)),
		"short":               c.post(openai.PathCompletions, completion("short", `,"stream":true`)),
		"unknown members":     c.post(openai.PathCompletions, completion("short", `,"x":{"y":[1e5]},"temperature":0`)),
	} {
		t.Run(name, func(t *testing.T) {
			prompt := longPrompt
			if name == "short" || name == "unknown members" {
				prompt = "short"
			}
			r.whole(t, prompt, 5, 12)
			placement := r.header.Get(edge.HeaderPlacement)
			if split := strings.HasPrefix(placement, "prefill=p0 "); split != (prompt == longPrompt) && !strings.Contains(placement, "cached") {
				t.Errorf("placed: %s", placement)
			}
			record := c.record(r)
			if record.Outcome != ledger.Finished || record.PromptTokens == 0 || record.OutputTokens != 12 || record.Latency.TotalMs <= 0 {
				t.Errorf("recorded: %+v", record)
			}
		})
	}
	for _, request := range c.decode[0].seen() {
		if request.body["x"] != nil {
			if text, _ := json.Marshal(request.body["x"]); string(text) != `{"y":[1e5]}` {
				t.Errorf("an unknown member became %s", text)
			}
			return
		}
	}
	t.Error("an unknown member was lost")
}

// A hand-off's record names the transfer, its legs and its times.
func TestRecordOfAHandOff(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	r := c.post(openai.PathChat, chat(longPrompt, `,"stream":true,"think_tokens":4,"stream_options":{"include_usage":true}`))
	record := c.record(r)
	if legsOf(record) != "prefill p0, decode d0" {
		t.Errorf("legs: %s", legsOf(record))
	}
	for _, leg := range record.Legs {
		if leg.Transfer != record.ID {
			t.Errorf("%s has transfer %s, want the request's id %s", leg.Kind, leg.Transfer, record.ID)
		}
	}
	if first := record.Legs[0]; first.KV != "found" || first.KVTokens != 48 {
		t.Errorf("of the prompt: %+v", first)
	}
	if l := record.Latency; record.Legs[1].KV != "handoff" || l.HandoffMs != 2.5 || l.PrefillMs <= 0 || l.TTFTMs <= 0 || l.TTFVTMs < l.TTFTMs || l.TTOTMs <= 0 {
		t.Errorf("recorded: %+v", record)
	}
	if record.Finish != "length" || record.OutputTokens != 12 || record.PromptTokens != len(longPrompt) {
		t.Errorf("recorded: %+v", record)
	}
	if m := c.Metrics(); m.KV["handoff"] != 1 || m.Legs["prefill"]["done"] != 1 || m.Phases["ttft"].Count != 1 || m.Phases["think_itl"].Count != 3 {
		t.Errorf("counted: %+v", m)
	}
	last := r.events[len(r.events)-2]
	if !strings.Contains(last, `"completion_tokens":12`) {
		t.Errorf("usage: %s", last)
	}
}

func TestTokenIDsForThoseWhoAsk(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	r := c.post(openai.PathCompletions, completion("short", `,"stream":true,"return_token_ids":true`))
	if body := string(r.body); !strings.Contains(body, `"token_ids"`) || !strings.Contains(body, `"prompt_token_ids"`) || strings.Contains(body, `"meridian"`) {
		t.Errorf("got %s", body)
	}
}

func TestModels(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	get := func(path string) reply {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+path, nil)
		return c.do(request)
	}
	var list openai.ModelList
	if err := json.Unmarshal(get("/v1/models").body, &list); err != nil || len(list.Data) != 1 || list.Data[0].ID != "m" {
		t.Errorf("models: %v, %v", list, err)
	}
	for path, status := range map[string]int{"/v1/models/m": 200, "/v1/models/n": 404, "/health": 200, "/ready": 200, "/metrics": 404, "/v1/embeddings": 404} {
		if r := get(path); r.status != status {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := get("/v1/nothing"); !strings.Contains(string(r.body), "POST /v1/chat/completions") {
		t.Errorf("it does not say what there is: %s", r.body)
	}
}

// Without a name the only model is meant.
func TestModelMayBeLeftOut(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.post(openai.PathCompletions, `{"prompt":"short","max_tokens":12,"seed":5}`).whole(t, "short", 5, 12)
	if got := c.decode[0].seen()[0].body["model"]; got != "m" {
		t.Errorf("the engine was asked for %v", got)
	}
}
