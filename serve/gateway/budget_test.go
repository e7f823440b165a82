package gateway

import (
	"net/http"
	"strings"
	"testing"

	"meridian/serve/openai"
)

// Bodies take no more memory together than they may, and give it back.
func TestBodiesShareTheirMemory(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.MaxBodyBytes, o.MaxBodyMemory = 64<<10, 100<<10 })
	c.decode[0].set(habits{hangAfter: 3})
	large := completion(strings.Repeat("x", 60<<10), `,"stream":true`)
	conn := c.dial(large)
	c.until("its engine has it", func() bool { return c.decode[0].open.Load() == 1 })
	if r := c.post(openai.PathCompletions, large); !isFull(r, "102400 bytes") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := c.post("/v1/embeddings", large); !isFull(r, "102400 bytes") {
		t.Errorf("passed on: %d %s", r.status, r.body)
	}
	conn.Close()
	c.until("it is given back", func() bool { return c.admission.Held() == 0 })
}

// Answers that are gathered share their memory as well.
func TestAnswersShareTheirMemory(t *testing.T) {
	d := newFakeVLLM(t)
	d.whole = `{"choices":[{"text":"` + strings.Repeat("x", 90<<10) + `"}]}`
	c := beforeVLLM(t, nil, []*fakeVLLM{d}, func(o *Options) { o.MaxResponseBytes, o.MaxResponseMemory = 100<<10, 150<<10 })
	const request = `{"model":"m","prompt":"x"}`
	if r := c.post(openai.PathCompletions, request); r.status != http.StatusOK || string(r.body) != d.whole {
		t.Errorf("%d, %d bytes", r.status, len(r.body))
	}
	c.until("the first is given back", func() bool { return c.answers.Used() == 0 }) // the client has its answer before
	c.answers.Hold(120 << 10)
	r := c.post(openai.PathCompletions, request)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "1" || !strings.Contains(string(r.body), "ask for streams") {
		t.Errorf("%d %s", r.status, r.body)
	}
	c.answers.Release(120 << 10)
	c.post(openai.PathCompletions, request)
	c.until("all is given back", func() bool { return c.answers.Used() == 0 })
}
