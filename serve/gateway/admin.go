package gateway

import (
	"net/http"
	"net/http/pprof"

	"meridian/serve/openai"
)

// adminHandler shows numbers, health and what is going on. It only shows, but for
// prompts that are computed ahead and requests that are moved, and nothing that it shows is text of a prompt or an
// answer.
func (g *Gateway) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", g.health)
	mux.HandleFunc("GET /ready", g.ready)
	if g.options.MetricsPage != nil {
		mux.Handle("GET /metrics", g.options.MetricsPage)
	}
	if g.options.Page != nil {
		mux.Handle("GET "+g.options.PagePath, g.options.Page)
		mux.Handle("GET /{$}", http.RedirectHandler(g.options.PagePath, http.StatusFound))
	}
	mux.HandleFunc("GET /debug/requests", g.debugRequests)
	mux.HandleFunc("GET /debug/requests/{id}", g.debugRequest)
	mux.HandleFunc("GET /debug/records", g.debugRecords)
	mux.HandleFunc("GET /debug/engines", g.debugEngines)
	mux.HandleFunc("POST "+PathWarm, g.warmPrompt)
	mux.HandleFunc("POST /requests/{id}/move", g.moveRequest)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	// Profiles take as long as they are asked to.
	return withinTime(headerTimeout, g.guarded(mux))
}

// health says how the gateway is, part by part.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	why := g.unready()
	status := http.StatusOK
	if why != "" {
		status = http.StatusServiceUnavailable
	}
	m := g.Metrics()
	writeJSON(w, status, map[string]any{
		"ready": why == "", "reason": why, "models": g.roster.models(), "directory_known": m.DirectoryKnown,
		"reading": m.Reading, "waiting": m.Waiting, "running": m.Running, "connections": m.Connections, "engines": g.Engines(),
	})
}

// EngineState is an engine as pages show it.
type EngineState struct {
	ID      string   `json:"id"`
	URL     string   `json:"url"`
	Role    string   `json:"role"`
	Kind    string   `json:"kind"`
	Models  []string `json:"models"`
	Cut     string   `json:"cut,omitempty"`
	Agent   string   `json:"agent,omitempty"` // its home
	Listed  bool     `json:"listed"`
	Phases  string   `json:"phases"`
	Up      bool     `json:"up"`
	Problem string   `json:"problem,omitempty"`
	Running int64    `json:"running"`
	Waiting int64    `json:"waiting_tokens"`
	Served  uint64   `json:"served"`
	Failed  uint64   `json:"failed"`
	// CacheTokens is a piece of a prefix that it shares with others, 0 where it does not.
	CacheTokens int64 `json:"cache_tokens,omitempty"`
	// StoredWeight is what a token costs that it fetches against one that it computes, as
	// its answers tell; 0 where they do not yet.
	StoredWeight float64 `json:"stored_token_weight,omitempty"`
	// Caches is what it says of its caches, rank by rank.
	Caches []cacheState `json:"caches,omitempty"`
}

// Engines are those that the gateway knows, as they are now.
func (g *Gateway) Engines() []EngineState {
	states := []EngineState{}
	for _, e := range g.roster.all() {
		a := e.about.Load()
		s := EngineState{
			ID: a.id, URL: e.url, Role: e.role.String(), Kind: a.kind.String(), Models: a.models, Cut: e.cut, Listed: e.listed, Phases: e.phases.String(), Up: e.up.Load(),
			Running: e.running.Load(), Waiting: e.waiting.Load(), Served: e.served.Load(), Failed: e.failed.Load(),
			Caches: cacheStates(g.roster.cachesOf(e)), CacheTokens: e.unit.Load(), StoredWeight: g.roster.storedWeight(e),
		}
		if home := e.home.Load(); home != nil {
			s.Agent = home.name
		}
		if why := e.problem.Load(); why != nil {
			s.Problem = *why
		}
		states = append(states, s)
	}
	return states
}

func (g *Gateway) debugEngines(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"engines": g.Engines()})
}

// latestShown is how many requests the debug page tells of.
const latestShown = 100

func (g *Gateway) debugRequests(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"running": g.running.list(), "latest": g.ledger.Latest(latestShown)})
}

func (g *Gateway) debugRequest(w http.ResponseWriter, r *http.Request) {
	record, err := g.ledger.Find(r.PathValue("id"))
	if err != nil {
		fault := openai.Invalid("", "%v", err)
		fault.Status = http.StatusNotFound
		fault.Write(w)
		return
	}
	writeJSON(w, http.StatusOK, record)
}
