package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/until"
	"meridian/serve/openai"
)

func serve(t testing.TB, e *Engine) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(e.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	return server
}

func post(t testing.TB, s *httptest.Server, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func postJSON(t testing.TB, s *httptest.Server, path, body string, into any) {
	t.Helper()
	response := post(t, s, path, body)
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func TestCompletions(t *testing.T) {
	e := join(t, nil, Options{ServedName: "m"})
	s := serve(t, e)
	var got openai.Completion
	postJSON(t, s, openai.PathCompletions,
		`{"model":"m","prompt":[[104,101,108],[104,105]],"n":2,"max_tokens":6,"seed":4,"ignore_eos":true,"logprobs":2,"return_token_ids":true,"temperature":1.5}`, &got)
	if len(got.Choices) != 4 || got.Usage.PromptTokens != 3+2 || got.Usage.CompletionTokens != 24 || got.Report == nil || got.Report.Engine != "test" {
		t.Fatalf("%+v", got)
	}
	for i, c := range got.Choices {
		if c.Index != i || len(c.Text) == 0 || *c.FinishReason != "length" || len(*c.TokenIDs) != 6 || len(c.Logprobs.Tokens) != 6 || len(c.Logprobs.TopLogprobs[0]) < 2 {
			t.Errorf("%d: %+v", i, c)
		}
	}
	if !slices.Equal(got.Choices[2].PromptTokenIDs, []uint32{104, 105}) || got.Choices[0].Text == got.Choices[1].Text {
		t.Errorf("%+v", got.Choices)
	}
	// Each prompt is answered as if it were alone.
	var alone openai.Completion
	postJSON(t, s, openai.PathCompletions, `{"model":"m","prompt":[104,105],"max_tokens":6,"seed":4,"ignore_eos":true,"temperature":1.5}`, &alone)
	if alone.Choices[0].Text != got.Choices[2].Text {
		t.Errorf("%q alone, %q among others", alone.Choices[0].Text, got.Choices[2].Text)
	}
}

// streamOf reads a stream to its end and returns its chunks.
func streamOf(t testing.TB, r *http.Response) [][]byte {
	t.Helper()
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || kind != openai.EventStream {
		t.Fatalf("status %d, %s", r.StatusCode, kind)
	}
	var chunks [][]byte
	events := openai.NewEventReader(r.Body, 0)
	for {
		data, err := events.Next()
		if err != nil {
			t.Fatalf("after %d chunks: %v", len(chunks), err)
		}
		if string(data) == openai.Done {
			return chunks
		}
		chunks = append(chunks, bytes.Clone(data))
	}
}

const chatBody = `{"messages":[{"role":"user","content":"tell \"me\" <more>"}],"max_tokens":24,"seed":8,"think_tokens":5,"n":2,` +
	`"return_token_ids":true,"logprobs":true,"top_logprobs":2`

// What a stream says in pieces is what the same request gets in one.
func TestStreamedChatIsTheWholeOne(t *testing.T) {
	e := join(t, nil, Options{Reasoning: true, ServedName: `odd "name" é`})
	s := serve(t, e)
	var whole openai.Chat
	postJSON(t, s, openai.PathChat, chatBody+`}`, &whole)
	chunks := streamOf(t, post(t, s, openai.PathChat, chatBody+`,"stream":true,"stream_options":{"include_usage":true}}`))

	type pieces struct {
		text, thought, finish string
		tokens                []uint32
		logprobs              []openai.TokenLogprob
	}
	got := make([]pieces, 2)
	for i, data := range chunks {
		var c struct {
			openai.ChatChunk
			SystemFingerprint string `json:"system_fingerprint"`
		}
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&c); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		// Chunks are put together by hand: they are what encoding/json makes.
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain(t, again), plain(t, data)); diff != "" {
			t.Errorf("chunk %d: %s", i, diff)
		}
		if (i == 0) != (c.PromptTokenIDs != nil) || !strings.Contains(c.SystemFingerprint, ScriptedReasoning) || c.Model != `odd "name" é` {
			t.Errorf("chunk %d: %+v", i, c)
		}
		if last := i == len(chunks)-1; last != (c.Usage != nil) || last != (c.Report != nil) {
			t.Errorf("chunk %d of %d: usage %v, report %v", i, len(chunks), c.Usage, c.Report)
		}
		for _, choice := range c.Choices {
			p := &got[choice.Index]
			p.text += orElse(choice.Delta.Content, "")
			p.thought += orElse(choice.Delta.ReasoningContent, "")
			p.finish += orElse(choice.FinishReason, "")
			p.tokens = append(p.tokens, *choice.TokenIDs...)
			if choice.Logprobs != nil {
				p.logprobs = append(p.logprobs, choice.Logprobs.Content...)
			}
		}
	}
	for i, c := range whole.Choices {
		p := got[i]
		if p.text != *c.Message.Content || p.thought != *c.Message.ReasoningContent || p.finish != *c.FinishReason ||
			!slices.Equal(p.tokens, *c.TokenIDs) || !cmp.Equal(p.logprobs, c.Logprobs.Content) {
			t.Errorf("%d: %+v, want %+v", i, p, c)
		}
		if len(p.thought) != 5 {
			t.Errorf("thought %q", p.thought)
		}
	}
}

