package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

func TestRefusesBadRequests(t *testing.T) {
	c := newCell(t, 1, 1, func(o *Options) { o.MaxBodyBytes = 2000 })
	long := strings.Repeat("x", request.MaxModelBytes+1)
	for name, test := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no JSON":            {openai.PathCompletions, `{"model":`, 400, "not valid JSON"},
		"a list":             {openai.PathCompletions, `[]`, 400, "must be a JSON object"},
		"no prompt":          {openai.PathCompletions, `{"model":"m"}`, 400, "prompt is missing"},
		"no messages":        {openai.PathChat, `{"model":"m"}`, 400, "messages is missing"},
		"odd prompt":         {openai.PathCompletions, `{"model":"m","prompt":{"a":1}}`, 400, "prompt must be"},
		"odd n":              {openai.PathCompletions, `{"model":"m","prompt":"x","n":"two"}`, 400, `n: want a whole number, got string`},
		"unknown model":      {openai.PathCompletions, `{"model":"n","prompt":"x"}`, 404, "does not exist"},
		"another spelling":   {openai.PathCompletions, `{"model":"m","prompt":"x","STREAM":true}`, 400, `write \"stream\"`},
		"an odd spelling":    {openai.PathChat, `{"model":"m","meſſages":[]}`, 400, `write \"messages\"`},
		"long model":         {openai.PathCompletions, `{"model":"` + long + `","prompt":"x"}`, 400, "may have 1024 at most"},
		"many answers":       {openai.PathCompletions, `{"model":"m","prompt":"x","n":16385}`, 400, "may be 16384 at most"},
		"own transfer":       {openai.PathCompletions, `{"model":"m","prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`, 400, "not taken from clients"},
		"own transfer, zero": {openai.PathCompletions, `{"model":"m","prompt":"x","kv_transfer_params":0}`, 400, "not taken from clients"},
		"own transfer, caps": {openai.PathChat, `{"model":"m","messages":[],"KV_TRANSFER_PARAMS":{}}`, 400, "not taken from clients"},
		"twice":              {openai.PathCompletions, `{"model":"m","prompt":"x","prompt":"y"}`, 400, "twice"},
		"too large":          {openai.PathCompletions, completion(strings.Repeat("x", 3000), ""), 413, "more than 2000 bytes"},
	} {
		r := c.post(test.path, test.body)
		if r.status != test.status || !strings.Contains(string(r.body), test.says) || !strings.Contains(string(r.body), `"error"`) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if record := c.record(r); record.Outcome != ledger.Refused {
			t.Errorf("%s: recorded %s", name, record)
		}
	}
	if n := len(c.prefill[0].seen()) + len(c.decode[0].seen()); n > 0 {
		t.Errorf("engines were asked %d times", n)
	}
	c.post(openai.PathCompletions, completion("short", `,"kv_transfer_params":null`)).whole(t, "short", 5, 12)
}

func TestAPIKeys(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.APIKeys = []string{"one", "two"} })
	for header, status := range map[string]int{
		"": 401, "Bearer ": 401, "Bearer three": 401, "one": 401, "bearer one": 401, "Bearer one": 200, "Bearer two": 200,
	} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+"/v1/models", nil)
		request.Header.Set("Authorization", header)
		if r := c.do(request); r.status != status {
			t.Errorf("%q: %d", header, r.status)
		}
	}
	asked := func(key string) int {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+"/v1/models", nil)
		request.Header.Set("Authorization", "Bearer "+key)
		return c.do(request).status
	}
	for _, refused := range [][]string{nil, {""}, {"three", ""}} {
		if c.SetAPIKeys(refused) == nil {
			t.Errorf("the keys %q were taken", refused)
		}
	}
	if err := c.SetAPIKeys([]string{"two", "three"}); err != nil || asked("one") != 401 || asked("two") != 200 || asked("three") != 200 {
		t.Errorf("%v: after a change, one %d, two %d, three %d", err, asked("one"), asked("two"), asked("three"))
	}
	if r := c.post(openai.PathCompletions, completion("short", "")); r.status != 401 || !strings.Contains(string(r.body), openai.CodeInvalidKey) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Beyond what may run and wait, clients are told when to come back.
