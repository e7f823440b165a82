package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// An answer that goes on with another vLLM is the same to the last byte, wherever
// the first one was lost: between tokens, within a character, after pieces of any
// size.
func TestGreedyOverlap(t *testing.T) {
	for size := range 6 {
		for lostAfter := 1; lostAfter < 12 && (size+1)*lostAfter < len(speech); lostAfter++ {
			first, second := newFakeVLLM(t), newFakeVLLM(t)
			first.dies, first.chunks = true, slices.Repeat([]int{size + 1}, lostAfter)
			second.dies, second.chunks = true, slices.Repeat([]int{size + 1}, lostAfter)
			third := newFakeVLLM(t)
			third.chunks = []int{2, 3, 1, 4}
			cell := beforeVLLM(t, nil, []*fakeVLLM{first, second, third}, func(o *Options) { o.ProbeInterval = time.Hour })
			cell.prefer("d0", "d1")
			cell.prefer("d0")
			r := cell.post(openai.PathCompletions, fmt.Sprintf(`{"model":"m","prompt":"ask","temperature":0,"stream":true,"max_tokens":%d,"stream_options":{"include_usage":true}}`, len(speech)))
			text, _, problem, done := r.text(t)
			if text != speech || problem != "" || !done {
				t.Fatalf("pieces of %d, lost after %d: got %q, %q, %v", size+1, lostAfter, text, problem, done)
			}
			if !strings.Contains(string(r.body), fmt.Sprintf(`"usage":{"prompt_tokens":3,"completion_tokens":%d,"total_tokens":%d}`, len(speech), 3+len(speech))) {
				t.Fatalf("pieces of %d, lost after %d: %s", size+1, lostAfter, r.events[len(r.events)-2])
			}
			if strings.Contains(string(r.body), "token_ids") {
				t.Fatalf("the client did not ask for ids: %s", r.body)
			}
			cell.close()
		}
	}
}

// A client that asked for the ids of tokens gets each of them once.
func TestGreedyOverlapOfIDs(t *testing.T) {
	first, second := newFakeVLLM(t), newFakeVLLM(t)
	first.dies, first.chunks = true, []int{1, 3, 1, 2}
	second.dies, second.chunks = true, []int{3, 1, 4}
	cell := beforeVLLM(t, nil, []*fakeVLLM{first, second, newFakeVLLM(t)}, func(o *Options) { o.ProbeInterval = time.Hour })
	cell.prefer("d0", "d1")
	cell.prefer("d0")
	r := cell.post(openai.PathCompletions, fmt.Sprintf(`{"model":"m","prompt":"ask","temperature":0,"stream":true,"max_tokens":%d,"return_token_ids":true}`, len(speech)))
	var ids []byte
	for _, event := range r.events {
		var c openai.Chunk
		if c.Parse([]byte(event)) {
			for _, id := range c.Tokens {
				ids = append(ids, byte(id))
			}
		}
	}
	if text, _, _, _ := r.text(t); text != speech || string(ids) != speech {
		t.Errorf("got %q of %q", ids, text)
	}
}

// An engine that goes on otherwise is not believed.
func TestGreedyOverlapDiffers(t *testing.T) {
	s := lifecycle.Overlap{Tokens: []uint32{1, 2, 3}, Text: []byte("abc")}
	if tokens, text, ok := s.Repeat([]uint32{1}, "ab"); !ok || len(tokens) != 0 || text != "" {
		t.Errorf("got %v, %q, %v", tokens, text, ok)
	}
	if tokens, text, ok := s.Repeat([]uint32{2, 3, 4}, "cd"); !ok || !slices.Equal(tokens, []uint32{4}) || text != "d" || !s.IsEmpty() {
		t.Errorf("got %v, %q, %v", tokens, text, ok)
	}
	s = lifecycle.Overlap{Tokens: []uint32{1}, Text: []byte("abc")}
	if _, _, ok := s.Repeat([]uint32{2}, ""); ok {
		t.Error("another token was taken")
	}
	if _, _, ok := s.Repeat(nil, "abd"); ok {
		t.Error("another text was taken")
	}
}
