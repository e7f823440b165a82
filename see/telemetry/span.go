package telemetry

import (
	"context"
	"crypto/rand"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Span is one part of a trace, of something that is over: rooms leave records, and
// the process that has one makes spans of it.
type Span struct {
	Trace [16]byte
	ID    [8]byte
	// Parent is zeros for the first of a trace.
	Parent     [8]byte
	Name       string
	Kind       SpanKind
	Start, End time.Time
	// Attributes are texts, numbers and truths; others, and what is empty or zero, are
	// left out.
	Attributes map[string]any
	Events     []SpanEvent
	// Problem is why it failed, empty where it did not.
	Problem string
}

// SpanEvent is something that happened within a span.
type SpanEvent struct {
	Name       string
	At         time.Time
	Attributes map[string]any
}

// SpanKind is which side of a call a span tells of.
type SpanKind uint8

// The kinds: within a process, served, asked of another.
const (
	Internal SpanKind = iota
	Served
	Asked
)

// NewSpanID is for a span that came without one.
func NewSpanID() (id [8]byte) {
	for id == [8]byte{} {
		rand.Read(id[:])
	}
	return id
}

// Tracing tells whether spans go anywhere.
func (t *Telemetry) Tracing() bool { return t.export != nil }

// Trace sends spans to the collector, in batches and without waiting: what it does
// not take in time is dropped.
func (t *Telemetry) Trace(spans ...Span) {
	if t.export == nil {
		return
	}
	tracer := t.export.traces.Tracer("meridian")
	for i := range spans {
		s := &spans[i]
		ctx := context.WithValue(context.Background(), given{}, s)
		if s.Parent != [8]byte{} {
			ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: s.Trace, SpanID: s.Parent, TraceFlags: trace.FlagsSampled, Remote: true,
			}))
		}
		kind := [...]trace.SpanKind{trace.SpanKindInternal, trace.SpanKindServer, trace.SpanKindClient}[s.Kind]
		_, span := tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(attributes(s.Attributes)...))
		for _, e := range s.Events {
			span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(attributes(e.Attributes)...))
		}
		if s.Problem != "" {
			span.SetStatus(codes.Error, s.Problem)
		}
		span.End(trace.WithTimestamp(s.End))
	}
}

func attributes(all map[string]any) []attribute.KeyValue {
	var list []attribute.KeyValue
	for name, value := range all {
		switch v := value.(type) {
		case string:
			if v != "" {
				list = append(list, attribute.String(name, v))
			}
		case bool:
			list = append(list, attribute.Bool(name, v))
		case int:
			if v != 0 {
				list = append(list, attribute.Int(name, v))
			}
		case uint64:
			list = append(list, attribute.Int64(name, int64(min(v, 1<<63-1))))
		case float64:
			list = append(list, attribute.Float64(name, v))
		}
	}
	return list
}

// given hands the ids of a Span, which were chosen where the work was done, to the
// SDK, which would make up its own. As a key it finds the span in a context.
type given struct{}

// NewIDs are of the first span of a trace.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := ctx.Value(given{}).(*Span)
	return s.Trace, s.ID
}

// NewSpanID is of any other.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(given{}).(*Span).ID
}
