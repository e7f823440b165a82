package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReferenceIsInTheDocs(t *testing.T) {
	golden.Section(t, "../../docs/metrics.md", "catalogue", Reference())
}

func TestCatalogueIsSound(t *testing.T) {
	name := regexp.MustCompile(`^meridian_[a-z0-9_]+$`)
	seen := make(map[string]bool)
	for _, m := range Catalogue() {
		if !name.MatchString(m.Name) || seen[m.Name] {
			t.Errorf("%q is no name, or stands twice", m.Name)
		}
		seen[m.Name] = true
		if m.Help == "" || m.Action == "" || m.Unit == "" || !slices.Contains([]Type{Counter, Gauge, Histogram}, m.Type) {
			t.Errorf("%s lacks a type, a unit, a meaning or an action", m.Name)
		}
	}
}

func open(t *testing.T, o Options) *Telemetry {
	t.Helper()
	o.Build = Build{Version: "v1.2.3", Commit: "abc", Go: "go1.26"}
	tel, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := tel.Close(ctx); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return tel
}

func scrape(t *testing.T, tel *Telemetry) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + tel.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestScrape(t *testing.T) {
	tel := open(t, Options{Listen: "127.0.0.1:0", Sources: []Source{func(s *Sink) {
		s.Value("meridian_queue_depth", 3, "think")
		s.Value("meridian_budget_force_triggered", 7)
		s.Distribution("meridian_think_tokens_per_request", Distribution{Count: 3, Sum: 700, Buckets: map[float64]uint64{100: 1, 500: 3}})
	}}})
	status, body := scrape(t, tel)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	for _, line := range []string{
		`meridian_build_info{commit="abc",go="go1.26",version="v1.2.3"} 1`,
		`# TYPE meridian_queue_depth gauge`,
		`meridian_queue_depth{queue="think"} 3`,
		`# TYPE meridian_budget_force_triggered untyped`,
		`meridian_budget_force_triggered 7`,
		`meridian_think_tokens_per_request_bucket{le="100"} 1`,
		`meridian_think_tokens_per_request_sum 700`,
		`go_goroutines`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("the scrape lacks %s", line)
		}
	}
}

func TestWhatIsNotInTheCatalogueIsRefused(t *testing.T) {
	for name, source := range map[string]Source{
		"unknown name":        func(s *Sink) { s.Value("meridian_made_up", 1) },
		"unknown label value": func(s *Sink) { s.Value("meridian_queue_depth", 1, "lunch") },
		"missing label":       func(s *Sink) { s.Value("meridian_queue_depth", 1) },
		"value for histogram": func(s *Sink) { s.Value("meridian_think_tokens_per_request", 1) },
		"histogram for value": func(s *Sink) { s.Distribution("meridian_queue_depth", Distribution{}, "think") },
		"not UTF-8":           func(s *Sink) { s.Value("meridian_door_refused_total", 1, "lunch\xff") },
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&logs, nil))
			tel := open(t, Options{Listen: "127.0.0.1:0", Sources: []Source{source}, Logger: logger})
			_, body := scrape(t, tel)
			if strings.Contains(body, "meridian_made_up") || strings.Contains(body, "lunch") || strings.Contains(body, "\nmeridian_queue_depth") {
				t.Errorf("served all the same:\n%s", body)
			}
			if !strings.Contains(body, "meridian_build_info") {
				t.Error("one bad number hid the good ones")
			}
			if !strings.Contains(logs.String(), "telemetry:") {
				t.Errorf("the log does not say so: %q", logs.String())
			}
		})
	}
}

// Prometheus drops a whole scrape for a series that is in it twice.
func TestASeriesIsServedOnce(t *testing.T) {
	var logs bytes.Buffer
	labels := []string{"b"}
	tel := open(t, Options{Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&logs, nil)), Sources: []Source{func(s *Sink) {
		for _, code := range []string{"b", "a", "b"} {
			labels[0] = code // a caller may use its slice again
			s.Value("meridian_door_refused_total", 1, labels...)
		}
	}}})
	_, body := scrape(t, tel)
	if want := "\nmeridian_door_refused_total{code=\"a\"} 1\nmeridian_door_refused_total{code=\"b\"} 1\n#"; !strings.Contains(body, want) {
		t.Errorf("got\n%s", body)
	}
	if !strings.Contains(logs.String(), "reported twice") || !strings.Contains(logs.String(), "meridian_door_refused_total") {
		t.Errorf("logged: %q", logs.String())
	}
}