// plain is JSON without the members that hold nothing.
func plain(t testing.TB, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return withoutNulls(v)
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = withoutNulls(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}

func TestStreamedCompletion(t *testing.T) {
	s := serve(t, join(t, nil, Options{}))
	const body = `{"prompt":"once upon","max_tokens":30,"seed":2,"logprobs":1`
	var whole openai.Completion
	postJSON(t, s, openai.PathCompletions, body+`}`, &whole)
	var text string
	var offsets []int
	chunks := streamOf(t, post(t, s, openai.PathCompletions, body+`,"stream":true}`))
	for i, data := range chunks {
		var c openai.Completion
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		if len(c.Choices) != 1 || c.Choices[0].TokenIDs != nil || c.PromptTokenIDs != nil || (i == len(chunks)-1) != (c.Report != nil) {
			t.Errorf("chunk %d: %s", i, data)
		}
		text += c.Choices[0].Text
		offsets = append(offsets, c.Choices[0].Logprobs.TextOffset...)
	}
	if text != whole.Choices[0].Text || !slices.Equal(offsets, whole.Choices[0].Logprobs.TextOffset) {
		t.Errorf("%q %v, want %q %v", text, offsets, whole.Choices[0].Text, whole.Choices[0].Logprobs.TextOffset)
	}
}

func TestHTTPRefusals(t *testing.T) {
	s := serve(t, join(t, nil, Options{MaxBodyBytes: 4000, MaxWaiting: 3}))
	for name, c := range map[string]struct {
		path, body   string
		status       int
		code, saying string
	}{
		"no JSON":           {openai.PathCompletions, `{`, 400, "", "not such a request"},
		"no object":         {openai.PathChat, `[]`, 400, "", "the body: want an object, got array"},
		"messages":          {openai.PathChat, `{"messages":"x"}`, 400, "", "messages: want an array, got string"},
		"a message":         {openai.PathChat, `{"messages":[{"role":1}]}`, 400, "", "messages.role: want a string, got number"},
		"a fraction":        {openai.PathChat, `{"max_tokens":1.5}`, 400, "", "max_tokens: want a whole number, got number 1.5"},
		"a bool":            {openai.PathCompletions, `{"stream":"yes"}`, 400, "", "stream: want true or false, got string"},
		"an id":             {openai.PathCompletions, `{"stop_token_ids":[-1]}`, 400, "", "stop_token_ids: want a whole number that is not negative, got number -1"},
		"no prompt":         {openai.PathCompletions, `{}`, 400, "", "no prompt"},
		"other model":       {openai.PathCompletions, `{"model":"x","prompt":"a"}`, 404, openai.CodeModelNotFound, "tiny"},
		"long prompt":       {openai.PathCompletions, `{"prompt":"` + strings.Repeat("x", 2100) + `"}`, 400, openai.CodeContextLength, "context"},
		"large body":        {openai.PathCompletions, `{"prompt":"` + strings.Repeat("x", 5000) + `"}`, 413, "", "4000"},
		"full":              {openai.PathCompletions, `{"prompt":"a","n":4}`, 429, openai.CodeOverloaded, "queue"},
		"no tokens":         {openai.PathCompletions, `{"prompt":"a","max_tokens":0}`, 400, "", "max_tokens"},
		"resume, no seed":   {openai.PathCompletions, `{"prompt":"a","resume_token_ids":[97]}`, 400, "", "seed"},
		"echo":              {openai.PathCompletions, `{"prompt":"a","echo":true}`, 400, "", "echo"},
		"best of":           {openai.PathCompletions, `{"prompt":"a","best_of":3}`, 400, "", "best_of"},
		"suffix":            {openai.PathCompletions, `{"prompt":"a","suffix":"b"}`, 400, "", "suffix"},
		"bias":              {openai.PathChat, `{"messages":[{"role":"user","content":"a"}],"logit_bias":{"5":1}}`, 400, "", "logit_bias"},
		"many logprobs":     {openai.PathCompletions, `{"prompt":"a","logprobs":21}`, 400, "", "20"},
		"no messages":       {openai.PathChat, `{}`, 400, "", "messages"},
		"tools":             {openai.PathChat, `{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, 400, "", "tools"},
		"thought":           {openai.PathChat, `{"messages":[{"role":"user","content":"a"}],"think_tokens":3}`, 400, "", "--reasoning"},
		"negative cap":      {openai.PathChat, `{"messages":[{"role":"user","content":"a"}],"max_think_tokens":-1}`, 400, "", "max_think_tokens is -1"},
		"bad transfer":      {openai.PathChat, `{"messages":[{"role":"user","content":"a"}],"kv_transfer_params":{"do_remote_decode":true,"meridian_transfer":"zz"}}`, 400, "", "hex"},
		"nothing is served": {"/v1/embeddings", `{}`, 404, "", "/v1/embeddings"},
	} {
		r := post(t, s, c.path, c.body)
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Error openai.Error }
		if err := json.Unmarshal(data, &got); err != nil || r.StatusCode != c.status || orElse(got.Error.Code, "") != c.code ||
			!strings.Contains(got.Error.Message, c.saying) || got.Error.Type == "" {
			t.Errorf("%s: status %d, %s", name, r.StatusCode, data)
		}
		if c.status == 429 && r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name)
		}
	}
}

// Both legs of a hand-off, as a gateway sends them.
func TestLegsOverHTTP(t *testing.T) {
	world := newCell()
	p, d := serve(t, join(t, world, Options{TP: 2})), serve(t, join(t, world, Options{BlockTokens: 64, ID: "d"}))
	const question = `{"messages":[{"role":"user","content":"what is there to be said of this?"}],"seed":1,"max_tokens":20`
	var want, offered, got openai.Chat
	postJSON(t, p, openai.PathChat, question+`}`, &want)
	postJSON(t, p, openai.PathChat, strings.Replace(question, `"max_tokens":20`, `"max_tokens":1`, 1)+
		`,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_host":null,"meridian_transfer":"000102030405060708090a0b0c0d0e0f"}}`, &offered)
	if offered.KVTransfer == nil || !offered.KVTransfer.DoRemotePrefill || offered.KVTransfer.DoRemoteDecode {
		t.Fatalf("%+v", offered.KVTransfer)
	}
	if id := [16]byte(offered.KVTransfer.Ticket[len("ticket "):]); id != [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} {
		t.Errorf("offered as %x", id)
	}
	ticket := base64.StdEncoding.EncodeToString(offered.KVTransfer.Ticket)
	postJSON(t, d, openai.PathChat, question+`,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,"meridian_ticket":"`+ticket+`"}}`, &got)
	if *got.Choices[0].Message.Content != *want.Choices[0].Message.Content || got.Report.KV != openai.KVHandoff || got.Report.Engine != "d" {
		t.Errorf("%+v", got)
	}
}

// A ticket that comes as unused is given back, and what it was for is free at once.
func TestUnusedTicketOverHTTP(t *testing.T) {
	world := newCell()
	holder := join(t, world, Options{})
	p, d := serve(t, holder), serve(t, join(t, world, Options{ID: "d"}))
	var offered, got openai.Completion
	postJSON(t, p, openai.PathCompletions, `{"prompt":"what is there to be said of this?","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`, &offered)
	if offered.KVTransfer == nil || holder.Stats().Blocks.Held == 0 {
		t.Fatalf("%+v", offered.KVTransfer)
	}
	ticket := base64.StdEncoding.EncodeToString(offered.KVTransfer.Ticket)
	postJSON(t, d, openai.PathCompletions, `{"prompt":[0],"max_tokens":1,"kv_transfer_params":{"do_remote_prefill":true,"meridian_unused":true,"meridian_ticket":"`+ticket+`"}}`, &got)
	if got.Report == nil || got.Report.KV != openai.KVLocal {
		t.Errorf("%+v", got.Report)
	}
	idle(t, holder)
}

// A full engine gives it back as well.
func TestUnusedTicketOfAFullEngine(t *testing.T) {
	world := newCell()
	holder := join(t, world, Options{})
	full := join(t, world, Options{ID: "d", MaxWaiting: 1})
	var offered openai.Completion
	postJSON(t, serve(t, holder), openai.PathCompletions, `{"prompt":"what is there to be said of this?","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`, &offered)
	if holder.Stats().Blocks.Held == 0 {
		t.Fatal("nothing is held")
	}
	if _, err := full.Submit(t.Context(), Request{Prompts: [][]uint32{{0}}, N: 2, Ticket: offered.KVTransfer.Ticket, Unused: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	idle(t, holder)
}

// A client that hangs up is forgotten at once.
func TestDisconnectCancels(t *testing.T) {
	e := join(t, nil, Options{})
	s := serve(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	body := `{"prompt":"a","max_tokens":2000,"ignore_eos":true,"stream":true}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+openai.PathCompletions, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	s2 := idle(t, e)
	if s2.Counters.Cancelled != 1 || s2.Tokens.Generated >= 2000 {
		t.Errorf("%+v", s2.Counters)
	}
}

// A client that never reads is paused, then dropped; others go on.
func TestClientThatNeverReads(t *testing.T) {
	e := join(t, nil, Options{StallTimeout: 2 * time.Second, MaxWaiting: 1024})
	s := serve(t, e)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := `{"prompt":"a","n":64,"max_tokens":1900,"ignore_eos":true,"stream":true,"logprobs":20,"return_token_ids":true}`
	_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body)
	if err != nil {
		t.Fatal(err)
	}
	if st := idleAfter(t, e, 1); st.Counters.Cancelled != 1 || st.Counters.Paused == 0 {
		t.Errorf("%+v", st.Counters)
	}
}

func itoa(n int) string { return string(appendJSON(nil, n)) }

// idleAfter is idle, once so many requests have ended.
func idleAfter(t testing.TB, e *Engine, requests uint64) Stats {
	t.Helper()
	until.Well(t, "so many requests have ended", func() string {
		if ended(e) < requests {
			return fmt.Sprintf("%+v", e.Stats())
		}
		return ""
	})
	return idle(t, e)
}

func TestManyStreams(t *testing.T) {
	e := join(t, nil, Options{Blocks: 8192, BlockTokens: 16})
	s := serve(t, e)
	s.Client().Transport.(*http.Transport).MaxConnsPerHost = 0
	const body = `{"prompt":"abc","max_tokens":16,"temperature":0,"ignore_eos":true`
	var want openai.Completion
	postJSON(t, s, openai.PathCompletions, body+`}`, &want)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			text := ""
			for _, data := range streamOf(t, post(t, s, openai.PathCompletions, body+`,"stream":true}`)) {
				var c openai.Completion
				if err := json.Unmarshal(data, &c); err != nil {
					t.Error(err)
					return
				}
				text += c.Choices[0].Text
			}
			if text != want.Choices[0].Text {
				t.Errorf("%q, want %q", text, want.Choices[0].Text)
			}
		})
	}
	all.Wait()
	idle(t, e)
}

func TestHealthAndModels(t *testing.T) {
	e := join(t, nil, Options{Reasoning: true})
	s := serve(t, e)
	get := func(path string) (int, string) {
		r, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(data)
	}
	if status, _ := get("/health"); status != 200 {
		t.Errorf("health: %d", status)
	}
	if _, body := get(openai.PathModels); !strings.Contains(body, `"owned_by":"meridian"`) || !strings.Contains(body, ScriptedReasoning) {
		t.Errorf("models: %s", body)
	}
	if _, body := get("/stats"); !strings.Contains(body, `"blocks":{"total":2048`) || !strings.Contains(body, `"door":"absent"`) {
		t.Errorf("stats: %s", body)
	}
	if err := e.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if status, _ := get("/health"); status != 503 {
		t.Errorf("health after the end: %d", status)
	}
	if r := post(t, s, openai.PathCompletions, `{"prompt":"a"}`); r.StatusCode != 503 {
		t.Errorf("a request after the end: %d", r.StatusCode)
	}
}

// What is asked for by the wrong method is there, and says by which.
func TestWrongMethods(t *testing.T) {
	e := join(t, nil, Options{})
	for path, allowed := range map[string]string{openai.PathChat: "POST", openai.PathCompletions: "POST", openai.PathModels: "GET", "/health": "GET", "/stats": "GET"} {
		method := http.MethodGet
		if allowed == method {
			method = http.MethodDelete
		}
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allowed {
			t.Errorf("%s %s: status %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
		}
	}
}
