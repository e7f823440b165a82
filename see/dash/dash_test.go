package dash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/see/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCell is busy: each look tells of more.
type fakeCell struct {
	mu      sync.Mutex // protects the rest
	looks   int
	perLook int // hand-offs and requests
	down    bool
	told    int
	objects *Objects // of agent b
}

func (c *fakeCell) set(change func(*fakeCell)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *fakeCell) Look(context.Context) View {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	v := View{
		Gateway: Gateway{Version: "v1", URL: "http://127.0.0.1:1", Ready: true, DirectoryKnown: true, Outcomes: map[string]uint64{"finished": uint64(c.told)}, KV: map[string]uint64{"handoff": uint64(c.told)}, OutputTokens: uint64(10 * c.told)},
		Workers: []Worker{{ID: "p0", Role: "prefill", Up: true, Agent: "a"}, {ID: "d0", Role: "decode", Up: !c.down, Agent: "b"}},
		Members: []Member{{Name: "a", Incarnation: "1", Kind: "agent"}, {Name: "b", Incarnation: "2", Kind: "agent", HandOffs: uint64(c.told), HandOffBytes: uint64(c.told) << 20, Memory: []Memory{{Tier: "dram", Bytes: 1 << 30}}, Objects: c.objects, Prefixes: &history.PrefixCounts{Asked: 200, Found: 150}}},
		Flows:   []history.FlowTotal{{From: "p0", To: "d0", Src: 0, Dst: 1, Bytes: uint64(c.told) << 20, HandOffs: uint64(c.told)}, {From: "p0", To: "d0", Src: 1, Dst: 0, Bytes: 1 << 10, HandOffs: 1}},
	}
	for range c.perLook {
		c.told++
		id := fmt.Sprintf("%032x", c.told)
		v.Requests = append(v.Requests, Request{ID: id, Began: time.Now(), Model: "m", Outcome: "finished", TotalMs: 12})
		v.HandOffs = append(v.HandOffs, HandOff{ID: id, As: "destination", Agent: "b", Engine: "d0", PeerName: "p0", Ranks: "2×2", TotalMs: 4, EndedMs: float64(time.Now().UnixMilli()), Stages: []Stage{{"plan", 1}, {"data", 3}}})
	}
	return v
}

func (c *fakeCell) Explain(_ context.Context, id string) (Explanation, error) {
	if id == "away" {
		return Explanation{}, errors.New("the cell is away")
	}
	if strings.HasPrefix(id, "kv/") {
		return Explanation{ID: id, Text: id + "\n  owner     b\n<script>document.title='owned'</script>\n", Asked: 2, Objects: []any{map[string]any{"key": id, "owner": "b"}}}, nil
	}
	began := time.Now().Add(-time.Second)
	return Explanation{
		ID: id, Text: "request " + id + ": finished\n<script>document.title='owned'</script>\n", Asked: 2, Silent: []string{"c: does not answer"},
		Requests: []any{map[string]any{"id": id, "began": began, "legs": []any{map[string]any{"kind": "prefill", "engine": "p0", "start_ms": 1, "ms": 20}}, "latency": map[string]any{"queue_ms": 1, "ttft_ms": 30, "total_ms": 90}}},
		HandOffs: []any{map[string]any{
			"id": id, "as": "destination", "engine": "d0", "peer_engine": "p0", "tokens": 64, "bytes": 3 << 20, "src_ranks": 2, "dst_ranks": 2, "ended_unix_us": began.UnixMicro() + 40000,
			"flows":     []any{map[string]any{"src": 0, "dst": 1, "bytes": 2 << 20, "fabric": "tcp", "attempts": 1, "micros": 900}, map[string]any{"src": 1, "dst": 0, "bytes": 1 << 20}},
			"stages_us": map[string]any{"begun": 1000, "met": 2000, "planned": 2500, "moving": 3000, "moved": 9000, "ended": 9500},
		}},
		Transfers: []any{map[string]any{"id": strings.Repeat("f", 32), "peer": "a", "bytes": 2 << 20, "pieces": 4, "fabric": "tcp", "state": "done", "times": map[string]any{"Posted": began, "Ended": began.Add(time.Millisecond)}, "choices": []any{map[string]any{"fabric": "tcp", "preference": 1}}}},
	}, nil
}

