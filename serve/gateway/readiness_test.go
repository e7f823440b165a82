package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// While the directory is away and no engine answers, the gateway says so: it is not
// ready, and requests are refused at once, with a time after which to try again.
func TestNoEngineAnswersAndTheDirectoryIsAway(t *testing.T) {
	client, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	c := newCell(t, 1, 2, func(o *Options) { o.Backends, o.Directory, o.EngineWait = nil, client, 25*time.Second })
	for _, s := range append(c.prefill, c.decode...) {
		role := map[byte]string{'p': "prefill", 'd': "decode"}[s.id[0]]
		publish(t, client, directory.EngineRecord{ID: s.id, Incarnation: "1", URL: s.server.URL, Role: role, Model: "m"})
	}
	status := func(address, path string) int {
		response, err := c.client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	c.until("all serve", func() bool { return c.Metrics().Engines["decode"].Up == 2 && c.Metrics().Engines["prefill"].Up == 1 })
	if got := status(c.Addr(), "/ready"); got != http.StatusOK {
		t.Errorf("/ready says %d of engines that answer", got)
	}
	client.SetOutage(memdir.Refused)
	c.until("the directory is away", func() bool { return !c.Metrics().DirectoryKnown })
	for _, s := range c.decode { // the one that prefills goes on, and serves no client alone
		s.server.CloseClientConnections()
		s.server.Close()
	}
	c.until("they are doubted", func() bool { return c.Metrics().Engines["decode"].Up == 0 })
	for address, paths := range map[string][]string{c.Addr(): {"/ready"}, c.AdminAddr(): {"/ready", "/health"}} {
		for _, path := range paths {
			if got := status(address, path); got != http.StatusServiceUnavailable {
				t.Errorf("%s says %d of engines that do not answer", path, got)
			}
		}
	}
	c.roster.SetLastLoss(time.Now().Add(-time.Hour))
	for _, prompt := range []string{"short", longPrompt} {
		began := time.Now()
		r := c.post(openai.PathCompletions, completion(prompt, ""))
		if took := time.Since(began); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || took > 20*time.Second {
			t.Errorf("%d %q after %v: %s", r.status, r.header.Get("Retry-After"), took, r.body)
		}
	}
	if n := len(c.prefill[0].seen()); n > 0 {
		t.Errorf("%d prompts were computed for no client", n)
	}
}

// A gateway that retires says so where load balancers ask, and goes on serving.
func TestRetire(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	status := func(path string) int {
		response, err := c.client.Get("http://" + c.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if got := status("/ready"); got != http.StatusOK {
		t.Fatalf("/ready says %d", got)
	}
	c.Retire()
	if ready, alive := status("/ready"), status("/health"); ready != http.StatusServiceUnavailable || alive != http.StatusOK {
		t.Errorf("/ready says %d and /health %d of a gateway that retires", ready, alive)
	}
	c.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
}

// A client gets its own name for its request back, and finds it by that name.
func TestClientsNameTheirRequests(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	for name, kept := range map[string]bool{"order-4711": true, "": false, "two words": false, strings.Repeat("x", upstream.MaxClientID+1): false} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(completion("short", "")))
		request.Header.Set(upstream.HeaderClientRequest, name)
		r := c.do(request)
		own, told := r.header.Get(upstream.HeaderRequest), r.header.Get(upstream.HeaderClientRequest)
		record := c.record(r)
		if kept && (told != name || record.ClientID != name) || !kept && (told != own || record.ClientID != "") || own == name {
			t.Errorf("%q: answered as %q, recorded as %q, own id %q", name, told, record.ClientID, own)
		}
		sent := c.decode[0].seen()
		if got := sent[len(sent)-1].header.Get(upstream.HeaderClientRequest); got != own {
			t.Errorf("%q: the engine was told %q, which need not be unique", name, got)
		}
	}
}

// A method that an endpoint does not have is told from an endpoint that is not there.
func TestMethods(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	for path, allowed := range map[string]string{openai.PathChat: "POST", openai.PathCompletions: "POST", openai.PathModels: "GET", openai.PathModels + "/m": "GET", "/ready": "GET"} {
		request, _ := http.NewRequestWithContext(t.Context(), map[string]string{"POST": "GET", "GET": "DELETE"}[allowed], "http://"+c.Addr()+path, nil)
		if r := c.do(request); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") != allowed {
			t.Errorf("%s %s: %d, allowed %q: %s", request.Method, path, r.status, r.header.Get("Allow"), r.body)
		}
	}
	if r := c.post("/v1/nothing", "{}"); r.status != http.StatusNotFound {
		t.Errorf("an endpoint that is not there: %d", r.status)
	}
}
