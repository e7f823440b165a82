package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/trust"
	"meridian/serve/openai"
)

// stub is an engine that speaks the contract and breaks where it is told to.
// What it generates depends on prompt, seed and position only, as a reference
// engine's does.
type stub struct {
	t      *testing.T
	id     string
	owner  string // of its model
	server *httptest.Server
	key    [32]byte

	mu       sync.Mutex
	habits   habits
	requests []stubRequest
	shared   *stubTickets // tickets of all engines of a cell

	leaving   sync.Map     // transfers of streams that were asked to leave
	open      atomic.Int64 // streams that are being served
	asked     atomic.Int64 // for its statistics
	mutely    atomic.Int64 // questions to let a request go that it does not answer
	canceled  atomic.Int64 // streams whose client went away
	tokenized atomic.Int64 // questions for tokens
}

// stubTickets is what the agents of a cell know together.
type stubTickets struct {
	mu       sync.Mutex
	used     map[string]bool
	returned []string // tickets and promises that were given back
}

// habits are what a stub does wrong; the zero habits are none.
type habits struct {
	status      int // answers with it
	retryAfter  string
	fault       string        // the message of that answer
	quote       *quotes       // the message of that answer, made of the request
	deaf        bool          // takes requests and says nothing
	deafAhead   bool          // does so with what is computed ahead
	noPriority  bool          // refuses requests with a priority, as vLLM does
	dieBefore   bool          // closes the connection instead of answering
	dieAfter    int           // closes it after so many tokens; 0: never
	hangAfter   int           // says no more after so many tokens
	faultAfter  int           // tells an error in the stream after so many tokens
	moves       bool          // lets requests go that are asked to leave
	keepsAll    bool          // says that it lets them go, and does not
	muteMoves   bool          // does not answer who asks for that
	muteStats   bool          // nor who asks for its statistics
	others      int           // tells of so many more that it runs, for another gateway
	room        int           // answers 429 to streams beyond so many; 0: there is room for all
	leaveAfter  int           // ends its answer after so many tokens as if it went on elsewhere
	leavesFirst bool          // says so in the first of two answers
	cutWithin   bool          // dies in the middle of an event
	noTicket    bool          // offers nothing
	offersMute  bool          // offers, and does not answer
	noLoad      bool          // fails requests whose cache is elsewhere
	slow        time.Duration // between tokens
	slowPrefill time.Duration
	noIDs       bool   // tells no token ids
	holdBack    bool   // every other token's text comes with the next token
	thinks      int    // thinks for so many tokens, unasked
	thoughts    string // what its template keeps of them: "beside" the text, "within" it; "mute": it does not say; "ill", "busy", "gone": it cannot now
	noDone      bool   // ends its stream without saying so
	afterEnd    string // what comes of it between the end of its answer and [DONE]
	hung        bool   // does not answer probes either
	model       string
	owner       string // of its model
	spared      string // what it tells of tokens that it did not compute, in its own member
	cached      string // and as OpenAI has it
}

// quotes is how an engine quotes a request.
type quotes struct{ of func(request []byte) string }

type stubRequest struct {
	path   string
	header http.Header
	body   map[string]any
}

func newStub(t *testing.T, id string) *stub {
	s := &stub{t: t, id: id, owner: openai.OwnedByMeridian}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		switch h := s.habit(); {
		case h.hung:
			<-r.Context().Done()
		case h.status == http.StatusServiceUnavailable:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if s.habit().muteStats {
			<-r.Context().Done()
			return
		}
		room := 1000
		if h := s.habit(); h.room > 0 {
			room = max(h.room-int(s.open.Load()), 0)
		}
		fmt.Fprintf(w, `{"engine":%q,"running":%d,"room":%d}`, id, int(s.open.Load())+s.habit().others, room)
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":%q,"max_model_len":4096}]}`, cmp.Or(s.habit().model, "m"), cmp.Or(s.habit().owner, s.owner))
	})
	mux.HandleFunc("POST /v1/completions", s.generate)
	mux.HandleFunc("POST /v1/chat/completions", s.generate)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("POST "+openai.PathMove, s.move)
	mux.HandleFunc("POST /v1/responses", s.generate) // passed on unread, so it may answer as ever
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	return s
}

func (s *stub) habit() habits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.habits
}

func (s *stub) set(h habits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.habits = h
}

func (s *stub) seen() []stubRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// tokensOf is the answer to a prompt, in full.
func tokensOf(prompt string, seed int64, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = tokenAt(prompt, seed, i)
	}
	return tokens
}

