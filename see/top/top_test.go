package top

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	s := parse(strings.NewReader(`# HELP a b
a 1
b{x="1",y="with } and \" and ,"} 2 1700000000
b{x="2"} 3.5e1
c NaN
d
e{ 4
f{x="1"}
`))
	for name, want := range map[string]float64{"a": 1, "b": 37, "c": 0, "d": 0, "e": 0, "f": 0} {
		if got := s.sum(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := s.sum("b", `x="1"`); got != 2 {
		t.Errorf("b of 1 is %v", got)
	}
}

func TestQuantile(t *testing.T) {
	buckets := []bucket{{1, 10}, {2, 20}, {math.Inf(1), 20}}
	for q, want := range map[float64]float64{0.25: 0.5, 0.5: 1, 0.75: 1.5, 1: 2} {
		if got := quantile(q, buckets); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if quantile(0.5, nil) != 0 || quantile(0.9, []bucket{{1, 1}, {math.Inf(1), 10}}) != 1 {
		t.Error("of nothing it is nothing, and beyond the last bound that bound")
	}
}

// process is one of a made-up cell, whose counters grow with each look.
func process(t *testing.T, page func(look int) string) string {
	t.Helper()
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/debug/requests" {
			fmt.Fprint(w, `{"latest": [{"id": "fast", "latency": {"handoff_ms": 1}}, {"id": "none", "latency": {}},
				{"id": "slow", "latency": {"handoff_ms": 20}, "legs": [{"kind": "prefill", "engine": "p0"}, {"kind": "decode", "engine": "d0"}]}]}`)
			return
		}
		fmt.Fprint(w, page(int(looks.Add(1))))
	}))
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return server.URL + "/metrics"
}

func cell(t *testing.T) []Source {
	return []Source{
		{Kind: "gateway", Name: "g", URL: process(t, func(look int) string {
			return fmt.Sprintf(`meridian_gateway_requests_total{outcome="finished"} %d
meridian_gateway_requests_total{outcome="failed"} %d
meridian_gateway_tokens_total{kind="output"} %d
meridian_gateway_tokens_total{kind="prompt"} 5
meridian_gateway_requests{state="running"} 3
meridian_gateway_requests{state="waiting"} 2
meridian_gateway_phase_seconds_bucket{phase="handoff",le="0.01"} %d
meridian_gateway_phase_seconds_bucket{phase="handoff",le="+Inf"} %d
meridian_gateway_phase_seconds_bucket{phase="total",le="0.01"} 0
meridian_gateway_phase_seconds_bucket{phase="total",le="+Inf"} 0
`, 10*look, look, 100*look, 4*look, 4*look)
		})},
		{Kind: "agent", Name: "a", URL: process(t, func(look int) string {
			return fmt.Sprintf(`meridian_agent_transfers_ended_total{end="done"} %d
meridian_agent_bytes_total{op="read"} %d
meridian_handoff_accepts_ended_total{end="ready"} %d
meridian_store_heap_bytes{what="used"} 512
meridian_store_heap_bytes{what="total"} 2048
`, 20*look, 1<<20*look, 2*look)
		})},
		{Kind: "engine", Name: "d0", Role: "decode", URL: process(t, func(look int) string {
			return fmt.Sprintf(`meridian_engine_requests{state="running"} 2
meridian_engine_requests{state="fetching"} 1
meridian_engine_blocks{state="used"} 25
meridian_engine_blocks{state="cached"} 50
meridian_engine_blocks{state="free"} 25
meridian_engine_tokens_total{kind="generated"} %d
meridian_engine_handoffs_total{end="ready"} 7
`, 50*look)
		})},
		{Kind: "engine", Name: "v0", Role: "decode", URL: process(t, func(int) string {
			return "vllm:num_requests_running{model_name=\"m\"} 4\nvllm:kv_cache_usage_perc 0.5\n"
		})},
		{Kind: "engine", Name: "gone", Role: "prefill", URL: "http://127.0.0.1:1/metrics"},
	}
}

