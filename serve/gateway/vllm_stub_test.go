package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"meridian/serve/gateway/roster"
	"meridian/serve/kvevents/kveventstest"
	"meridian/serve/openai"
)

// fakeVLLM answers as vLLM does, byte for byte as it is told to.
type fakeVLLM struct {
	t      *testing.T
	server *httptest.Server
	events *kveventstest.Publisher // nil: it does not say what it holds
	key    string                  // that it asks for

	mu     sync.Mutex
	bodies []string // of requests for tokens
	ranks  []string // and which data-parallel rank they were for
	whole  string   // the answer that is no stream, "" for generated ones
	stream string   // the answer that is one
	ticket string   // kv_transfer_params of a prefill leg
	// chunks are how many tokens each piece of a generated stream has; after the
	// last it dies, where it is told to.
	chunks []int
	dies   bool
}

const vllmCard = `{"id":"m","object":"model","created":1,"owned_by":"vllm","root":"org/model","parent":null,"max_model_len":4096,"permission":[]}`

func newFakeVLLM(t *testing.T) *fakeVLLM {
	f := &fakeVLLM{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[%s,{"id":"sql","owned_by":"vllm","root":"/sql","parent":"m"}]}`, vllmCard)
	})
	mux.HandleFunc("GET /kv_event_sources", f.sources)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.32.0"}`) })
	mux.HandleFunc("POST /tokenize", f.echo)
	mux.HandleFunc("POST /v1/responses", f.echo)
	mux.HandleFunc("POST /sleep", func(http.ResponseWriter, *http.Request) { t.Error("an engine was put to sleep") })
	mux.HandleFunc("POST /v1/completions", f.generate)
	mux.HandleFunc("POST /v1/chat/completions", f.generate)
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.key != "" && r.URL.Path != "/health" && r.Header.Get("Authorization") != "Bearer "+f.key {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"Unauthorized"}`)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	return f
}

// publishing makes it say what it holds.
func (f *fakeVLLM) publishing() *fakeVLLM {
	f.events = kveventstest.New(f.t)
	return f
}

func (f *fakeVLLM) sources(w http.ResponseWriter, r *http.Request) {
	if f.events == nil {
		http.NotFound(w, r)
		return
	}
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	events, replay := f.events.Addresses()
	fmt.Fprintf(w, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%s","replay_endpoint":"tcp://*:%s","buffer_steps":10000,"topic":""}}`,
		port(events), port(replay))
}

// echo answers with what it was sent.
func (f *fakeVLLM) echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s %s\n", r.URL.RequestURI(), body)
}

func (f *fakeVLLM) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.bodies)
}

func (f *fakeVLLM) generate(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.bodies = append(f.bodies, string(body))
	f.ranks = append(f.ranks, r.Header.Get(roster.HeaderRank))
	f.mu.Unlock()
	var asked struct {
		Stream bool
		Prompt json.RawMessage
		Max    int             `json:"max_tokens"`
		IDs    bool            `json:"return_token_ids"`
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		f.t.Error(err)
	}
	switch {
	case strings.Contains(string(asked.Params), `"do_remote_decode":true`):
		ids := ""
		if asked.IDs {
			ids = `,"prompt_token_ids":` + string(openai.AppendIDs(nil, textIDs(asked.Prompt)))
		}
		fmt.Fprintf(w, `{"id":"p","choices":[{"index":0,"text":"x"%s}],"kv_transfer_params":%s}`, ids, f.ticket)
	case !asked.Stream:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, f.whole)
	case f.stream != "":
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		fmt.Fprint(w, f.stream)
	default:
		f.speak(w, textIDs(asked.Prompt), asked.Max)
	}
}

// textIDs stands in for a tokenizer: a token for each byte, beyond those of the
// answer. Prompts of ids are what they are.
func textIDs(prompt json.RawMessage) []uint32 {
	var ids []uint32
	if json.Unmarshal(prompt, &ids) == nil {
		return ids
	}
	var text string
	_ = json.Unmarshal(prompt, &text)
	for _, b := range []byte(text) {
		ids = append(ids, uint32(b)+1000)
	}
	return ids
}

// speech is what it always answers: a token for each byte, so that characters
// have several.
const speech = "zwölf Boxkämpfer für 3 € — grüßen, ≥ 4 mal"

// speak streams the answer as vLLM's detokenizer does: text comes when its
// characters are complete, and a prompt that ends within one is said again.
func (f *fakeVLLM) speak(w http.ResponseWriter, prompt []uint32, limit int) {
	w.Header().Set("Content-Type", openai.EventStream)
	done, held := 0, ""
	for _, id := range prompt {
		if id < 1000 {
			done++ // of the answer: it goes on
			if int(speech[done-1]) != int(id) {
				f.t.Errorf("it is to go on after %d, which it never said", id)
			}
		}
	}
	if _, complete := complete(speech[:done]); !complete {
		held = "the prompt! " + speech[:done]
	}
	event := func(format string, args ...any) {
		fmt.Fprintf(w, "data: "+format+"\n\n", args...)
		w.(http.Flusher).Flush()
	}
	prompted := fmt.Sprintf(`,"prompt_token_ids":%s`, openai.AppendIDs(nil, prompt))
	end, said := min(len(speech), done+limit), len(held)
	text, at := held, done
	for _, size := range append(slices.Clone(f.chunks), slices.Repeat([]int{1}, len(speech))...) {
		if at == end {
			break
		}
		piece := speech[at:min(at+size, end)]
		at += len(piece)
		text += piece
		shown, _ := complete(text)
		fresh := ""
		if len(shown) > said || said == len(held) && shown != "" {
			fresh = shown[min(said, len(shown)):]
			if held != "" {
				fresh, held = shown, ""
			}
			said = len(shown)
		}
		var ids []uint32
		for _, b := range []byte(piece) {
			ids = append(ids, uint32(b))
		}
		finish := "null"
		if at == end {
			finish = `"length"`
		}
		quoted, _ := json.Marshal(fresh)
		event(`{"id":"cmpl-1","object":"text_completion","created":2,"model":"m","choices":[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s%s,"token_ids":%s}]}`,
			quoted, finish, prompted, openai.AppendIDs(nil, ids))
		prompted = ""
		if f.chunks = f.chunks[min(1, len(f.chunks)):]; f.dies && len(f.chunks) == 0 {
			panic(http.ErrAbortHandler)
		}
	}
	event(`{"id":"cmpl-1","object":"text_completion","created":2,"model":"m","choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}`,
		len(prompt), len(prompt)+at-done, at-done)
	event("%s", openai.Done)
}

// complete is the part of a text that ends with a whole character.
func complete(text string) (string, bool) {
	for i := range 4 {
		if utf8.ValidString(text[:max(0, len(text)-i)]) {
			return text[:max(0, len(text)-i)], i == 0
		}
	}
	return "", false
}