func open(t *testing.T, c Cell, o Options) *Page {
	t.Helper()
	o.Cell = c
	p, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// event is one that was sent.
type event struct{ name, id, data string }

// stream listens, from where it was, and returns what comes.
func stream(t *testing.T, url, after string) (next func() event) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+Prefix+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("%d, %s", response.StatusCode, kind)
	}
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	return func() event {
		t.Helper()
		var e event
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if e.name != "" {
					return e
				}
			}
		}
	}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.URL
}

// Who comes back gets what it missed, and nothing twice.
func TestResume(t *testing.T) {
	p := open(t, &fakeCell{perLook: 2}, Options{Interval: 5 * time.Millisecond})
	url := serve(t, p)
	next := stream(t, url, "")
	first := next()
	if first.name != "start" {
		t.Fatalf("begins with %s", first.name)
	}
	var begun start
	if err := json.Unmarshal([]byte(first.data), &begun); err != nil || len(begun.Requests) == 0 || len(begun.History) == 0 {
		t.Fatalf("%v, %+v", err, begun)
	}
	left := next()
	for range 5 {
		next()
	}
	resumed := stream(t, url, left.id)
	var was Frame
	if err := json.Unmarshal([]byte(left.data), &was); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(8) {
		e := resumed()
		var f Frame
		if err := json.Unmarshal([]byte(e.data), &f); err != nil || e.name != "frame" || f.Number != was.Number+1+n {
			t.Fatalf("%d after %d: %s of number %d, %v", n, was.Number, e.name, f.Number, err)
		}
	}
	for _, stale := range []string{"another-boot.3", first.id + "0000000", "nonsense", strings.Repeat("9", 99)} {
		if e := stream(t, url, stale)(); e.name != "start" {
			t.Errorf("after %s: %s", stale, e.name)
		}
	}
}

// What is remembered and what a frame tells is bounded, and what is left out is said.
func TestBounds(t *testing.T) {
	const more = 20
	c := &fakeCell{perLook: maxFrameRows + more}
	f := &feed{cell: c, boot: "b", now: time.Now, changed: make(chan struct{}), watchers: 1}
	for range keptFrames + 5 {
		f.add(c.Look(t.Context()))
	}
	if len(f.lines) != keptFrames || len(f.history) != keptFrames || len(f.requests) != keptRows || len(f.handOffs) != keptRows || len(f.events) > keptEvents {
		t.Errorf("%d frames, %d past, %d requests, %d hand-offs, %d events are kept", len(f.lines), len(f.history), len(f.requests), len(f.handOffs), len(f.events))
	}
	var last Frame
	if err := json.Unmarshal(f.lines[len(f.lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	if len(last.HandOffs) != maxFrameRows || last.LeftOut.HandOffs != more || len(last.Requests) != maxFrameRows || last.LeftOut.Requests != more {
		t.Errorf("%d hand-offs, left out %+v", len(last.HandOffs), last.LeftOut)
	}
	if last.HandOffs[maxFrameRows-1].ID != fmt.Sprintf("%032x", c.told) {
		t.Error("the newest is left out")
	}
}

// While no browser watches, the cell is not looked at.
func TestUnwatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCell{}
		p := open(t, c, Options{Interval: time.Millisecond, Linger: 10 * time.Millisecond, Watchers: 1})
		time.Sleep(20 * time.Millisecond)
		if c.set(func(c *fakeCell) {}); c.looks != 0 {
			t.Fatalf("%d looks before the first watcher came", c.looks)
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, Prefix+"events", nil).WithContext(ctx))
		}()
		until.True(t, "there are looks", func() (looked bool) {
			c.set(func(c *fakeCell) { looked = c.looks >= 3 })
			return looked
		})
		full := httptest.NewRecorder()
		p.ServeHTTP(full, httptest.NewRequest(http.MethodGet, Prefix+"events", nil))
		if full.Code != http.StatusServiceUnavailable {
			t.Errorf("a second watcher of one: %d", full.Code)
		}
		leave()
		<-gone
		until.True(t, "nothing is looked at any more", func() bool {
			p.feed.mu.Lock()
			defer p.feed.mu.Unlock()
			return !p.feed.running
		})
	})
}