func TestAdmissionIsBounded(t *testing.T) {
	t.Parallel()
	c := newCell(t, 0, 1, func(o *Options) { o.MaxRunning, o.MaxWaiting, o.QueueTimeout = 2, 1, time.Minute })
	c.decode[0].set(habits{slow: 100 * time.Millisecond})
	var clients sync.WaitGroup
	var ok, full atomic.Int64
	for range 8 {
		clients.Go(func() {
			r := c.post(openai.PathCompletions, completion("short", `,"stream":true`))
			switch {
			case r.status == http.StatusOK:
				r.whole(t, "short", 5, 12)
				ok.Add(1)
			case r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") == "1":
				full.Add(1)
			default:
				t.Errorf("%d %v %s", r.status, r.header, r.body)
			}
		})
	}
	clients.Wait()
	if ok.Load() < 3 || full.Load() < 1 || c.Metrics().Overloaded != uint64(full.Load()) {
		t.Errorf("%d were served, %d turned away, %d counted", ok.Load(), full.Load(), c.Metrics().Overloaded)
	}
	c = newCell(t, 0, 1, func(o *Options) { o.MaxRunning, o.MaxWaiting, o.QueueTimeout = 2, 1, 10*time.Millisecond })
	c.decode[0].set(habits{slow: 200 * time.Millisecond})
	for range 2 {
		clients.Go(func() { c.post(openai.PathCompletions, completion("short", `,"stream":true`)) })
	}
	c.until("two run", func() bool { return c.Metrics().Running == 2 })
	if r := c.post(openai.PathCompletions, completion("short", "")); r.status != 429 || !strings.Contains(string(r.body), "within 10ms") {
		t.Errorf("%d %s", r.status, r.body)
	}
	clients.Wait()
}

// A client that goes away takes everything downstream with it, soon.
func TestDisconnectCancelsDownstream(t *testing.T) {
	for name, test := range map[string]struct {
		prefill, decode habits
		body            string
		busy            func(c *testCell) bool
		canceled        func(c *testCell) int64
	}{
		"while a prompt is computed": {
			habits{deaf: true},
			habits{},
			completion(longPrompt, `,"stream":true`),
			func(c *testCell) bool { return len(c.prefill[0].seen()) == 1 }, func(c *testCell) int64 { return c.prefill[0].canceled.Load() },
		},
		"before the first token": {
			habits{},
			habits{deaf: true},
			completion("short", `,"stream":true`),
			func(c *testCell) bool { return len(c.decode[0].seen()) == 1 }, func(c *testCell) int64 { return c.decode[0].canceled.Load() },
		},
		"between tokens": {
			habits{},
			habits{hangAfter: 3},
			completion("short", `,"stream":true`),
			func(c *testCell) bool { return c.decode[0].open.Load() == 1 }, func(c *testCell) int64 { return c.decode[0].canceled.Load() },
		},
		"while a whole answer is made": {
			habits{},
			habits{slow: time.Second},
			completion("short", ""),
			func(c *testCell) bool { return c.decode[0].open.Load() == 1 }, func(c *testCell) int64 { return c.decode[0].canceled.Load() },
		},
	} {
		disconnect := func(t *testing.T) time.Duration {
			c := newCell(t, 1, 1, nil)
			c.prefill[0].set(test.prefill)
			c.decode[0].set(test.decode)
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(test.body))
				c.do(request)
			}()
			c.until("the engine works", func() bool { return test.busy(c) })
			left := time.Now()
			leave()
			c.until("the engine is told", func() bool { return test.canceled(c) == 1 })
			took := time.Since(left)
			<-done
			c.until("it is recorded", func() bool { return c.Metrics().Requests[ledger.Cancelled] == 1 })
			c.until("it has left", func() bool { return c.Metrics().Running == 0 })
			if len(c.decode[0].seen())+len(c.prefill[0].seen()) > 1 {
				t.Error("it was tried again, for no client")
			}
			c.close()
			return took
		}
		t.Run(name, func(t *testing.T) {
			took := disconnect(t)
			for range 20 { // a machine that is busy with something else may be late
				if took > 100*time.Millisecond {
					took = min(took, disconnect(t))
				}
			}
			if took > 100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// dial sends a request by hand and returns the connection, of which nothing
// is read.
func (c *testCell) dial(body string) net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.Addr())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s", openai.PathCompletions, len(body), body)
	return conn
}

// Clients that read slowly or not at all lose their answer, not the gateway
// its memory or its engine.
func TestSlowReaders(t *testing.T) {
	const endless = `{"model":"m","prompt":"short","max_tokens":10000000,"stream":true}`
	for name, read := range map[string]func(net.Conn){
		"never reads": func(net.Conn) {},
		"reads one byte a tick": func(conn net.Conn) {
			one := make([]byte, 1)
			for range 20 {
				if _, err := conn.Read(one); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, 0, 1, func(o *Options) { o.ClientTimeout = 200 * time.Millisecond })
			conn := c.dial(endless)
			read(conn)
			c.until("the client is given up", func() bool { return c.Metrics().Requests[ledger.Cancelled] == 1 })
			c.until("the engine is free", func() bool { return c.decode[0].open.Load() == 0 })
			if latest := c.ledger.Latest(1)[0]; !strings.Contains(latest.Problem, "did not read") {
				t.Errorf("recorded: %s", latest)
			}
		})
	}
}

// A client that sends its request slowly is bounded as well.
func TestSlowSender(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100\r\n\r\n{", openai.PathCompletions)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", response.StatusCode)
	}
}