func tokenAt(prompt string, seed int64, i int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, prompt, "/", seed, "/", i)
	return h.Sum32() % 1000
}

func textOf(tokens []uint32) string {
	var b strings.Builder
	for _, t := range tokens {
		fmt.Fprintf(&b, "w%d ", t)
	}
	return b.String()
}

// promptIDs stands in for a tokenizer: a token for every byte.
func promptIDs(prompt string) []uint32 {
	ids := make([]uint32, len(prompt))
	for i := range prompt {
		ids[i] = uint32(prompt[i])
	}
	return ids
}

// work is a request as the stub reads it.
type work struct {
	s      *stub
	w      http.ResponseWriter
	r      *http.Request
	h      habits
	chat   bool
	stream bool
	ids    bool
	usage  bool
	prompt string
	seed   int64
	max    int
	resume []uint32
	think  int
	kv     string
	why    string
	move   string // the transfer under which it may leave
}

func (s *stub) generate(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		s.t.Errorf("%s got a body that is no JSON: %v", s.id, err)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, stubRequest{r.URL.Path, r.Header, body})
	s.mu.Unlock()
	if params, _ := body["kv_transfer_params"].(map[string]any); params != nil && params["meridian_unused"] == true {
		s.shared.giveBack(params["meridian_ticket"])
		fmt.Fprint(w, `{"id":"u","choices":[]}`)
		return
	}
	job := &work{s: s, w: w, r: r, h: s.habit(), chat: r.URL.Path == openai.PathChat, max: 16, kv: "local"}
	job.read(body)
	_, ahead := body["add_generation_prompt"]
	switch {
	case job.h.noPriority && body["priority"] != nil:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"priority scheduling is not enabled","type":"BadRequestError"}}`)
		return
	case job.h.deafAhead && ahead:
		<-r.Context().Done()
		s.canceled.Add(1)
		return
	case job.h.room > 0 && s.open.Load() >= int64(job.h.room):
		openai.Overloaded(10*time.Second, "full").Write(w)
		return
	case job.h.dieBefore:
		panic(http.ErrAbortHandler)
	case job.h.deaf:
		<-r.Context().Done()
		s.canceled.Add(1)
		return
	case job.h.status != 0:
		w.Header().Set("Retry-After", job.h.retryAfter)
		w.WriteHeader(job.h.status)
		fault, _ := json.Marshal(job.h.fault)
		if job.h.quote != nil {
			request, _ := json.Marshal(body)
			fault, _ = json.Marshal(job.h.quote.of(request))
		}
		fmt.Fprintf(w, `{"error":{"message":%s,"type":"invalid_request_error","code":"c"}}`, fault)
		return
	}
	if params, _ := body["kv_transfer_params"].(map[string]any); params["do_remote_decode"] == true || params["do_remote_prefill"] == true {
		if params["do_remote_decode"] == true {
			job.prefill(params)
			return
		}
		if !job.redeem(params) {
			s.canceled.Add(1)
			panic(http.ErrAbortHandler)
		}
		if job.h.noLoad {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"error":{"message":"the cache did not come","type":"InternalServerError"}}`)
			return
		}
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	if job.stream {
		job.streamed()
		return
	}
	job.whole()
}

func number(v any, otherwise int64) int64 {
	n, isNumber := v.(json.Number)
	if !isNumber {
		return otherwise
	}
	i, _ := n.Int64()
	return i
}

func (j *work) read(body map[string]any) {
	j.stream = body["stream"] == true
	if params, _ := body["kv_transfer_params"].(map[string]any); params != nil {
		move, _ := params["meridian_move"].(map[string]any)
		j.move, _ = move["transfer"].(string)
	}
	j.ids = body["return_token_ids"] == true && !j.h.noIDs
	j.max = int(number(body["max_tokens"], 16))
	if j.chat {
		j.max = int(number(body["max_completion_tokens"], int64(j.max)))
	}
	j.seed = number(body["seed"], 0)
	j.think = int(number(body["think_tokens"], int64(j.h.thinks)))
	if options, _ := body["stream_options"].(map[string]any); options != nil {
		j.usage = options["include_usage"] == true
	}
	switch prompt := body["prompt"].(type) {
	case string:
		j.prompt = prompt
	case []any: // token ids: a prompt, and perhaps the beginning of an answer
		for _, id := range prompt {
			n := number(id, 0)
			if n < 256 && len(j.resume) == 0 && n >= 32 {
				j.prompt += string(rune(n))
			} else {
				j.resume = append(j.resume, uint32(n-1000))
			}
		}
		j.max += len(j.resume)
	}
	if messages, _ := body["messages"].([]any); len(messages) > 0 {
		j.prompt = fmt.Sprint(messages[len(messages)-1].(map[string]any)["content"])
	}
	if resume, _ := body["resume_token_ids"].([]any); resume != nil {
		for _, id := range resume {
			j.resume = append(j.resume, uint32(number(id, 0)))
		}
	}
	if expected := tokensOf(j.prompt, j.seed, len(j.resume)); !slices.Equal(j.resume, expected) {
		j.s.t.Errorf("%s is to go on after %v, which is not what comes of %q with seed %d: %v", j.s.id, j.resume, j.prompt, j.seed, expected)
	}
}

