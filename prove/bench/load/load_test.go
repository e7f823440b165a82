package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/decide/placement"
	"meridian/engine"
	"meridian/internal/until"
	"meridian/prove/bench/record"
	"meridian/prove/replay/workload"
	"meridian/serve/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openEngine serves the reference engine.
func openEngine(t *testing.T, reasoning bool) string {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{ID: "e0", Model: "tiny", Seed: 1, Reasoning: reasoning})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e.Handler())
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func openGateway(t *testing.T, engineURL string) *gateway.Gateway {
	t.Helper()
	g, err := gateway.Open(t.Context(), gateway.Options{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Backends: []gateway.Backend{{URL: engineURL, Role: placement.Both}}, ProbeInterval: 20 * time.Millisecond,
		Place: placement.Options{DirectTokens: 256, AffinityWeight: 1, RunningTokens: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

// small is a workload of so many requests, a few milliseconds apart.
func small(t *testing.T, requests int, more string) workload.Source {
	t.Helper()
	content := `{"schema":"meridian.workload/1","prefix_tokens":512}` + "\n"
	for i := range requests {
		content += fmt.Sprintf(`{"at_us":%d,"prompt":%d,"output":%d,"tenant":%d%s}`+"\n", i*5000, 600+i, 5+i%3, i%2, more)
	}
	return opened(t, content)
}

func opened(t *testing.T, content string) workload.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	source, _, err := workload.Open(path, workload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestLoadOfAnEngine(t *testing.T) {
	url := openEngine(t, false)
	report, err := Run(t.Context(), Options{URL: url + "/v1/", Completions: true}, small(t, 8, `,"prefix":[77]`))
	if err != nil {
		t.Fatal(err)
	}
	if report.Model != "tiny" || report.Sent != 8 || report.Complete != 8 || report.Failed+report.NotSent+report.Shorter != 0 || len(report.Problems) != 0 {
		t.Fatalf("%+v", report)
	}
	// Prompts of token ids are exactly as long as they are to be.
	if report.Prompt != report.PromptAsked || report.Prompt != 603.5 {
		t.Errorf("prompts of %g tokens, asked for %g", report.Prompt, report.PromptAsked)
	}
	r := report.Result
	if r.Tokens.Output != 47 || r.Requests.Counted != 8 || r.Latency.TTFT.Count != 8 || r.Latency.TTFVT.Mean < r.Latency.TTFT.Mean || r.Latency.E2E.P50 <= 0 {
		t.Errorf("%+v", r)
	}
	// A request that comes after the first was computed finds the shared block.
	if r.Cache.HitTokens < 500 {
		t.Errorf("%d tokens of equal prefixes were found in the cache", r.Cache.HitTokens)
	}
}

// A workload that is sent through a gateway and recorded there comes out as it
// went in: lengths, thoughts, tenants and equal prefixes.
func TestLoadAndRecordThroughAGateway(t *testing.T) {
	const requests = 12
	t.Run("chats", func(t *testing.T) {
		report, recorded := throughGateway(t, Options{Script: true}, small(t, requests, `,"think":6`))
		if report.Complete != requests || report.Result.Latency.Thinking.Count != requests || report.Result.Latency.TTOT.Count != requests {
			t.Fatalf("%+v", report)
		}
		if l := report.Result.Latency; l.TTFVT.Mean < l.TTFT.Mean || report.Result.Tokens.Think < 4*requests {
			t.Errorf("thoughts and answers are not told apart: %+v, %+v", report.Result.Tokens, l)
		}
		if math.Abs(report.Prompt/report.PromptAsked-1) > 0.05 {
			t.Errorf("prompts of %g tokens, asked for %g", report.Prompt, report.PromptAsked)
		}
		recorded = recorded[2:] // the chats that calibrate
		if len(recorded) != requests {
			t.Fatalf("%d requests were recorded", len(recorded))
		}
		tenants, lengths := make(map[int32]int), make(map[int32]int)
		for i, q := range recorded {
			// The marks of a thought have no text, and may be told as either.
			if q.Think < 4 || q.Think > 6 {
				t.Errorf("request %d: thought %d, answered %d", i, q.Think, q.Output)
			}
			tenants[q.Tenant]++
			lengths[q.Think+q.Output]++
		}
		if tenants[1] != requests/2 || tenants[2] != requests/2 {
			t.Errorf("requests by tenant, of whom the first number is no tenant's: %v", tenants)
		}
		if lengths[11] != requests/3 || lengths[12] != requests/3 || lengths[13] != requests/3 {
			t.Errorf("requests by length: %v", lengths)
		}
	})
	t.Run("token ids", func(t *testing.T) {
		answers := make(map[int]Answer)
		report, recorded := throughGateway(t, Options{Completions: true, Answered: func(a Answer) { answers[a.Number] = a }}, small(t, requests, `,"prefix":[5]`))
		if report.Complete != requests || len(recorded) != requests {
			t.Fatalf("%d recorded, %+v", len(recorded), report)
		}
		for number := range requests {
			if a := answers[number]; a.ID == "" || a.Prompt != 600+number || !a.First.After(a.Sent) {
				t.Errorf("request %d: its client saw %+v", number, a)
			}
		}
		seen := make(map[int32]bool)
		for i, q := range recorded {
			// A busy machine may send two in the other order.
			n := q.Prompt - 600
			if n < 0 || n >= requests || seen[n] || q.Think != 0 || q.Output != 5+n%3 {
				t.Errorf("request %d: %+v", i, q)
			}
			seen[n] = true
			if len(q.Prefix) != 1 || q.Prefix[0] != recorded[0].Prefix[0] || q.Prefix[0] == 5 {
				t.Errorf("request %d: prefix %v, the first's is %v", i, q.Prefix, recorded[0].Prefix)
			}
		}
	})
}

// throughGateway sends a workload and returns what was recorded meanwhile.
func throughGateway(t *testing.T, o Options, source workload.Source) (*Report, []workload.Request) {
	t.Helper()
	g := openGateway(t, openEngine(t, o.Script))
	o.URL = "http://" + g.Addr()
	var file bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, done := make(chan struct{}), make(chan error, 1)
	var summary record.Summary
	var taken atomic.Int64
	go func() {
		var once sync.Once
		var err error
		summary, err = record.Run(ctx, record.Options{
			Admin: "http://" + g.AdminAddr(), Every: 10 * time.Millisecond, Progress: func(s record.Summary) {
				taken.Store(int64(s.Requests + s.Waiting))
				once.Do(func() { close(began) })
			},
		}, &file)
		done <- err
	}()
	select {
	case <-began:
	case err := <-done:
		t.Fatalf("the recording ended: %v", err)
	}
	report, err := Run(t.Context(), o, source)
	if err != nil {
		t.Fatal(err)
	}
	// The gateway records a request after its answer has gone out.
	calibration := 2
	if o.Completions {
		calibration = 0
	}
	until.True(t, "all requests are recorded", func() bool { return taken.Load() >= int64(report.Complete+calibration) })
	stop()
	if err := <-done; err != nil || summary.LeftOut+int(summary.Lost)+summary.Late != 0 {
		t.Fatalf("%v, %+v", err, summary)
	}
	var recorded []workload.Request
	written := opened(t, file.String())
	for q, more := written.Next(); more; q, more = written.Next() {
		recorded = append(recorded, q)
	}
	if len(recorded) != summary.Requests {
		t.Errorf("%d requests in the file, %+v", len(recorded), summary)
	}
	return report, recorded
}

// What goes wrong is counted and told, and ends nothing else.
// TestClosedLoop sends a workload whose requests are hours apart, two at a time.
func TestClosedLoop(t *testing.T) {
	engineURL, err := url.Parse(openEngine(t, false))
	if err != nil {
		t.Fatal(err)
	}
	var running, most atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(engineURL)
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		proxy.ServeHTTP(w, r)
		running.Add(-1)
	}))
	defer server.Close()
	content := `{"schema":"meridian.workload/1"}` + "\n"
	for i := range 10 {
		content += fmt.Sprintf(`{"at_us":%d,"prompt":20,"output":3}`+"\n", i*3_600_000_000)
	}
	report, err := Run(t.Context(), Options{URL: server.URL, Model: "tiny", Completions: true, Closed: true, MaxRunning: 2}, opened(t, content))
	if err != nil {
		t.Fatal(err)
	}
	// A place is free when an answer has been read, which its server may not have noticed.
	if report.Complete != 10 || report.NotSent != 0 || most.Load() > 4 {
		t.Errorf("%d of 10 requests were answered, %d not sent, %d under way at a time", report.Complete, report.NotSent, most.Load())
	}
	if ttft := report.Result.Latency.TTFT; ttft.Count != 10 || ttft.Min <= 0 {
		t.Errorf("first tokens took %+v", ttft)
	}
}

func TestProblemsAreTold(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n++
		switch n % 5 {
		case 4:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1"+strings.Repeat(",1", 9000)+"]}]}\n\n")
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"too many"}}`)
		case 1:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		case 2:
			_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 100)+"\n\n")
		case 3:
			for range 9000 {
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
			}
		}
	}))
	defer server.Close()
	report, err := Run(t.Context(), Options{URL: server.URL, Completions: true, Model: "m", MaxRunning: 1}, small(t, 40, ""))
	if err != nil {
		t.Fatal(err)
	}
	if report.Complete != 0 || report.Failed != report.Sent || report.Sent+report.NotSent != 40 || len(report.Problems) == 0 {
		t.Errorf("%+v", report)
	}
	for _, p := range report.Problems {
		known := false
		for _, words := range []string{"too many", "ended before", "no JSON object", "more than", "tokens for an answer"} {
			known = known || strings.Contains(p.Text, words)
		}
		if !known || p.Count == 0 || len(p.Text) > maxProblemText {
			t.Errorf("%+v", p)
		}
	}
}

func TestDeadlines(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hang)
	o := Options{URL: server.URL, Completions: true, Model: "m", Timeout: 2 * time.Second, MaxRunning: 2}
	report, err := Run(t.Context(), o, small(t, 6, ""))
	if err != nil || report.Failed != 2 || report.NotSent != 4 || !strings.Contains(report.Problems[0].Text, "within 2s") {
		t.Errorf("%v, %+v", err, report)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	o.Timeout = time.Minute
	if report, err := Run(ctx, o, small(t, 100, "")); err == nil || report == nil || report.Complete != 0 {
		t.Errorf("a run that was broken off: %v, %+v", err, report)
	}
}

func TestRefusals(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for name, o := range map[string]Options{
		"no URL":      {},
		"no endpoint": {URL: server.URL},
		"no chats":    {URL: server.URL, Model: "m"},
		"no requests": {URL: server.URL, Model: "m", MaxRunning: -1},
		"no words":    {URL: server.URL, Model: "m", Vocabulary: 3},
		"no server":   {URL: "http://127.0.0.1:1"},
	} {
		if report, err := Run(t.Context(), o, small(t, 1, "")); err == nil {
			t.Errorf("%s: %+v", name, report)
		}
	}
}

// Tokens without text belong to what is around them, and a chunk in which a
// thought ends belongs to both.
func TestKindsOfChunks(t *testing.T) {
	stream := ""
	for _, delta := range []string{
		`{"delta":{"role":"assistant"},"token_ids":[1]}`, `{"delta":{"reasoning_content":"a"},"token_ids":[2,3]}`, `{"delta":{},"token_ids":[4]}`,
		`{"delta":{"reasoning_content":"b","content":"c"},"token_ids":[5,6,7]}`, `{"delta":{"content":"d"},"token_ids":[8]}`, `{"delta":{},"finish_reason":"stop","token_ids":[]}`,
	} {
		stream += `data: {"choices":[` + delta + "]}\n\n"
	}
	stream += `data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":99}}}` + "\n\ndata: [DONE]\n\n"
	var h heard
	if err := h.listen(strings.NewReader(stream), time.Now(), 8); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, c := range h.chunks {
		got += fmt.Sprint(c.Tokens, c.Thought, " ")
	}
	if want := "1 true 2 true 1 true 2 true 1 false 1 false "; got != want || h.tokens != 8 || h.prompt != 9 || h.cached != 9 {
		t.Errorf("%s, %+v", got, h)
	}
}
