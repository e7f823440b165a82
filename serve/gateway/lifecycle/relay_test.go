package lifecycle

import (
	"runtime"
	"testing"

	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// settled is a life in the middle of a greedy answer, with a chunk of two tokens:
// after none of those can another engine go on.
func settled() (*Life, Piece) {
	l := &Life{Request: &request.Request{}, route: Route{Begun: true, Resume: ResumeGreedy}}
	return l, Piece{Chunk: &openai.Chunk{Answered: true, HasTokens: true, Tokens: []uint32{1, 2}, Text: []byte(`"a piece of some twenty bytes"`)}}
}

// What is kept to go on elsewhere costs what it is long, not the square of it.
func TestWhatIsKeptGrowsEvenly(t *testing.T) {
	const pieces = 10_000
	l, p := settled()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pieces {
		l.Settle(p, placedAt)
	}
	runtime.ReadMemStats(&after)
	text := len(l.answer.Beyond.Text)
	if spent := after.TotalAlloc - before.TotalAlloc; text < 20*pieces || spent > 100*uint64(text) {
		t.Errorf("%d bytes were taken for %d", spent, text)
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	l, p := settled()
	l.answer.SoFar = make([]uint32, maxResumed)
	l.Settle(p, placedAt)
	if l.Settle(p, placedAt); l.route.Resume != ResumeNever || l.answer.SoFar != nil || l.answer.Beyond.Tokens != nil {
		t.Errorf("%d and %d tokens are kept", len(l.answer.SoFar), len(l.answer.Beyond.Tokens))
	}
}
