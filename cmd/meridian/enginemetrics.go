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
	t, err := telemetry.Open(ctx, telemetry.Options{
		Build: telemetryBuild(), OTLPEndpoint: otlp, Logger: logger,
		Sources: []telemetry.Source{telemetry.Of(e.Stats)},
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Handler(logger))
	mux.Handle("/", e.Handler())
	return mux, t, nil
}