func TestRates(t *testing.T) {
	before := View{
		Gateway: Gateway{Outcomes: map[string]uint64{"finished": 5}, OutputTokens: 100, Phases: []Phase{{Name: "ttft", Bounds: []float64{0.1, 0.2}, Counts: []uint64{1, 1, 1}}}},
		Members: []Member{{Name: "a", Incarnation: "1", HandOffs: 10, Bytes: 100}, {Name: "b", Incarnation: "2", HandOffs: 50}},
	}
	now := View{
		Gateway: Gateway{Outcomes: map[string]uint64{"finished": 9, "failed": 2}, OutputTokens: 300, Phases: []Phase{{Name: "ttft", Bounds: []float64{0.1, 0.2}, Counts: []uint64{1, 5, 6}}}},
		Members: []Member{{Name: "a", Incarnation: "1", HandOffs: 14, Bytes: 300}, {Name: "b", Incarnation: "3", HandOffs: 7}},
	}
	r := ratesOf(&before, &now, 2*time.Second)
	want := Rates{Requests: 3, OutputTokens: 100, HandOffs: 2, TransferBytes: 100, P50: map[string]float64{"ttft": 162.5}, P99: map[string]float64{"ttft": 200}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if r := ratesOf(&before, &now, 0); r.Requests != 0 {
		t.Errorf("in no time: %+v", r)
	}
}

func TestChanges(t *testing.T) {
	before := View{
		Workers: []Worker{{ID: "up", Up: true}, {ID: "gone", Up: true}, {ID: "back"}, {ID: "killed", Up: true, URL: "http://h:1"}},
		Members: []Member{{Name: "a", Incarnation: "1", Kind: "agent"}, {Name: "b", Incarnation: "2", Kind: "agent"}, {Name: "c", Incarnation: "3", Kind: "agent"}, {Name: "g", Kind: "gateway"}},
	}
	now := View{
		Workers:  []Worker{{ID: "up", Problem: "refused"}, {ID: "back", Up: true}, {ID: "killed", Up: true, URL: "http://h:2"}, {ID: "new", Role: "decode", Up: true}},
		Members:  []Member{{Name: "a", Incarnation: "9", Kind: "agent"}, {Name: "b", Incarnation: "2", Kind: "agent", Problem: "silent"}},
		Requests: []Request{{ID: "r", Outcome: "failed", Problem: "no engine"}, {ID: "s", Outcome: "finished", Resumed: 1}},
		HandOffs: []HandOff{{ID: "h", Engine: "d", Problem: "an agent is gone"}, {ID: "k", Engine: "store@o/e5a607cf0acfdf2c", PeerName: "d", Problem: "too late"}, {ID: "w", Engine: "d"}},
	}
	var got []string
	for _, e := range changes(&before, &now, time.UnixMilli(7)) {
		if e.At != 7 || e.Level == levelBad && e.Hint == "" {
			t.Errorf("%+v", e)
		}
		got = append(got, e.Level+" "+e.Text+" "+e.ID)
	}
	want := []string{
		"bad worker up does not answer: refused ", "good worker back answers ", "bad worker killed ended, and was started again within a moment ", "note worker new has come, to decode ", "bad worker gone is gone ",
		"note agent a was started again ", "bad agent b does not answer: silent ", "bad agent c is gone ",
		"bad a request failed: no engine r", "note a request lost its engine and went on with another s", "bad a hand-off failed at d: an agent is gone h",
		"bad a hand-off failed at store@o: too late k",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPages(t *testing.T) {
	p := open(t, &fakeCell{}, Options{})
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", Prefix, 200, "<title>Meridian</title>"},
		{"GET", Prefix + "app.js", 200, "EventSource"},
		{"GET", Prefix + "uplot-LICENSE.txt", 200, "MIT License"},
		{"GET", Prefix + "nothing", 404, ""},
		{"GET", Prefix + "explain?id=abc", 200, `"text":"request abc`},
		{"GET", Prefix + "explain", 400, ""},
		{"GET", Prefix + "explain?id=" + strings.Repeat("x", 300), 400, ""},
		{"GET", Prefix + "explain?id=away", 503, "the cell is away"},
		{"POST", Prefix, 405, ""},
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d, %.200s", c.method, c.path, w.Code, w.Body)
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: policy %q", c.path, w.Header().Get("Content-Security-Policy"))
		}
	}
	if _, err := Open(t.Context(), Options{}); err == nil {
		t.Error("a page about nothing")
	}
}

// The page names no other host.
func TestNoOtherHost(t *testing.T) {
	for _, name := range []string{"index.html", "app.js", "draw.js", "story.js", "style.css", "uplot.css"} {
		file, err := web.Open("web/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // the name of a format, from which nothing is loaded
		if strings.Contains(rest, "http://") || strings.Contains(rest, "https://") || strings.Contains(rest, "innerHTML = ") {
			t.Errorf("%s names another host, or makes markup of text", name)
		}
	}
}
