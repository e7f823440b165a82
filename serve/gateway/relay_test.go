package gateway

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// settled is a relay in the middle of a greedy answer, at a chunk of two tokens:
// after none of those can another engine go on.
func settled() *relay {
	r := &relay{x: &exchange{life: lifecycle.Life{Route: lifecycle.Route{Begun: true, Resume: lifecycle.ResumeGreedy}}}}
	r.chunk = openai.Chunk{Answered: true, HasTokens: true, Tokens: []uint32{1, 2}, Text: []byte(`"a piece of some twenty bytes"`)}
	return r
}

// What is kept to go on elsewhere costs what it is long, not the square of it.
func TestWhatIsKeptGrowsEvenly(t *testing.T) {
	const pieces = 10_000
	r := settled()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pieces {
		r.settle()
	}
	runtime.ReadMemStats(&after)
	text := len(r.x.life.Answer.Beyond.Text)
	if spent := after.TotalAlloc - before.TotalAlloc; text < 20*pieces || spent > 100*uint64(text) {
		t.Errorf("%d bytes were taken for %d", spent, text)
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	r := settled()
	r.x.life.Answer.SoFar = make([]uint32, maxResumed)
	r.settle()
	if r.settle(); r.x.life.Route.Resume != lifecycle.ResumeNever || r.x.life.Answer.SoFar != nil || r.x.life.Answer.Beyond.Tokens != nil {
		t.Errorf("%d and %d tokens are kept", len(r.x.life.Answer.SoFar), len(r.x.life.Answer.Beyond.Tokens))
	}
}

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
