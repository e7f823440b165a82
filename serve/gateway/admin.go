package gateway

import (
	"net/http"
	"net/http/pprof"

	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/roster"
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
	return edge.WithinTime(edge.HeaderTimeout, g.adminKeys.GuardAdmin(mux, g.options.adminTLS))
}

// health says how the gateway is, part by part.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	why := g.unready()
	status := http.StatusOK
	if why != "" {
		status = http.StatusServiceUnavailable
	}
	m := g.Metrics()
	edge.WriteJSON(w, status, map[string]any{
		"ready": why == "", "reason": why, "models": g.roster.Models(), "directory_known": m.DirectoryKnown,
		"reading": m.Reading, "waiting": m.Waiting, "running": m.Running, "connections": m.Connections, "engines": g.Engines(),
	})
}

// EngineState is an engine as pages show it.
type EngineState = roster.EngineState

// Engines are those that the gateway knows, as they are now.
func (g *Gateway) Engines() []EngineState { return g.roster.States() }

func (g *Gateway) debugEngines(w http.ResponseWriter, _ *http.Request) {
	edge.WriteJSON(w, http.StatusOK, map[string]any{"engines": g.Engines()})
}

// latestShown is how many requests the debug page tells of.
const latestShown = 100

func (g *Gateway) debugRequests(w http.ResponseWriter, _ *http.Request) {
	edge.WriteJSON(w, http.StatusOK, map[string]any{"running": g.running.list(), "latest": g.ledger.Latest(latestShown)})
}

func (g *Gateway) debugRequest(w http.ResponseWriter, r *http.Request) {
	record, err := g.ledger.Find(r.PathValue("id"))
	if err != nil {
		fault := openai.Invalid("", "%v", err)
		fault.Status = http.StatusNotFound
		fault.Write(w)
		return
	}
	edge.WriteJSON(w, http.StatusOK, record)
}
