package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"meridian/member/trust"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

func (g *Gateway) publicHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", g.alive)
	mux.HandleFunc("GET /ready", g.ready)
	mux.HandleFunc("GET "+openai.PathModels, g.keys.Guard(g.models))
	mux.HandleFunc("GET "+openai.PathModels+"/{model...}", g.keys.Guard(g.model))
	mux.HandleFunc("POST "+openai.PathCompletions, g.keys.Guard(g.generate))
	mux.HandleFunc("POST "+openai.PathChat, g.keys.Guard(g.generate))
	mux.HandleFunc("GET /ping", g.alive)
	mux.HandleFunc("POST /ping", g.alive)
	for _, path := range g.options.ProxyPaths {
		mux.HandleFunc(path, g.keys.Guard(g.pass))
	}
	for _, path := range []string{openai.PathCompletions, openai.PathChat} {
		mux.HandleFunc(path, openai.OnlyBy(http.MethodPost))
	}
	for _, path := range []string{openai.PathModels, openai.PathModels + "/{model...}", "/health", "/ready"} {
		mux.HandleFunc(path, openai.OnlyBy(http.MethodGet))
	}
	mux.HandleFunc("/", unknownEndpoint(g.options.ProxyPaths))
	return edge.WithinTime(g.options.BodyTimeout, mux)
}

// endpoints are what there is, for those who look for something else.
const endpoints = "GET /v1/models, POST /v1/completions, POST /v1/chat/completions, GET /health and GET /ready"

func unknownEndpoint(passed []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fault := openai.Invalid("", "there is no %.16s %.256s here; there is %s", r.Method, r.URL.Path, endpoints)
		if len(passed) > 0 {
			fault.Message += ", and passed on to engines " + strings.Join(passed, ", ")
		}
		fault.Type, fault.Status = openai.TypeNotFound, http.StatusNotFound
		fault.Write(w)
	}
}

// tenantOf is who sends a request, by its API key.
func (g *Gateway) tenantOf(r *http.Request) string {
	name, digest, known := g.keys.TenantOf(r)
	if !known || name != "" || g.options.LegKey == nil {
		return name
	}
	return trust.TenantOfKey(*g.options.LegKey, digest)
}

// SetAPIKeys replaces the keys that let clients in: lines as Options.APIKeys has them. A door with keys is not
// opened to everybody, nor the other way round: that takes a restart.
func (g *Gateway) SetAPIKeys(keys []string) error {
	if hadKeys := g.keys.Any(); hadKeys != (len(keys) > 0) {
		return errors.New("gateway: whether API keys are asked for stays as it was at the start")
	}
	for _, line := range keys {
		if _, _, err := edge.SplitKey(line); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	g.keys.ReplaceLines(keys)
	return nil
}

func (g *Gateway) alive(w http.ResponseWriter, _ *http.Request) {
	edge.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready: at least one model can be served.
func (g *Gateway) ready(w http.ResponseWriter, _ *http.Request) {
	if why := g.unready(); why != "" {
		edge.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "not ready", "reason": why})
		return
	}
	edge.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (g *Gateway) unready() string {
	switch {
	case g.retiring.Load() || g.closing.Load():
		return "the gateway is stopping"
	case len(g.roster.Models()) == 0:
		return "no engine that decodes is there yet"
	case !g.roster.Ready():
		return "no engine that decodes answers"
	}
	return ""
}

func (g *Gateway) models(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Object string            `json:"object"`
		Data   []json.RawMessage `json:"data"`
	}{openai.ObjectList, []json.RawMessage{}}
	for _, name := range g.roster.Models() {
		list.Data = append(list.Data, g.modelNamed(name))
	}
	edge.WriteJSON(w, http.StatusOK, list)
}

// modelNamed is a model as its engine shows it. It always has a root, by which
// benchmarks find its tokenizer.
func (g *Gateway) modelNamed(name string) json.RawMessage {
	card := g.roster.Card(name)
	if card == nil {
		shown, err := json.Marshal(openai.Model{ID: name, Object: openai.ObjectModel, Created: g.opened.Unix(), OwnedBy: openai.OwnedByMeridian})
		if err != nil {
			panic(err) // texts and numbers
		}
		card = shown
	}
	view, isObject := openai.ViewBody(card)
	if !isObject || view.Has("root") {
		return card
	}
	return view.With(openai.Edit{Name: "root", Value: view.Get("id")})
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("model")
	served := g.roster.Models()
	if !slices.Contains(served, name) {
		openai.UnknownModel(name, served).Write(w)
		return
	}
	edge.WriteJSON(w, http.StatusOK, g.modelNamed(name))
}

