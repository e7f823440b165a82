package gateway

import (
	"net/http"
	"strings"
	"testing"

	"meridian/serve/openai"
)

// An engine that goes on saying nothing is lost, before it has taken the
// gateway's memory.
func TestEventsThatSayNothing(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
	nothing := `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"x":"` + strings.Repeat("x", 60<<10) + `"}` + "\n\n"
	d.stream = strings.Repeat(nothing, 40) + "data: [DONE]\n\n"
	r := cell.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`)
	if r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "say nothing") {
		t.Errorf("%d, %d bytes", r.status, len(r.body))
	}
	d.stream = strings.Repeat(nothing, 4) + "data: [DONE]\n\n"
	if r := cell.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`); r.status != http.StatusOK || string(r.body) != d.stream {
		t.Errorf("a few: %d, %d bytes", r.status, len(r.body))
	}
}

// The first event may be larger than all that is held otherwise: it has the prompt's
// tokens for a client that asks for them.
func TestFirstEventOfALongPrompt(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
	first := `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[` + strings.Repeat("128000,", maxHeld/7) + `1]}` + "\n\n"
	d.stream = first + `data: {"id":"1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	r := cell.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"return_token_ids":true}`)
	if r.status != http.StatusOK || string(r.body) != d.stream {
		t.Errorf("%d, %d bytes: %.200s", r.status, len(r.body), r.body)
	}
}
