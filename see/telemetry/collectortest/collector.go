// Package collectortest is a collector of OpenTelemetry traces for tests: a server
// that decodes OTLP as the protocol's own definitions have it, and draws what came.
//
//	POST /v1/traces     spans, as exporters send them
//	POST /v1/metrics    taken, and not looked at
//	GET  /traces        all of them, each after a line with its id
//	GET  /traces/ID     the spans of a trace as a tree, one a line, siblings by name
package collectortest

import (
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector remembers every span that it was sent.
type Collector struct {
	mu    sync.Mutex // protects what follows
	spans map[string][]span
}

type span struct {
	*traces.Span
	instance string // the process that it came from
}

const maxBody = 16 << 20

// Handler serves a collector.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.take)
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/x-protobuf") })
	mux.HandleFunc("GET /traces/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, c.Tree(r.PathValue("id"))) })
	mux.HandleFunc("GET /traces", func(w http.ResponseWriter, _ *http.Request) {
		for _, id := range c.traces() {
			fmt.Fprintf(w, "trace %s\n%s", id, c.Tree(id))
		}
	})
	return mux
}

func (c *Collector) traces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.spans))
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = http.MaxBytesReader(w, r.Body, maxBody)
	var err error
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(body)
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, maxBody))
	}
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.add(&request)
	answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

func (c *Collector) add(request *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spans == nil {
		c.spans = make(map[string][]span)
	}
	for _, resource := range request.ResourceSpans {
		instance := valueOf(resource.GetResource().GetAttributes(), "service.instance.id")
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				id := hex.EncodeToString(s.TraceId)
				c.spans[id] = append(c.spans[id], span{s, instance})
			}
		}
	}
}

// Tree draws a trace. A span whose parent has not come, or is another program's,
// stands at the left, with its parent's id.
func (c *Collector) Tree(trace string) string {
	c.mu.Lock()
	all := slices.Clone(c.spans[trace])
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano), slices.Compare(a.SpanId, b.SpanId))
	})
	known := make(map[string]bool)
	for _, s := range all {
		known[string(s.SpanId)] = true
	}
	var b strings.Builder
	var below func(parent string, depth int)
	below = func(parent string, depth int) {
		for _, s := range all {
			if string(s.ParentSpanId) != parent && (depth > 0 || known[string(s.ParentSpanId)]) {
				continue
			}
			s.draw(&b, depth)
			below(string(s.SpanId), depth+1)
		}
	}
	below("", 0)
	return b.String()
}

func (s span) draw(b *strings.Builder, depth int) {
	fmt.Fprintf(b, "%s%s of %s, %.3f ms", strings.Repeat("  ", depth), s.Name, s.instance, float64(s.EndTimeUnixNano-s.StartTimeUnixNano)/1e6)
	if depth == 0 && len(s.ParentSpanId) > 0 {
		fmt.Fprintf(b, ", below %x", s.ParentSpanId)
	}
	attributes := s.Attributes
	slices.SortFunc(attributes, func(a, b *common.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	for _, a := range attributes {
		fmt.Fprintf(b, ", %s=%s", a.Key, text(a.Value))
	}
	for _, e := range s.Events {
		fmt.Fprintf(b, ", %s{%s}", e.Name, valueOf(e.Attributes, "kind"))
	}
	if s.GetStatus().GetCode() == traces.Status_STATUS_CODE_ERROR {
		fmt.Fprintf(b, ", failed: %s", s.Status.Message)
	}
	b.WriteByte('\n')
}

func valueOf(attributes []*common.KeyValue, name string) string {
	for _, a := range attributes {
		if a.Key == name {
			return text(a.Value)
		}
	}
	return ""
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	}
	return ""
}
