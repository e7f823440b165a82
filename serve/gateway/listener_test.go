package gateway

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/serve/openai"
)

// connect opens a connection and sends what is given.
func (c *testCell) connect(to, text string) net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", to)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// answer reads a response by hand.
func (c *testCell) answer(conn net.Conn) reply {
	c.t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply{status: response.StatusCode, header: response.Header, body: body}
}

// begun is a request of which only the beginning is sent.
func begun(path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n{", path, length)
}

func isFull(r reply, says string) bool {
	return r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") == "1" && strings.Contains(string(r.body), says)
}

// Requests that are being sent take places, too: who sends slowly cannot have
// the gateway read ever more of them.
func TestRequestsBeingReadAreBounded(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.MaxRunning, o.MaxWaiting = 1, 1 })
	var slow []net.Conn
	for range 2 {
		slow = append(slow, c.connect(c.Addr(), begun(openai.PathCompletions, 100)))
	}
	c.until("both are read", func() bool { return int64(c.Metrics().Reading) == 2 })
	for _, path := range []string{openai.PathCompletions, openai.PathChat, "/tokenize"} {
		if r := c.post(path, completion("short", "")); !isFull(r, "being sent") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := c.answer(c.connect(c.AdminAddr(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")); r.status != http.StatusOK {
		t.Errorf("the admin listener: %d", r.status)
	}
	for _, conn := range slow {
		conn.Close()
	}
	c.until("they are gone", func() bool { return int64(c.Metrics().Reading) == 0 })
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
	c.until("no byte is held", func() bool { return c.admission.Held() == 0 })
	if c.Metrics().Overloaded != 2 {
		t.Errorf("%d were counted", c.Metrics().Overloaded)
	}
}

// While no more clients can wait, nothing is read.
func TestNothingIsReadInVain(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.MaxRunning, o.MaxWaiting = 1, -1 })
	c.decode[0].set(habits{hangAfter: 3})
	c.dial(completion("short", `,"stream":true`))
	c.until("its engine has it", func() bool { return c.decode[0].open.Load() == 1 })
	if r := c.answer(c.connect(c.Addr(), begun(openai.PathCompletions, 1<<20))); !isFull(r, "1 requests run") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A body that is not wanted must come in time as well: the server reads it before
// it answers.
func TestBodiesThatNobodyReads(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.BodyTimeout, o.APIKeys = 50*time.Millisecond, []string{"k"} })
	for name, head := range map[string]string{
		"unknown endpoint": begun("/nowhere", 100),
		"no key":           begun(openai.PathCompletions, 100),
		"health":           begun("/ping", 100),
		"a GET":            strings.Replace(begun("/health", 100), "POST", "GET", 1),
		"a GET, passed on": strings.Replace(begun("/version", 100), "POST", "GET", 1),
	} {
		conn := c.connect(c.Addr(), head)
		began := time.Now()
		if _, err := io.Copy(io.Discard, conn); err != nil { // its answer, and the end
			t.Errorf("%s: after %v: %v", name, time.Since(began), err)
		}
	}
}

// Where all connections are taken, one that waits for nothing makes room; else
// the newcomer hears why. Operators come in all the same.
func TestConnectionsAreBounded(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.MaxConnections = 2 })
	const ping = "GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n"
	idle := c.connect(c.Addr(), ping)
	if r := c.answer(idle); r.status != http.StatusOK {
		t.Fatalf("status %d", r.status)
	}
	c.until("it is idle", func() bool {
		return c.public.Idling() == 1
	})
	c.connect(c.Addr(), begun(openai.PathCompletions, 100))
	c.connect(c.Addr(), begun(openai.PathCompletions, 100))
	c.until("both are read", func() bool { return int64(c.Metrics().Reading) == 2 })
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	for range 3 {
		r := c.answer(c.connect(c.Addr(), ping))
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "1" || !strings.Contains(string(r.body), openai.CodeOverloaded) {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
	}
	if m := c.Metrics(); m.Connections != 2 || m.Unadmitted != 3 {
		t.Errorf("%d are there, %d were refused", m.Connections, m.Unadmitted)
	}
	if r := c.answer(c.connect(c.AdminAddr(), strings.Replace(ping, "gateway", "localhost", 1))); r.status != http.StatusOK {
		t.Errorf("the admin listener: %d", r.status)
	}
}

func TestTooFewFilesAreToldOf(t *testing.T) {
	var log strings.Builder
	o := Options{MaxRunning: 100, MaxConnections: 200, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if o.warnOfFiles(656); log.Len() > 0 {
		t.Errorf("enough, and it says %s", &log)
	}
	if o.warnOfFiles(655); !strings.Contains(log.String(), "needed=656 limit=655") {
		t.Errorf("too few, and it says %q", &log)
	}
}

func TestConnectionLimit(t *testing.T) {
	for _, test := range []struct {
		running, waiting int
		files            uint64
		want             int
	}{
		{1024, 1024, 1 << 20, 4160},
		{1024, 1024, 1 << 63, 4160},
		{1024, -1, 1 << 20, 2112},
		{1024, 1024, 4096, 4096 - 2048 - 256},
		{1024, 1024, 1024, 256},
		{1, 1, 0, 1},
	} {
		if got := connectionLimit(&Options{MaxRunning: test.running, MaxWaiting: test.waiting}, test.files); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}

// A connection that has never asked for anything makes room as well, once it has
// had its time.
func TestFreshConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	c := newCell(t, 0, 1, func(o *Options) { o.MaxConnections = 1 })
	silent := c.connect(c.Addr(), "")
	c.until("it is there", func() bool { return c.Metrics().Connections == 1 })
	const ping = "GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n"
	if r := c.answer(c.connect(c.Addr(), ping)); r.status != http.StatusServiceUnavailable {
		t.Errorf("at once: %d", r.status)
	}
	c.until("it has had its time", func() bool { return c.answer(c.connect(c.Addr(), ping)).status == http.StatusOK })
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the silent connection: %v", err)
	}
}

// With TLS and HTTP/2 connections are counted as without: an idle one makes
// room, and one whose request is being sent slowly does so after its time.
func TestConnectionsAreBoundedOverTLS(t *testing.T) {
	t.Parallel()
	c, _, newTransport := secured(t, func(o *Options) { o.MaxConnections, o.BodyTimeout = 1, standstill })
	idle := func() bool {
		return c.public.Idling() == 1
	}
	for range 3 {
		transport := newTransport()
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("https://" + c.Addr() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		c.until("its connection is idle", idle)
	}
	transport := newTransport()
	defer transport.CloseIdleConnections()
	slow, stop := io.Pipe()
	defer stop.Close()
	response, err := (&http.Client{Transport: transport}).Post("https://"+c.Addr()+openai.PathCompletions, "application/json", slow)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout || response.ProtoMajor != 2 || c.Metrics().Connections != 1 {
		t.Errorf("%s %s, %d connections", response.Proto, response.Status, c.Metrics().Connections)
	}
}
