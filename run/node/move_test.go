package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/engine"
	"meridian/internal/until"
	"meridian/member/directory/etcd/embedded"
	"meridian/see/ledger"
	"meridian/serve/door"
	"meridian/serve/openai"
)

// realCell is agents, engines and a gateway as they run, in one process.
type realCell struct {
	t       *testing.T
	agents  []*Agent // of the engines, in their order
	engines []*realEngine
	gateway *Gateway
	client  *http.Client
}

// realEngine is one that can be told to break off.
type realEngine struct {
	*engine.Engine
	id  string
	url string
	// cut is asked before each piece of an answer, and of its request: true breaks the
	// connection off, as a process that is killed does.
	cut atomic.Pointer[func(request, piece []byte) bool]
	// hold keeps it from computing.
	hold sync.Mutex
}

// cutWriter is an answer that can be broken off.
type cutWriter struct {
	http.ResponseWriter
	engine  *realEngine
	request []byte
	broken  bool
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(piece []byte) (int, error) {
	cut := w.engine.cut.Load()
	if w.broken = w.broken || cut != nil && (*cut)(w.request, piece); w.broken {
		return 0, io.ErrClosedPipe
	}
	return w.ResponseWriter.Write(piece)
}

// openCell starts engines that share a model, and everything around them.
func openCell(t *testing.T, engines int, change func(*GatewayOptions)) *realCell {
	t.Helper()
	return openCellOf(t, engines, change, func(int, *engine.Options) {})
}

// openCellOf is the same with engines that are not alike.
func openCellOf(t *testing.T, engines int, change func(*GatewayOptions), differs func(i int, o *engine.Options)) *realCell {
	t.Helper()
	return openCellAt(t, engines, Door{RequireLeg: true}, change, differs)
}

// openCellAt is the same at doors of one kind.
func openCellAt(t *testing.T, engines int, at Door, change func(*GatewayOptions), differs func(i int, o *engine.Options)) *realCell {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	directory, err := embedded.Open(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	c := &realCell{t: t, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(c.client.CloseIdleConnections)
	for i := range engines {
		c.engines = append(c.engines, c.openEngine(ctx, dir, at, i, differs))
	}
	o := GatewayOptions{StateDir: dir}
	o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
	o.Place, o.ProbeInterval = placement.Options{DirectTokens: 1 << 20, RunningTokens: 64}, 20*time.Millisecond
	change(&o)
	if c.gateway, err = OpenGateway(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.gateway.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	until.True(c.t, "all engines are known", func() bool {
		up := 0
		for _, e := range c.gateway.Engines() {
			if e.Up {
				up++
			}
		}
		return up == engines
	})
	return c
}

func (c *realCell) openEngine(ctx context.Context, dir string, at Door, i int, differs func(i int, o *engine.Options)) *realEngine {
	t := c.t
	t.Helper()
	name := fmt.Sprintf("a%d", i)
	n, err := OpenAgent(ctx, AgentOptions{Name: name, StateDir: dir, Listen: "127.0.0.1:0", Door: &at})
	if err != nil {
		t.Fatal(err)
	}
	c.agents = append(c.agents, n)
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &realEngine{id: fmt.Sprintf("e%d", i), url: "http://" + listener.Addr().String()}
	o := engine.Options{
		ID: e.id, Model: "tiny", ServedName: "m", Reasoning: true, Blocks: 512, BlockTokens: 16, TP: 1 + i%2, Door: door.Socket(dir, name), URL: e.url, Role: engine.RoleDecode,
		OnStep: func(engine.Step) {
			time.Sleep(time.Millisecond) // it still runs when it is asked to let go
			e.hold.Lock()
			defer e.hold.Unlock()
		},
	}
	differs(i, &o)
	if e.Engine, err = engine.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	handler := e.Handler()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(request))
		answer := &cutWriter{ResponseWriter: w, engine: e, request: request}
		handler.ServeHTTP(answer, r)
		if answer.broken {
			panic(http.ErrAbortHandler)
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		serving.Wait()
	})
	return e
}

func (c *realCell) post(url, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return response
}

// heard is an answer as its client has it.
type heard struct {
	id, placement string
	tokens        []uint32
	text, thought string
	finish        string
	usage         *openai.Usage
}

// ask asks for a streamed chat, and tells at after each event how many tokens there are.
func (c *realCell) ask(body string, at func(id string, tokens int)) heard {
	c.t.Helper()
	return c.askWhile(body, func(h *heard) bool {
		at(h.id, len(h.tokens))
		return true
	})
}

// askWhile asks for a streamed chat, and goes away when wants is false after an event.
func (c *realCell) askWhile(body string, wants func(h *heard) bool) heard {
	c.t.Helper()
	response := c.post("http://"+c.gateway.Addr()+openai.PathChat, body)
	defer response.Body.Close()
	h := heard{id: response.Header.Get("X-Meridian-Request-Id"), placement: response.Header.Get("X-Meridian-Placement")}
	events := openai.NewEventReader(response.Body, 1<<20)
	var ids []string
	for {
		data, err := events.Next()
		if err != nil {
			c.t.Errorf("status %d, after %d tokens: %v", response.StatusCode, len(h.tokens), err)
			return h
		}
		if string(data) == openai.Done {
			break
		}
		var chunk openai.ChatChunk
		if err := json.Unmarshal(data, &chunk); err != nil || bytes.Contains(data, []byte(`"meridian":`)) || bytes.Contains(data, []byte("kv_transfer")) || bytes.Contains(data, []byte("moved")) || bytes.Contains(data, []byte(`"error"`)) {
			c.t.Errorf("%v in %.500s", err, data)
			return h
		}
		if ids = append(ids, chunk.ID); ids[0] != chunk.ID {
			c.t.Errorf("one stream has the ids %s and %s", ids[0], chunk.ID)
		}
		if chunk.Usage != nil {
			if h.usage != nil {
				c.t.Error("usage is told twice")
			}
			h.usage = chunk.Usage
		}
		for _, choice := range chunk.Choices {
			if h.finish != "" {
				c.t.Error("it goes on after its end")
			}
			if choice.TokenIDs != nil {
				h.tokens = append(h.tokens, *choice.TokenIDs...)
			}
			if choice.Delta.Content != nil {
				h.text += *choice.Delta.Content
			}
			if choice.Delta.ReasoningContent != nil {
				h.thought += *choice.Delta.ReasoningContent
			}
			if choice.FinishReason != nil {
				h.finish = *choice.FinishReason
			}
		}
		if !wants(&h) {
			return heard{id: h.id}
		}
	}
	return h
}

// alone is the answer that one engine gives, which no gateway had a part in.
func (c *realCell) alone(body string) heard {
	c.t.Helper()
	response := c.post(c.engines[0].url+openai.PathChat, strings.Replace(body, `"stream":true,"stream_options":{"include_usage":true},`, "", 1))
	defer response.Body.Close()
	var whole openai.Chat
	if err := json.NewDecoder(response.Body).Decode(&whole); err != nil || len(whole.Choices) != 1 {
		c.t.Fatalf("%v, %+v", err, whole)
	}
	choice := whole.Choices[0]
	h := heard{tokens: *choice.TokenIDs, text: *choice.Message.Content, finish: *choice.FinishReason, usage: whole.Usage}
	if choice.Message.ReasoningContent != nil {
		h.thought = *choice.Message.ReasoningContent
	}
	return h
}

func (c *realCell) same(what string, got, want heard) {
	c.t.Helper()
	if !slices.Equal(got.tokens, want.tokens) || got.text != want.text || got.thought != want.thought || got.finish != want.finish {
		n := 0
		for n < min(len(got.tokens), len(want.tokens)) && got.tokens[n] == want.tokens[n] {
			n++
		}
		c.t.Errorf("%s: %d tokens, ended by %s, want %d, %s; token %d differs", what, len(got.tokens), got.finish, len(want.tokens), want.finish, n)
	}
	if got.usage == nil || got.usage.PromptTokens != want.usage.PromptTokens || got.usage.CompletionTokens != want.usage.CompletionTokens ||
		got.usage.OutputDetails.ReasoningTokens != want.usage.OutputDetails.ReasoningTokens {
		c.t.Errorf("%s: usage %+v, want %+v", what, got.usage, want.usage)
	}
}

// record waits for what the gateway keeps of a request.
func (c *realCell) record(id string) *ledger.Record {
	c.t.Helper()
	var record *ledger.Record
	until.True(c.t, "the record", func() bool {
		var err error
		record, err = c.gateway.records.Find(id)
		return err == nil
	})
	return record
}

// rest waits until no engine holds or computes anything.
func (c *realCell) rest() {
	c.t.Helper()
	for _, e := range c.engines {
		until.True(c.t, e.id+" rests", func() bool {
			s := e.Stats()
			return s.Blocks.Held == 0 && s.Blocks.Free+s.Blocks.Cached == s.Blocks.Total && s.Running+s.Waiting+s.Fetching == 0
		})
	}
}

func (c *realCell) move(id string) (status int) {
	response := c.post("http://"+c.gateway.AdminAddr()+"/requests/"+id+"/move", "{}")
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func chatOf(seed, words, tokens int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"seed":%d,"temperature":1.2,"frequency_penalty":0.3,"max_tokens":%d,"think_tokens":20,"ignore_eos":true,`+
		`"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`, fmt.Sprintf("request %d ", seed)+strings.Repeat("word ", words), seed, tokens)
}

// Sampled answers that move at random tokens, some of them several times, are the ones that
// stay, and every engine comes to rest.
func TestMovesAtRandomTokens(t *testing.T) {
	c := openCell(t, 3, func(*GatewayOptions) {})
	const requests = 8
	var all sync.WaitGroup
	answers := make([]heard, requests)
	for i := range requests {
		dice := rand.New(rand.NewPCG(uint64(i), 2))
		all.Go(func() {
			next := 1 + dice.IntN(20)
			answers[i] = c.ask(chatOf(i, 30, 120), func(id string, tokens int) {
				if tokens >= next && tokens < 100 {
					if status := c.move(id); status != http.StatusAccepted && status != http.StatusNotFound {
						t.Errorf("a move is answered with status %d", status)
					}
					next = tokens + 3 + dice.IntN(30)
				}
			})
		})
	}
	all.Wait()
	moves, handed := 0, 0
	for i, got := range answers {
		c.same(fmt.Sprintf("request %d", i), got, c.alone(chatOf(i, 30, 120)))
		record := c.record(got.id)
		if record.Resumed > 0 {
			t.Errorf("request %d was resumed, and no engine was lost:\n%s", i, record)
		}
		for _, m := range record.Moves {
			moves++
			if m.From == m.To || m.GapMs <= 0 || m.Why != "operator" || m.Tokens < 1 {
				t.Errorf("%+v", m)
			}
			if m.KV == openai.KVHandoff {
				handed++
			}
		}
	}
	if moves < requests || handed < moves/2 {
		t.Errorf("%d moves, %d with their cache: the test tests too little", moves, handed)
	}
	if counted := c.gateway.Metrics().Moves["operator"]; counted["moved"]+counted["recomputed"] != uint64(moves) {
		t.Errorf("%d moves, counted: %v", moves, counted)
	}
	c.rest()
}

// A receiver that dies with the ticket in its hand, or in the middle of what it says, and a
// mover that dies when it should say that the request has left: the client notices nothing.
func TestMoveWhoseEngineDies(t *testing.T) {
	var pieces atomic.Int64
	for name, dies := range map[string]func(request, piece []byte) bool{
		"the receiver, at once": func(request, _ []byte) bool { return bytes.Contains(request, []byte("meridian_ticket")) },
		"the receiver, after some tokens": func(request, piece []byte) bool {
			return bytes.Contains(request, []byte("meridian_ticket")) && bytes.Contains(piece, []byte(`"token_ids":[`)) && pieces.Add(1) == 2
		},
		"the mover, at its last word": func(_, piece []byte) bool { return bytes.Contains(piece, []byte(`"moved"`)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := openCell(t, 3, func(*GatewayOptions) {})
			body := chatOf(7, 30, 80)
			want := c.alone(body)
			var dead atomic.Bool
			once := func(request, piece []byte) bool { return dies(request, piece) && dead.CompareAndSwap(false, true) }
			for _, e := range c.engines {
				e.cut.Store(&once)
			}
			asked := false
			got := c.ask(body, func(id string, tokens int) {
				if tokens >= 10 && !asked {
					asked = true
					if status := c.move(id); status != http.StatusAccepted {
						t.Errorf("status %d", status)
					}
				}
			})
			c.same(name, got, want)
			if record := c.record(got.id); !dead.Load() || record.Resumed != 1 {
				t.Errorf("died: %v\n%s", dead.Load(), record)
			}
			c.rest()
		})
	}
}

// The requests of an engine that is told to end go on elsewhere, at once.
func TestDrainMovesRequests(t *testing.T) {
	c := openCell(t, 2, func(*GatewayOptions) {})
	const requests = 6
	var all, begun sync.WaitGroup
	answers := make([]heard, requests)
	begun.Add(requests)
	for i := range requests {
		all.Go(func() {
			told := false
			answers[i] = c.ask(chatOf(i, 30, 500), func(_ string, tokens int) {
				if tokens > 0 && !told {
					told = true
					begun.Done()
				}
			})
		})
	}
	begun.Wait()
	if err := c.engines[1].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	moved := 0
	for i, got := range answers {
		c.same(fmt.Sprintf("request %d", i), got, c.alone(chatOf(i, 30, 500)))
		record := c.record(got.id)
		for _, m := range record.Moves {
			if moved++; m.Why != "drain" || m.From != "e1" || m.To != "e0" {
				t.Errorf("%+v", m)
			}
		}
		if record.Resumed > 0 {
			t.Errorf("%s", record)
		}
	}
	if moved == 0 {
		t.Error("no request moved")
	}
}

// Where that is turned on, a request whose thought has ended leaves for an engine that has
// less to do, and the next one stays, as both have as much to do then.
func TestMovesAtTheEndOfAThought(t *testing.T) {
	c := openCell(t, 2, func(o *GatewayOptions) { o.MoveAtThinkEnd = true })
	first := c.engines[0]
	first.hold.Lock() // it computes nothing until the other's requests have gone
	const requests = 4
	var all sync.WaitGroup
	answers := make([]heard, requests)
	running := func() (all [2]int) {
		for i, e := range c.gateway.Engines() {
			all[i] = int(e.Running)
		}
		return all
	}
	placed := make(chan struct{})
	for i := range requests {
		all.Go(func() {
			answers[i] = c.askWhile(chatOf(i, 30, 100), func(h *heard) bool {
				<-placed
				return strings.Contains(h.placement, "decode=e0")
			})
		})
		until.True(c.t, "it is sent to an engine", func() bool { r := running(); return r[0]+r[1] == i+1 })
	}
	close(placed)
	until.True(c.t, "the others have gone", func() bool { return running() == [2]int{2, 0} })
	first.hold.Unlock()
	all.Wait()
	moved, stayed := 0, 0
	for i, got := range answers {
		if got.finish == "" {
			continue // one of those that went
		}
		c.same(fmt.Sprintf("request %d", i), got, c.alone(chatOf(i, 30, 100)))
		record := c.record(got.id)
		if len(record.Moves) == 0 {
			stayed++
			continue
		}
		moved++
		if m := record.Moves[0]; m.Why != "thought" || m.From != "e0" || m.To != "e1" || m.Tokens < 21 {
			t.Errorf("%+v", m)
		}
	}
	if moved != 1 || stayed != 1 {
		t.Errorf("%d moved, %d stayed", moved, stayed)
	}
}