func TestFigures(t *testing.T) {
	sources := cell(t)
	before := Take(t.Context(), sources)
	now := Take(t.Context(), sources)
	now.At = before.At.Add(2 * time.Second)
	f := Compare(now, before)
	if f.Requests != (Requests{PerSecond: 5.5, FailedPerSecond: 0.5, TokensPerSecond: 50, Running: 3, Waiting: 2}) {
		t.Errorf("requests: %+v", f.Requests)
	}
	if f.Moving != (Moving{PerSecond: 10, BytesPerSecond: 1 << 19, HandOffsPerSecond: 1}) {
		t.Errorf("transfers: %+v", f.Moving)
	}
	if len(f.Latency) != 1 || f.Latency[0].Count != 4 || f.Latency[0].Overall || math.Abs(f.Latency[0].Median-5) > 1e-9 {
		t.Errorf("latency: %+v", f.Latency)
	}
	want := []Worker{
		{Name: "d0", Role: "decode", Up: true, Running: 2, Waiting: 1, TokensPerSecond: 25, Used: 0.25, HandOffs: 7},
		{Name: "v0", Role: "decode", Up: true, Running: 4, Used: 0.5},
		{Name: "gone", Role: "prefill"},
	}
	if len(f.Workers) != 3 || f.Workers[0] != want[0] || f.Workers[1] != want[1] || f.Workers[2] != want[2] {
		t.Errorf("workers: %+v", f.Workers)
	}
	if len(f.Memory) != 4 || f.Memory[0] != (Memory{Tier: "object cache", Where: "a", Used: 512, Total: 2048, Unit: "bytes"}) {
		t.Errorf("memory: %+v", f.Memory)
	}
	if len(f.Slowest) != 2 || f.Slowest[0] != (HandOff{Request: "slow", Ms: 20, From: "p0", To: "d0"}) {
		t.Errorf("slowest: %+v", f.Slowest)
	}
	if len(f.Silent) != 1 || !strings.HasPrefix(f.Silent[0], "engine gone: ") {
		t.Errorf("silent: %q", f.Silent)
	}
	// A process that began anew has no rates, and no negative ones; a quiet cell shows what was.
	quiet := Compare(before, now)
	if quiet.Requests.PerSecond != 0 || quiet.Moving.BytesPerSecond != 0 || len(quiet.Latency) != 1 {
		t.Errorf("of a new process: %+v, %+v", quiet.Requests, quiet.Latency)
	}
	if same := Compare(now, now); len(same.Latency) != 1 || !same.Latency[0].Overall || same.Latency[0].Count != 8 {
		t.Errorf("of a quiet cell: %+v", same.Latency)
	}
}

// Keys change what is shown, and a pause keeps it.
func TestKeys(t *testing.T) {
	sources := cell(t)
	s := &screen{options: Options{Interval: time.Second, Clean: strings.ToUpper}, width: 60, height: 200}
	if text := s.View().Content; !strings.Contains(text, "looking") {
		t.Errorf("before the first look: %s", text)
	}
	s.take(looked{look: Take(t.Context(), sources)})
	workers := func() (names string) {
		for _, w := range s.sorted() {
			names += w.Name + " "
		}
		return names
	}
	order := workers()
	for range orders {
		s.press("s")
	}
	if workers() != order {
		t.Errorf("after a turn through all columns: %s, at first %s", workers(), order)
	}
	s.press("s")
	s.press("s") // by running
	if got := workers(); got != "v0 d0 gone " {
		t.Errorf("by running: %s", got)
	}
	s.press("r")
	if got := workers(); got != "gone d0 v0 " {
		t.Errorf("turned: %s", got)
	}
	s.press("p")
	was := s.figures
	s.take(looked{look: Take(t.Context(), sources)})
	if s.figures != was || !strings.Contains(s.View().Content, "PAUSED") {
		t.Error("a pause does not keep what is shown")
	}
	for line := range strings.Lines(s.View().Content) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 60 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	if s.height = 5; strings.Count(s.View().Content, "\n") != 4 {
		t.Errorf("more than 5 lines: %s", s.View().Content)
	}
	s.height = 200
	if s.press("q") == nil || !strings.Contains(s.View().Content, "D0") {
		t.Error("q does not quit, or names are not cleaned")
	}
}
