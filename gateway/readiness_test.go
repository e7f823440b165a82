package gateway

import (
	"context"
	"net/http"
	"testing"
	"time"

	"meridian/meta"
	"meridian/meta/memdir"
	"meridian/openai"
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
		publish(t, client, meta.EngineRecord{ID: s.id, Incarnation: "1", URL: s.server.URL, Role: role, Model: "m"})
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
	for _, s := range c.decode { // the one that prefills goes on, and serves nobody alone
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
	for _, e := range c.roster.all() { // they were lost long ago
		e.lostAt.Store(time.Now().Add(-time.Hour).UnixNano())
	}
	c.roster.mu.Lock()
	c.roster.lostAt = time.Now().Add(-time.Hour)
	c.roster.mu.Unlock()
	for _, prompt := range []string{"short", longPrompt} {
		began := time.Now()
		r := c.post(openai.PathCompletions, completion(prompt, ""))
		if took := time.Since(began); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || took > 20*time.Second {
			t.Errorf("%d %q after %v: %s", r.status, r.header.Get("Retry-After"), took, r.body)
		}
	}
	if n := len(c.prefill[0].seen()); n > 0 {
		t.Errorf("%d prompts were computed for nobody", n)
	}
}
