package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/member/trust"
	"meridian/serve/gateway/edge"
	"meridian/serve/openai"
)

var (
	discard    = slog.New(slog.DiscardHandler)
	usualPlace = placement.Options{DirectTokens: 16, AffinityWeight: 1, RunningTokens: 64}
)

func openDirectory(t *testing.T) directory.Directory {
	t.Helper()
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func publish(t *testing.T, d directory.Directory, r directory.EngineRecord) {
	t.Helper()
	value, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Put(t.Context(), directory.Entry{Key: directory.EnginePrefix + r.ID, Value: value}); err != nil {
		t.Fatal(err)
	}
}

func TestEnginesOfTheDirectory(t *testing.T) {
	d := openDirectory(t)
	c := newCell(t, 0, 2, func(o *Options) { o.Backends, o.Directory = nil, d })
	if r := c.post(openai.PathCompletions, completion("short", "")); r.status != http.StatusServiceUnavailable {
		t.Errorf("without engines: %d %s", r.status, r.body)
	}
	record := directory.EngineRecord{ID: "d0", Incarnation: "1", URL: c.decode[0].server.URL, Role: "decode", Model: "m", BlockTokens: 16, Blocks: 100}
	publish(t, d, record)
	c.until("d0 serves", func() bool { return c.Metrics().Engines["decode"].Up == 1 })
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)

	// Records that cannot be used are passed over.
	publish(t, d, directory.EngineRecord{ID: "d1", Incarnation: "1", URL: "nonsense", Role: "decode", Model: "m"})
	publish(t, d, directory.EngineRecord{ID: "d2", Incarnation: "1", URL: "http://127.0.0.1:1", Role: "queen", Model: "m"})
	publish(t, d, directory.EngineRecord{ID: "d3", Incarnation: "1", Role: "decode", Model: "m"})

	// A new life is another engine, with nothing of the old one's.
	record.Incarnation, record.URL = "2", c.decode[1].server.URL
	publish(t, d, record)
	c.until("the new life serves", func() bool { e := c.roster.Get("d0@2"); return e != nil && e.Up.Load() })
	if c.roster.Get("d0@1") != nil || len(c.roster.All()) != 1 {
		t.Errorf("known are %d", len(c.roster.All()))
	}
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
	if len(c.decode[1].seen()) != 1 {
		t.Error("the new life was not asked")
	}

	if err := d.Delete(t.Context(), directory.EnginePrefix+"d0", directory.Any); err != nil {
		t.Fatal(err)
	}
	// Its agent is gone, it is not: it goes on serving, until it does not answer.
	c.until("d0 has said that it lives", func() bool { e := c.roster.Get("d0@2"); return e != nil && e.Stray.Load() && e.Up.Load() })
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
	c.decode[1].server.CloseClientConnections()
	c.decode[1].server.Close()
	c.until("d0 is gone", func() bool { return len(c.roster.All()) == 0 })
	if r := c.post(openai.PathCompletions, completion("short", "")); r.status != http.StatusServiceUnavailable {
		t.Errorf("a model that was served: %d %s", r.status, r.body)
	}
}

// An engine that comes while a request waits for one serves it.
func TestRequestsWaitForAnEngine(t *testing.T) {
	d := openDirectory(t)
	c := newCell(t, 0, 1, func(o *Options) { o.Backends, o.Directory, o.EngineWait = nil, d, 10*time.Second })
	done := make(chan reply)
	go func() { done <- c.post(openai.PathCompletions, completion("short", `,"stream":true`)) }()
	c.until("it waits", func() bool { return c.Metrics().Running == 1 })
	publish(t, d, directory.EngineRecord{ID: "d0", Incarnation: "1", URL: c.decode[0].server.URL, Role: "decode", Model: "m"})
	(<-done).whole(t, "short", 5, 12)
}

