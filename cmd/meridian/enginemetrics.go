package main

import (
	"context"
	"log/slog"
	"net/http"

	"meridian/engine"
	"meridian/see/telemetry"
)

// engineWithMetrics is an engine's HTTP face with its numbers at /metrics, as servers
// of vLLM have theirs.
func engineWithMetrics(ctx context.Context, e *engine.Engine, otlp string, logger *slog.Logger) (http.Handler, *telemetry.Telemetry, error) {
	b := thisBuild()
	t, err := telemetry.Open(ctx, telemetry.Options{
		Build: telemetry.Build{Version: b.Version, Commit: b.Commit, Go: b.Go}, OTLPEndpoint: otlp, Logger: logger,
		Sources: []telemetry.Source{engineSource(e)},
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Handler(logger))
	mux.Handle("/", e.Handler())
	return mux, t, nil
}

// engineSource hands a reference engine's numbers to telemetry.
func engineSource(e *engine.Engine) telemetry.Source {
	return func(s *telemetry.Sink) {
		now := e.Stats()
		s.Value("meridian_engine_requests", float64(now.Running), "running")
		s.Value("meridian_engine_requests", float64(now.Fetching), "fetching")
		s.Value("meridian_engine_requests", float64(now.Waiting), "waiting")
		b, c := now.Blocks, now.Counters
		s.Value("meridian_engine_blocks", float64(b.Total-b.Free-b.Cached), "used")
		s.Value("meridian_engine_blocks", float64(b.Cached), "cached")
		s.Value("meridian_engine_blocks", float64(b.Free), "free")
		s.Value("meridian_engine_blocks_held", float64(b.Held))
		s.Value("meridian_engine_requests_ended_total", float64(c.Finished), "finished")
		s.Value("meridian_engine_requests_ended_total", float64(c.Cancelled), "cancelled")
		s.Value("meridian_engine_requests_ended_total", float64(c.Failed), "failed")
		s.Value("meridian_engine_tokens_total", float64(c.Prompt), "prompt")
		s.Value("meridian_engine_tokens_total", float64(c.Computed), "computed")
		s.Value("meridian_engine_tokens_total", float64(c.Generated), "generated")
		s.Value("meridian_engine_handoffs_total", float64(c.Ready), "ready")
		s.Value("meridian_engine_handoffs_total", float64(c.Broken), "failed")
		s.Value("meridian_engine_handoffs_total", float64(c.Local), "local")
		s.Value("meridian_engine_offers_total", float64(c.Offered), "taken")
		s.Value("meridian_engine_offers_total", float64(c.Declined), "declined")
		s.Value("meridian_engine_preempted_total", float64(c.Preempted))
		s.Value("meridian_engine_steps_total", float64(c.Steps))
	}
}