// generate serves a request for tokens.
func (g *Gateway) generate(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := upstream.NewTransfer()
	record := &ledger.Record{ID: id.String(), Began: began, Endpoint: r.URL.Path}
	w.Header().Set(upstream.HeaderRequest, record.ID)
	record.ClientID = upstream.ClientID(r)
	trace := upstream.TraceOf(id, r, g.options.Traces, g.options.TraceFraction)
	record.Trace = trace.Record
	w.Header().Set(upstream.HeaderClientRequest, cmp.Or(record.ClientID, record.ID))
	x := &exchange{
		g: g, ctx: r.Context(), out: edge.NewWriter(w, r, g.options.ClientTimeout), trace: trace, body: g.admission.Body(), legs: upstream.Legs{ID: id},
		life: lifecycle.New(lifecycle.Options{ID: id, Record: record, Began: instant(began), Rules: g.options.rules()}),
	}
	defer g.complete(x)
	defer x.body.Release()
	if fault := x.admit(r); fault != nil {
		if fault.Status == http.StatusTooManyRequests {
			g.count.overloaded.Add(1)
		}
		x.fail(fault)
		return
	}
	defer g.admission.Leave()
	defer g.running.add(x)()
	x.run()
}

// admit reads and checks a request, and waits for its turn.
func (x *exchange) admit(r *http.Request) *openai.Error {
	if fault := x.take(r); fault != nil {
		return fault
	}
	if fault := x.g.admission.Enter(x.ctx); fault != nil {
		return fault
	}
	x.life.Admitted(instant(time.Now()))
	return nil
}

// take reads and checks a request, in one of the places for that.
func (x *exchange) take(r *http.Request) *openai.Error {
	g := x.g
	if fault := g.beginReading(); fault != nil {
		return fault
	}
	defer g.admission.DoneReading()
	fault := g.admission.ReadBody(&x.body, r, x.out)
	if fault != nil {
		return fault
	}
	if x.life.Request, fault = request.Parse(r.URL.Path, x.body.Data); fault != nil {
		return fault
	}
	if fault := g.resolve(x.life.Request); fault != nil {
		return fault
	}
	x.life.Request.LimitThought(g.options.Efforts, g.thinking(x.life.Request))
	x.life.Record.MaxThinkTokens = x.life.Request.MaxThink
	g.roster.Recall(x.life.Request)
	x.life.Request.Tenant = g.tenantOf(r)
	x.life.Request.Turn = g.turns.Add(1)
	x.life.Record.Model, x.life.Record.Stream = x.life.Request.Model, x.life.Request.Stream
	x.life.Record.Shape = g.shape(x.life.Request, r)
	x.legs = upstream.Legs{Request: x.life.Request, Key: g.options.LegKey, ID: x.legs.ID, Seed: newSeed(), Learns: g.roster.Learns(x.life.Request)}
	return nil
}

// beginReading takes a place for a request that is to be read, unless the gateway
// is stopping or full.
func (g *Gateway) beginReading() *openai.Error {
	if g.closing.Load() {
		fault := openai.Unavailable("the gateway is stopping")
		fault.RetryAfter = time.Second
		return fault
	}
	return g.admission.Read()
}

// resolve finds out which model is meant. A model that was served and is not
// now is worth waiting for; one that never was is not.
func (g *Gateway) resolve(c *request.Request) *openai.Error {
	served := g.roster.Models()
	if c.Model == "" && len(served) == 1 {
		return c.SetModel(served[0])
	}
	switch {
	case slices.Contains(served, c.Model):
		return nil
	case c.Model == "":
		return openai.Invalid("model", "model is missing; there is %q", served)
	case len(served) == 0 || g.roster.ServedOnce(c.Model):
		return nil // placement waits for it, and says so
	}
	return openai.UnknownModel(c.Model, served)
}

// complete counts and records a request that ended, however it did.
func (g *Gateway) complete(x *exchange) {
	r := x.life.Record
	g.ledger.Add(r) // first: who sees the count finds the record
	if g.options.Ended != nil {
		g.options.Ended(r)
	}
	g.logEnd(r)
	if i := slices.Index(outcomes, r.Outcome); i >= 0 {
		g.count.outcomes[i].Add(1)
	}
	g.count.promptTokens.Add(uint64(r.PromptTokens))
	g.count.outputTokens.Add(uint64(r.OutputTokens))
	g.count.observe(r)
}

// logEnd tells of a request in one line, with the ids by which other processes tell of
// it.
func (g *Gateway) logEnd(r *ledger.Record) {
	level := slog.LevelInfo
	if r.Outcome == ledger.Failed {
		level = slog.LevelWarn
	}
	if ctx := context.Background(); g.options.Logger.Enabled(ctx, level) {
		line := []any{
			"request", r.ID, "endpoint", r.Endpoint, "model", r.Model, "outcome", r.Outcome, "status", r.Status,
			"prompt_tokens", r.PromptTokens, "output_tokens", r.OutputTokens, "ms", r.Latency.TotalMs,
		}
		if r.ClientID != "" {
			line = append(line, "client", r.ClientID)
		}
		if transfers := r.Transfers(); len(transfers) > 0 {
			line = append(line, "transfers", transfers)
		}
		if r.Resumed > 0 {
			line = append(line, "resumed", r.Resumed)
		}
		if r.Problem != "" {
			line = append(line, "error", r.Problem)
		}
		g.options.Logger.Log(ctx, level, "a request has ended", line...)
	}
}

// newSeed is for clients that gave none, so that another engine can go on
// exactly.
func newSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 1)
}
