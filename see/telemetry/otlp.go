package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

const defaultOTLPInterval = 15 * time.Second

// export sends to a collector what Prometheus would scrape, and spans.
type export struct {
	metrics *metric.MeterProvider
	traces  *trace.TracerProvider
}

// openExport does not wait for the collector: one that is down costs samples,
// never a start.
func openExport(ctx context.Context, o Options, all prometheus.Gatherer) (*export, error) {
	base := strings.TrimRight(o.OTLPEndpoint, "/")
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("telemetry: OTLP traces to %s: %w", o.OTLPEndpoint, err)
	}
	who := resource.NewSchemaless(
		attribute.String("service.name", "meridian"),
		attribute.String("service.version", o.Build.Version),
		attribute.String("service.instance.id", o.Instance),
	)
	traces := trace.NewTracerProvider(trace.WithBatcher(spans), trace.WithResource(who), trace.WithIDGenerator(given{}), trace.WithSampler(trace.AlwaysSample()))
	samples, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"))
	if err != nil {
		err = fmt.Errorf("telemetry: OTLP metrics to %s: %w", o.OTLPEndpoint, err)
		return nil, errors.Join(err, traces.Shutdown(ctx))
	}
	interval := cmp.Or(o.OTLPInterval, defaultOTLPInterval)
	reader := metric.NewPeriodicReader(samples, metric.WithInterval(interval),
		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(all))))
	return &export{
		metrics: metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(who)),
		traces:  traces,
	}, nil
}

func (e *export) close(ctx context.Context) error {
	return errors.Join(e.traces.Shutdown(ctx), e.metrics.Shutdown(ctx))
}