// An engine that hangs keeps its record; only its silence tells.
func TestAHungEngineIsDoubted(t *testing.T) {
	t.Parallel()
	d := openDirectory(t)
	c := newCell(t, 0, 2, func(o *Options) { o.Backends, o.Directory, o.ProbeTimeout = nil, d, standstill })
	for i, s := range c.decode {
		publish(t, d, directory.EngineRecord{ID: s.id, Incarnation: "1", URL: c.decode[i].server.URL, Role: "decode", Model: "m"})
	}
	c.until("both serve", func() bool { return c.Metrics().Engines["decode"].Up == 2 })
	c.decode[0].set(habits{hung: true, deaf: true})
	c.until("d0 is doubted", func() bool { return !c.roster.Get("d0@1").Up.Load() })
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)

	// A doubted engine is better than none.
	if err := d.Delete(t.Context(), directory.EnginePrefix+"d1", directory.Any); err != nil {
		t.Fatal(err)
	}
	c.decode[1].server.CloseClientConnections()
	c.decode[1].server.Close()
	c.until("d1 is gone", func() bool { return len(c.roster.All()) == 1 })
	c.decode[0].set(habits{hung: true})
	for _, path := range []string{openai.PathCompletions, "/v1/responses"} {
		if r := c.post(path, completion("short", "")); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	c.decode[0].set(habits{})
	c.until("d0 is believed again", func() bool { return c.roster.Get("d0@1").Up.Load() })
}

// A listed engine that was started anew may serve something else.
func TestAListedEngineComesBackWithAnotherModel(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.until("m is served", func() bool { return slices.Contains(c.roster.Models(), "m") })
	c.decode[0].set(habits{status: http.StatusServiceUnavailable})
	c.until("it is down", func() bool { return !c.roster.All()[0].Up.Load() })
	c.decode[0].set(habits{model: "other", owner: "another kind of server"})
	c.until("the other model is served", func() bool { return slices.Contains(c.roster.Models(), "other") })
	if slices.Contains(c.roster.Models(), "m") {
		t.Error("the model that is gone is still offered")
	}
	if a := c.roster.All()[0].About.Load(); a.Kind != openai.KindOther || !a.Nameless {
		t.Errorf("it is taken for what it was: kind %v, name %q", a.Kind, a.ID)
	}
}

// secured is a cell whose clients come by TLS, and how they do.
func secured(t *testing.T, change func(*Options)) (*testCell, *trust.Authority, func() *http.Transport) {
	t.Helper()
	authority, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	files, err := authority.Issue(trust.Request{Name: "gateway", Hosts: []string{"127.0.0.1", "gateway.example"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := edge.TLSFromFiles(files.Cert, files.Key, discard)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c := newCell(t, 0, 1, func(o *Options) {
		o.TLS = config
		change(o)
	})
	return c, authority, func() *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	}
}

// Over HTTP/2 the time that a client has to take a piece must not run while the
// engine thinks.
func TestHTTP2WaitsForAnEngine(t *testing.T) {
	c, _, transport := secured(t, func(o *Options) { o.ClientTimeout = 500 * time.Millisecond })
	c.client.Transport = transport()
	c.decode[0].set(habits{slow: 1500 * time.Millisecond})
	for _, path := range []string{openai.PathCompletions, "/v1/responses"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.Addr()+path, strings.NewReader(`{"model":"m","prompt":"short","max_tokens":3,"seed":5,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		r := c.do(request)
		if r.err != nil || r.status != http.StatusOK {
			t.Errorf("%s: %d %v %s", path, r.status, r.err, r.body)
			continue
		}
		if text, _, problem, done := r.text(t); text != textOf(tokensOf("short", 5, 3)) || problem != "" || !done {
			t.Errorf("%s: %q %q", path, text, problem)
		}
	}
}

// Clients come in by TLS, with a certificate that may change.
func TestTLS(t *testing.T) {
	c, authority, newTransport := secured(t, func(*Options) {})
	serial := func() string {
		transport := newTransport()
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("https://" + c.Addr() + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Errorf("%s %s", response.Proto, response.Status)
		}
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if _, err := authority.Issue(trust.Request{Name: "gateway", Renew: true}); err != nil {
		t.Fatal(err)
	}
	c.until("the new certificate is shown", func() bool { return serial() != first })
}
