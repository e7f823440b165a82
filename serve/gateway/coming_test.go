package gateway

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"meridian/serve/openai"
)

// A prompt that begins like one which an engine is computing goes to that engine, and not
// any more when that one's client has left: then no engine computes it.
func TestWhatBeginsAlikeGoesWhereItIsComputed(t *testing.T) {
	for name, kinds := range map[string][2]int{"prefill engines": {3, 1}, "decode engines": {0, 3}} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, kinds[0], kinds[1], nil)
			all := append(c.prefill, c.decode...)
			computing := all[:3] // where there are prefill engines, these compute
			for _, s := range computing {
				s.set(habits{deaf: true})
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var asked sync.WaitGroup
			ask := func(prompt string) {
				asked.Go(func() {
					request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(completion(prompt, "")))
					if err != nil {
						t.Error(err)
						return
					}
					c.do(request)
				})
			}
			waiting := func() map[string]int64 {
				tokens := make(map[string]int64)
				for _, e := range c.roster.All() {
					if n := e.Waiting.Load(); n > 0 {
						tokens[e.Name()] = n
					}
				}
				return tokens
			}
			ask(firstTurn)
			c.until("an engine computes the first turn", func() bool { return len(waiting()) == 1 })
			first := waiting()
			ask(secondTurn)
			c.until("an engine computes the second turn", func() bool { return !maps.Equal(waiting(), first) })
			if now := waiting(); len(now) != 1 {
				t.Errorf("one computes %v, with the second turn %v", first, now)
			}
			leave()
			asked.Wait()
			c.until("nothing is computed", func() bool { return len(waiting()) == 0 })
			for _, s := range all {
				s.set(habits{})
			}
			third := c.record(c.post(openai.PathCompletions, completion(secondTurn, "")))
			if strings.Contains(third.Placement, "computing") {
				t.Errorf("when no engine computes it, it was placed as %q", third.Placement)
			}
		})
	}
}

// What is under way is forgotten with the request, however it ends.
func TestNothingComesOfRequestsThatEnded(t *testing.T) {
	c := newCell(t, 1, 2, nil)
	c.prefill[0].set(habits{dieBefore: true})
	for range 3 {
		c.post(openai.PathCompletions, completion(firstTurn, ""))
	}
	for _, e := range c.roster.All() {
		if waiting, hashes := e.Waiting.Load(), c.roster.Underway(e.Key); waiting != 0 || hashes != 0 {
			t.Errorf("%s: %d tokens wait, %d hashes come", e.Name(), waiting, hashes)
		}
	}
}