// BenchmarkScrape is a scrape of 10,000 series, as Prometheus asks for it.
func BenchmarkScrape(b *testing.B) {
	codes := make([]string, 10_000)
	for i := range codes {
		codes[i] = fmt.Sprint("code-", i)
	}
	tel, err := Open(b.Context(), Options{Sources: []Source{func(sink *Sink) {
		for i, code := range codes {
			sink.Value("meridian_door_refused_total", float64(i), code)
		}
	}}})
	if err != nil {
		b.Fatal(err)
	}
	handler := tel.Handler(slog.New(slog.DiscardHandler))
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	request.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		b.SetBytes(int64(answer.Body.Len()))
	}
}

func TestListenFailureIsClear(t *testing.T) {
	first := open(t, Options{Listen: "127.0.0.1:0"})
	_, err := Open(t.Context(), Options{Listen: first.Addr()})
	if err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("got %v", err)
	}
}

func TestWithoutEndpoints(t *testing.T) {
	tel := open(t, Options{})
	if tel.Addr() != "" {
		t.Errorf("serves on %s unasked", tel.Addr())
	}
	if tel.Tracing() {
		t.Error("sends spans unasked")
	}
	tel.Trace(Span{Name: "nothing"})
}

// otlpCollector remembers the bodies posted to each path.
type otlpCollector struct {
	mu     sync.Mutex
	bodies map[string][]byte
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies[r.URL.Path] = append(c.bodies[r.URL.Path], body...)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestOTLP(t *testing.T) {
	collector := &otlpCollector{bodies: make(map[string][]byte)}
	server := httptest.NewServer(collector)
	defer server.Close()
	tel, err := Open(t.Context(), Options{
		OTLPEndpoint: server.URL + "/", OTLPInterval: time.Hour,
		Sources: []Source{func(s *Sink) { s.Value("meridian_queue_depth", 3, "think") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	tel.Trace(Span{Trace: [16]byte{1}, ID: [8]byte{2}, Name: "meridian.schedule_batch"})
	if err := tel.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	for path, want := range map[string]string{"/v1/metrics": "meridian_queue_depth", "/v1/traces": "meridian.schedule_batch"} {
		if !bytes.Contains(collector.bodies[path], []byte(want)) {
			t.Errorf("%s got %d bytes without %s", path, len(collector.bodies[path]), want)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	collector := httptest.NewServer(&otlpCollector{bodies: make(map[string][]byte)})
	defer collector.Close()
	tel := open(t, Options{Listen: "127.0.0.1:0", OTLPEndpoint: collector.URL, OTLPInterval: time.Hour})
	for range 2 {
		done := make(chan error, 1)
		go func() { done <- tel.Close(t.Context()) }()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Close hangs")
		}
	}
}

// Metrics over plain HTTP with a certificate are refused, when the traces'
// exporter is open already; TestMain finds what it would leave running.
func TestAFailedStartLeavesNothingRunning(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "certificate.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", file)
	_, err := Open(t.Context(), Options{Listen: "127.0.0.1:0", OTLPEndpoint: "http://127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "OTLP metrics to http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

// A collector that is away must neither stop the start nor hang the end.
func TestOTLPCollectorAway(t *testing.T) {
	tel, err := Open(t.Context(), Options{OTLPEndpoint: "http://127.0.0.1:1", OTLPInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := tel.Close(ctx); !errors.Is(err, ErrUndelivered) {
		t.Errorf("Close says %v", err)
	}
	if took := time.Since(start); took > 30*time.Second { // the exporter tries for a minute
		t.Errorf("Close took %v with a deadline of 300 ms", took)
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	logger, err := NewLogger(&out, LogOptions{Level: "warn", Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("quiet")
	logger.Warn("loud", "peer", "p0")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["msg"] != "loud" || line["peer"] != "p0" {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	if logger, err = NewLogger(&out, LogOptions{Level: "debug", Format: "text"}); err != nil {
		t.Fatal(err)
	}
	logger.Debug("hello", "n", 1)
	if !regexp.MustCompile(`^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) level=DEBUG msg=hello n=1\n$`).MatchString(out.String()) {
		t.Errorf("got %q", out.String())
	}
	for _, o := range []LogOptions{{Level: "loud", Format: "text"}, {Level: "info", Format: "xml"}, {}} {
		if _, err := NewLogger(&out, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// A second process on a host finds a port of its own, where it was not told which.
func TestAnotherPort(t *testing.T) {
	open := func(listen string, elseFree bool) (*Telemetry, error) {
		o, err := Open(t.Context(), Options{Listen: listen, ElseFree: elseFree})
		if err == nil {
			t.Cleanup(func() { _ = o.Close(context.Background()) })
		}
		return o, err
	}
	first, err := open("127.0.0.1:0", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(first.Addr(), false); err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("a port that was asked for is taken: %v", err)
	}
	second, err := open(first.Addr(), true)
	if err != nil || second.Addr() == first.Addr() || !strings.HasPrefix(second.Addr(), "127.0.0.1:") {
		t.Errorf("%v, at %s beside %s", err, second.Addr(), first.Addr())
	}
}
