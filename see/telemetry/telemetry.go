// Package telemetry shows what the other rooms did: logs, Prometheus metrics,
// and OpenTelemetry where an operator asks for it. It only reads. Rooms hand
// out numbers through a Source and never import a metrics library themselves:
//
//	room.Metrics() ──► Source ──► Sink ──┬──► /metrics        (Prometheus)
//	                              │      └──► OTLP /v1/metrics (off by default)
//	                         Catalogue: what is not listed there is refused
//	finished records ─► Span ─► Trace ──────► OTLP /v1/traces  (off by default)
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build says which program this is.
type Build struct {
	Version, Commit, Go string
}

// Options configures Open.
type Options struct {
	Build Build
	// Listen is the address of /metrics; empty means none. ElseFree takes any other
	// port of that host where this one is taken.
	Listen   string
	ElseFree bool
	// OTLPEndpoint is the base URL of a collector; empty means none.
	OTLPEndpoint string
	// OTLPInterval is how often metrics are sent; 0 means every 15 s.
	OTLPInterval time.Duration
	// Instance tells this process from others of the cell, to a collector.
	Instance string
	Sources  []Source
	Logger   *slog.Logger
}

// Telemetry is an open endpoint and an open export.
type Telemetry struct {
	registry *prometheus.Registry // of the process: Go's runtime, and what the kernel knows
	all      gatherer             // the registry's, and the sources'
	listener net.Listener
	server   *http.Server
	served   chan error
	export   *export
	closing  sync.Once
	closed   error
}

// ErrUndelivered means that a collector did not take the last of what there was. For
// the process that is no failure: it did its work.
var ErrUndelivered = errors.New("telemetry: the collector did not take everything")

// Open starts what Options ask for. The endpoint answers when Open returns.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	t := &Telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.all = gatherer{t.registry, append([]Source{o.Build.source}, o.Sources...)}
	if o.Listen != "" {
		if err := t.serve(ctx, o); err != nil {
			return nil, err
		}
	}
	if o.OTLPEndpoint != "" {
		var err error
		if t.export, err = openExport(ctx, o, t.all); err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
	}
	return t, nil
}

func (b Build) source(s *Sink) {
	s.Value("meridian_build_info", 1, b.Version, b.Commit, b.Go)
}

func (t *Telemetry) serve(ctx context.Context, o Options) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if host, _, problem := net.SplitHostPort(o.Listen); o.ElseFree && problem == nil && errors.Is(err, syscall.EADDRINUSE) {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err == nil {
			o.Logger.Warn("the usual port of metrics is taken, by another agent perhaps: another one is used; telemetry.prometheus_listen names one", "usual", o.Listen, "used", listener.Addr().String())
		}
	}
	if err != nil {
		return fmt.Errorf("telemetry: cannot serve metrics on %s: %w", o.Listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Handler(o.Logger))
	t.listener = listener
	t.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	t.served = make(chan error, 1)
	go func() { t.served <- t.server.Serve(listener) }()
	return nil
}

// Handler serves the metrics, for a listener of the caller's.
func (t *Telemetry) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(t.all, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError),
		// One bad number must not hide the others from an operator.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 8,
		Registry:            t.registry,
		EnableOpenMetrics:   true, // exemplars travel in nothing else
		// Prometheus asks for gzip, which would cost as much CPU as all the rest of a
		// scrape, on hosts whose CPUs move caches; what it saves is 50 bytes a series.
		DisableCompression: true,
	})
}

// Addr is where /metrics is served, or "" when it is not.
func (t *Telemetry) Addr() string {
	if t.listener == nil {
		return ""
	}
	return t.listener.Addr().String()
}

// Close sends what is left, stops the endpoint and waits for both, no longer
// than ctx allows. Closing again only returns what the first Close did.
func (t *Telemetry) Close(ctx context.Context) error {
	t.closing.Do(func() { t.closed = t.close(ctx) })
	return t.closed
}

func (t *Telemetry) close(ctx context.Context) error {
	var errs []error
	if t.export != nil {
		if err := t.export.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrUndelivered, err))
		}
	}
	if t.server != nil {
		if err := t.server.Shutdown(ctx); err != nil {
			errs = append(errs, err, t.server.Close())
		}
		if err := <-t.served; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