func (j *work) checkLeg(params map[string]any, kind trust.LegKind) trust.Leg {
	text, _ := params["meridian_leg"].(string)
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		j.s.t.Errorf("%s: the leg: %v", j.s.id, err)
	}
	leg, err := trust.OpenLeg(sealed, j.s.key)
	if err == nil {
		err = leg.Check(trust.Leg{Kind: kind, ID: leg.ID, Engine: j.s.id})
	}
	if err != nil {
		j.s.t.Errorf("%s: %v", j.s.id, err)
	}
	return leg
}

func (j *work) prefill(params map[string]any) {
	leg := j.checkLeg(params, trust.LegPrefill)
	if fmt.Sprintf("%x", leg.ID) != params["meridian_transfer"] {
		j.s.t.Errorf("%s: the leg is for %x, the transfer is %v", j.s.id, leg.ID, params["meridian_transfer"])
	}
	if j.max-len(j.resume) != 1 || j.stream {
		j.s.t.Errorf("%s: a prefill leg of %d tokens, streamed %v", j.s.id, j.max, j.stream)
	}
	time.Sleep(j.h.slowPrefill)
	ticket := fmt.Sprintf("ticket of %s for %x", j.s.id, leg.ID)
	if j.h.noTicket {
		fmt.Fprint(j.w, `{"id":"p","choices":[],"meridian":{"kv":"found","kv_tokens":48},"kv_transfer_params":null}`)
		return
	}
	j.s.shared.mu.Lock()
	if _, twice := j.s.shared.used[ticket]; twice {
		j.s.t.Errorf("%s: a second offer under one id", ticket)
	}
	j.s.shared.used[ticket] = false
	j.s.shared.mu.Unlock()
	if j.h.offersMute {
		<-j.r.Context().Done()
		return
	}
	fmt.Fprintf(j.w, `{"id":"p","choices":[],"meridian":{"kv":"found","kv_tokens":48%s},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"meridian_ticket":%q,"extra":[1,{"a":"b"}]}}`,
		j.h.spared, base64.StdEncoding.EncodeToString([]byte(ticket)))
}

// redeem takes a ticket; one that was used opens nothing. For what was promised
// it waits, and returns false where its client did not.
func (j *work) redeem(params map[string]any) bool {
	leg := j.checkLeg(params, trust.LegDecode)
	text, _ := params["meridian_ticket"].(string)
	ticket, _ := base64.StdEncoding.DecodeString(text)
	if trust.IsPromise(ticket) {
		promise, err := trust.OpenPromise(ticket, j.s.key)
		if err != nil || promise.ID != leg.ID {
			j.s.t.Errorf("%s: a promise of %x in a leg of %x: %v", j.s.id, promise.ID, leg.ID, err)
		}
		ticket = fmt.Appendf(nil, "ticket of %s for %x", promise.Home, promise.ID)
		if !j.s.shared.await(j.s.t, j.r.Context(), string(ticket)) {
			return false
		}
	} else if params["extra"] == nil {
		j.s.t.Errorf("%s: what the prefill engine sent did not come whole: %v", j.s.id, params)
	}
	j.s.shared.mu.Lock()
	defer j.s.shared.mu.Unlock()
	used, known := j.s.shared.used[string(ticket)]
	switch {
	case !known || used:
		j.kv, j.why = "local", "the ticket was used up"
	default:
		j.s.shared.used[string(ticket)] = true
		j.kv = "handoff"
	}
	return true
}

func (s *stubTickets) giveBack(ticket any) {
	plain, _ := base64.StdEncoding.DecodeString(fmt.Sprint(ticket))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = append(s.returned, string(plain))
}

func (s *stubTickets) givenBack() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.returned)
}

// await waits for an offer, and tells whether it came.
func (s *stubTickets) await(t testing.TB, ctx context.Context, ticket string) (known bool) {
	until.True(t, "an offer comes, or its client goes", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, known = s.used[ticket]
		return known || ctx.Err() != nil
	})
	return known
}