// A client may think longer than its write deadline between requests.
func TestConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	c := newCell(t, 0, 1, func(o *Options) { o.ClientTimeout = time.Second })
	c.decode[0].set(habits{slow: 10 * time.Millisecond})
	for range 2 {
		c.post(openai.PathCompletions, completion("short", `,"stream":true`)).whole(t, "short", 5, 12)
		time.Sleep(1200 * time.Millisecond)
	}
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
}

// Close lets requests end that have begun, and takes no new ones.
func TestCloseDrains(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.decode[0].set(habits{slow: 20 * time.Millisecond})
	done := make(chan reply)
	go func() { done <- c.post(openai.PathCompletions, completion("short", `,"stream":true`)) }()
	c.until("it runs", func() bool { return c.decode[0].open.Load() == 1 })
	c.close()
	(<-done).whole(t, "short", 5, 12)
}

// Close does not wait longer than it may.
func TestCloseEndsWhatDoesNotEnd(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.decode[0].set(habits{hangAfter: 3})
	done := make(chan reply)
	go func() { done <- c.post(openai.PathCompletions, completion("short", `,"stream":true`)) }()
	c.until("it runs", func() bool { return c.decode[0].open.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c.closedUp = true
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	<-done
	c.client.CloseIdleConnections()
	c.until("the engine is told", func() bool { return c.decode[0].canceled.Load() == 1 })
}

func TestAdmin(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "numbers") })
	c := newCell(t, 1, 1, func(o *Options) { o.MetricsPage = page })
	r := c.post(openai.PathCompletions, completion(longPrompt, ""))
	c.record(r)
	get := func(host, path string) reply {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.AdminAddr()+path, nil)
		request.Host = host
		return c.do(request)
	}
	for path, says := range map[string]string{
		"/health": `"ready": true`, "/ready": "ready", "/metrics": "numbers", "/debug/requests": r.header.Get(upstream.HeaderRequest),
		"/debug/requests/" + r.header.Get(upstream.HeaderRequest): `"kind": "prefill"`, "/debug/engines": `"id": "p0"`, "/debug/pprof/": "goroutine",
	} {
		got := get("localhost:1", path)
		if got.status != 200 || !bytes.Contains(got.body, []byte(says)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		if bytes.Contains(got.body, []byte("some length")) {
			t.Errorf("%s shows the prompt", path)
		}
		for host, status := range map[string]int{"evil.example": 403, "10.0.0.1:80": 403, "127.0.0.1": 200, "[::1]:9": 200} {
			if got := get(host, path); got.status != status {
				t.Errorf("%s for host %s: %d", path, host, got.status)
			}
		}
	}
	if got := get("localhost", "/debug/requests/none"); got.status != 404 {
		t.Errorf("a request that never was: %d", got.status)
	}
}

func TestOpenRefuses(t *testing.T) {
	backend := []Backend{{URL: "http://127.0.0.1:1", Role: 3}}
	for name, test := range map[string]struct {
		options Options
		says    string
	}{
		"nobody":          {Options{Listen: "127.0.0.1:0"}, "no engine can be found"},
		"no address":      {Options{Listen: "here", Backends: backend}, "not host:port"},
		"beyond loopback": {Options{Listen: "0.0.0.0:0", Backends: backend}, "beyond loopback"},
		"admin beyond":    {Options{Listen: "127.0.0.1:0", Admin: "0.0.0.0:0", Backends: backend}, "admin listener"},
		"empty key":       {Options{Listen: "127.0.0.1:0", APIKeys: []string{""}, Backends: backend}, "empty"},
		"no URL":          {Options{Listen: "127.0.0.1:0", Backends: []Backend{{URL: "127.0.0.1:80", Role: 3}}}, "URL"},
		"no role":         {Options{Listen: "127.0.0.1:0", Backends: []Backend{{URL: "http://x"}}}, "role"},
	} {
		g, err := Open(t.Context(), test.options)
		if err == nil {
			_ = g.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hangsUp goes away with the last byte of an answer that is no stream.
type hangsUp struct {
	*httptest.ResponseRecorder
	leave func()
}

func (h hangsUp) Flush() { h.leave() }

// A client that has its answer and goes has not abandoned it.
func TestAnAnswerThatWasTakenIsFinished(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.until("d0 serves", func() bool { return c.Metrics().Engines["decode"].Up == 1 })
	ctx, leave := context.WithCancel(t.Context())
	w := hangsUp{httptest.NewRecorder(), leave}
	body := strings.NewReader(completion("short", ""))
	c.publicHandler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, openai.PathCompletions, body))
	record, err := c.ledger.Find(w.Header().Get(upstream.HeaderRequest))
	if err != nil {
		t.Fatal(err)
	}
	if record.Outcome != ledger.Finished || ctx.Err() == nil {
		t.Errorf("got %s", record)
	}
}
