package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/openai"
)

// occupy has a stream run at a decode engine until end is called.
func (c *testCell) occupy(s *stub) (end func()) {
	c.t.Helper()
	before := s.open.Load()
	ctx, cancel := context.WithCancel(c.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(`{"model":"m","prompt":"other","max_tokens":100000,"stream":true}`))
	if err != nil {
		c.t.Fatal(err)
	}
	var active sync.WaitGroup
	active.Go(func() {
		response, err := c.client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
	end = func() { cancel(); active.Wait() }
	c.t.Cleanup(end)
	c.until("it runs", func() bool { return s.open.Load() > before })
	return end
}

// begin asks for a stream, and returns what waits for its end.
func (c *testCell) begin(body string) (end func() reply) {
	var got reply
	var active sync.WaitGroup
	active.Go(func() { got = c.post(openai.PathCompletions, body) })
	return func() reply { active.Wait(); return got }
}

const movingTokens = 200

func movingStream(prompt string) string {
	return `{"model":"m","prompt":"` + prompt + `","max_tokens":200,"seed":5,"stream":true}`
}

// atWork is what stubs do that let requests go, and have room for so many streams.
func atWork(room int) habits { return habits{moves: true, room: room, slow: 3 * time.Millisecond} }

func (c *testCell) openAt(s *stub, n int64) {
	c.t.Helper()
	c.until(s.id+" runs it", func() bool { return s.open.Load() == n })
}

// Where decode is full, the prefill engine generates, and the request goes over with its cache
// as soon as there is room.
func TestPrefillGeneratesUntilDecodeHasRoom(t *testing.T) {
	for name, story := range map[string]struct{ prompt, legs string }{
		"handed over before": {longPrompt, "prefill p0, decode d0 failed, decode p0, move d0"},
		"short":              {"short", "decode d0 failed, decode p0, move d0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 1, 1, nil)
			c.prefill[0].set(atWork(0))
			c.decode[0].set(atWork(1))
			leave := c.occupy(c.decode[0])
			end := c.begin(movingStream(story.prompt))
			c.openAt(c.prefill[0], 1)
			leave()
			got := end()
			got.whole(t, story.prompt, 5, movingTokens)
			record := c.record(got)
			if legsOf(record) != story.legs || record.Resumed != 0 || len(record.Moves) != 1 {
				t.Fatalf("legs: %s\n%s", legsOf(record), record)
			}
			if m := record.Moves[0]; m.Why != "room" || m.From != "p0" || m.To != "d0" || m.KV != openai.KVHandoff || m.GapMs <= 0 {
				t.Errorf("%+v", m)
			}
			if !strings.Contains(got.header.Get(edge.HeaderPlacement), "decode=p0 (decode engines are full)") {
				t.Errorf("placed: %s", got.header.Get(edge.HeaderPlacement))
			}
			if n := c.Metrics().Moves["room"]["moved"]; n != 1 {
				t.Errorf("%d are counted", n)
			}
			if given := c.decode[0].shared.givenBack(); len(given) != strings.Count(story.legs, "prefill p0") {
				t.Errorf("given back: %v", given)
			}
			// Who comes while it is known to be full does not ask it.
			c.occupy(c.decode[0])
			first := c.begin(movingStream(story.prompt))
			c.openAt(c.prefill[0], 1)
			got = c.begin(movingStream(story.prompt))()
			got.whole(t, story.prompt, 5, movingTokens)
			if legs := legsOf(c.record(got)); legs != "decode p0" {
				t.Errorf("legs: %s", legs)
			}
			first().whole(t, story.prompt, 5, movingTokens)
		})
	}
}

// Answers that could not leave a prefill engine again are refused as ever, and so is everybody
// where the prefill engine is full as well.
func TestWhoIsRefusedWhereDecodeIsFull(t *testing.T) {
	for name, story := range map[string]struct {
		more    string
		change  func(*Options)
		prefill int
	}{
		"whole":             {"", nil, 0},
		"two answers":       {`,"n":2,"stream":true`, nil, 0},
		"no resuming":       {`,"stream":true`, func(o *Options) { o.NoResume = true }, 0},
		"all engines full":  {`,"stream":true`, nil, http.StatusTooManyRequests},
		"prefill is no use": {`,"stream":true`, nil, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 1, 1, story.change)
			c.decode[0].set(habits{status: http.StatusTooManyRequests, fault: "full"})
			if story.prefill != 0 {
				c.prefill[0].set(habits{status: story.prefill, fault: "full"})
			}
			got := c.post(openai.PathCompletions, completion("short", story.more))
			if got.status != http.StatusTooManyRequests && story.prefill != http.StatusServiceUnavailable || got.status == http.StatusOK {
				t.Errorf("status %d: %s", got.status, got.body)
			}
		})
	}
}

// vLLM's engines, which cannot let a request go, do not generate for others.
func TestOnlyEnginesThatLetGoAreSpare(t *testing.T) {
	c := newCell(t, 1, 1, nil).vllm()
	c.decode[0].set(habits{status: http.StatusTooManyRequests, fault: "full"})
	if got := c.post(openai.PathCompletions, completion(longPrompt, `,"stream":true,"temperature":0`)); got.status != http.StatusTooManyRequests {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

// A receiver that is full after all, or dies: the stream goes on where it was.
func TestGoesBackWhereItWas(t *testing.T) {
	for name, story := range map[string]struct {
		decode  habits
		end     string
		resumed int
	}{
		"full":            {habits{status: http.StatusTooManyRequests, fault: "full"}, "returned", 0},
		"dies":            {habits{dieBefore: true}, "lost", 1},
		"dies in it":      {habits{dieAfter: 3}, "moved", 1},
		"the cache fails": {habits{noLoad: true}, "lost", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 1, 1, nil)
			c.prefill[0].set(atWork(0))
			c.decode[0].set(atWork(1))
			leave := c.occupy(c.decode[0])
			end := c.begin(movingStream(longPrompt))
			c.openAt(c.prefill[0], 1)
			c.decode[0].set(story.decode)
			leave()
			c.until("it came to that", func() bool { return c.Metrics().Moves["room"][story.end] > 0 || c.Metrics().Legs["move"]["busy"] > 0 })
			c.prefill[0].set(habits{slow: time.Millisecond}) // and stays
			got := end()
			got.whole(t, longPrompt, 5, movingTokens)
			record := c.record(got)
			if record.Resumed < story.resumed || record.Outcome != ledger.Finished {
				t.Errorf("%s", record)
			}
			c.until("it is counted", func() bool { return c.Metrics().Moves["room"][story.end] > 0 })
			if story.end == "returned" { // the prompt's ticket, and that of the answer so far
				c.until("its tickets are given back", func() bool { return len(c.decode[0].shared.givenBack()) == 2 })
			}
		})
	}
}

// A stream that has left an engine which takes it no more waits for one that is full.
func TestWaitsForRoom(t *testing.T) {
	for name, story := range map[string]struct {
		patience time.Duration
		room     bool
	}{
		"there will be room": {time.Minute, true},
		"there will be none": {300 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 0, 2, func(o *Options) { o.QueueTimeout = story.patience })
			c.decode[0].set(atWork(1))
			c.decode[1].set(atWork(1))
			end := c.begin(movingStream("short"))
			c.until("it runs", func() bool { return c.decode[0].open.Load()+c.decode[1].open.Load() == 1 })
			from, to := c.decode[0], c.decode[1]
			if to.open.Load() == 1 {
				from, to = to, from
			}
			leave := c.occupy(to)
			from.set(habits{status: http.StatusServiceUnavailable, moves: true}) // as one does that drains
			c.until("it is noticed", func() bool {
				for _, e := range c.roster.All() {
					if e.Name() == from.id && !e.Up.Load() {
						c.moves.Drain(e)
						return true
					}
				}
				return false
			})
			asked := len(to.seen())
			c.until("it was refused", func() bool { return len(to.seen()) > asked })
			if story.room {
				leave()
			}
			got := end()
			record := c.record(got)
			if story.room {
				got.whole(t, "short", 5, movingTokens)
				if len(record.Moves) != 1 || record.Moves[0].KV != openai.KVHandoff || record.Resumed != 0 {
					t.Errorf("%s", record)
				}
				return
			}
			if _, _, problem, done := got.text(t); done || !strings.Contains(problem, "no engine has room") {
				t.Errorf("done %v: %s", done, problem)
			}
			if c.Metrics().Moves["drain"]["lost"] != 1 {
				t.Errorf("%v", c.Metrics().Moves["drain"])
			}
		})
	}
}

// A full engine that was asked to let a request go is full until that has left: a stream that
// waits for room does not ask it over and over, and so run out of patience at once.
func TestFullUntilOneHasLeft(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	c.decode[0].set(atWork(1))
	c.decode[1].set(atWork(1))
	end := c.begin(movingStream("short"))
	c.until("it runs", func() bool { return c.decode[0].open.Load()+c.decode[1].open.Load() == 1 })
	from, to := c.decode[0], c.decode[1]
	if to.open.Load() == 1 {
		from, to = to, from
	}
	leave := c.occupy(to)
	from.set(habits{status: http.StatusTooManyRequests, moves: true}) // it does not take it back
	asked := len(to.seen())
	for _, e := range c.roster.All() {
		if e.Name() == to.id {
			e.Arriving.Add(-1) // one is asked to leave, and takes its time
		}
	}
	for _, e := range c.roster.All() {
		if e.Name() == from.id {
			c.moves.Drain(e)
		}
	}
	c.until("it was refused", func() bool { return len(to.seen()) > asked })
	before := time.Now()
	c.until("it waits", func() bool { return time.Since(before) > 200*time.Millisecond })
	if n := len(to.seen()) - asked; n > 4 {
		t.Errorf("it was asked %d times", n)
	}
	leave()
	end().whole(t, "short", 5, movingTokens)
}

// An engine that did not take it that a request is to leave, as when it does not have the
// request yet, is asked again: a prefill engine would generate to the answer's end.
func TestAskedAgainToLeave(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	c.prefill[0].set(habits{slow: 3 * time.Millisecond}) // it says that no such request runs
	c.decode[0].set(habits{moves: true, room: 1})
	leave := c.occupy(c.decode[0])
	end := c.begin(`{"model":"m","prompt":"short","max_tokens":4000,"seed":5,"stream":true}`)
	c.openAt(c.prefill[0], 1)
	leave()
	c.until("it was asked", func() bool {
		lent := c.moves.Lent()
		if len(lent) != 1 {
			return false
		}
		order, _ := lent[0].Asked()
		return !order.Unheard.IsZero()
	})
	for _, e := range c.roster.All() {
		if n := e.Arriving.Load(); n != 0 {
			t.Errorf("%d requests are counted on at %s", n, e.Name())
		}
	}
	c.prefill[0].set(habits{moves: true})
	got := end()
	got.whole(t, "short", 5, 4000)
	if record := c.record(got); len(record.Moves) != 1 || record.Moves[0].To != "d0" {
		t.Errorf("%s", record)
	}
}

// A stream that stands still goes on as soon as an engine says that it has room, which other
// gateways' requests have left, though that engine had asked for ten seconds.
func TestHearsOfRoom(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	c.decode[0].set(atWork(1))
	c.decode[1].set(atWork(1))
	end := c.begin(movingStream("short"))
	c.until("it runs", func() bool { return c.decode[0].open.Load()+c.decode[1].open.Load() == 1 })
	from, to := c.decode[0], c.decode[1]
	if to.open.Load() == 1 {
		from, to = to, from
	}
	to.open.Add(1) // another gateway's
	from.set(habits{status: http.StatusServiceUnavailable, moves: true})
	asked := len(to.seen())
	c.moves.Drain(c.engine(from))
	c.until("it was refused", func() bool { return len(to.seen()) > asked })
	c.until("it stands still", func() bool { return c.moves.StandStill() == 1 })
	to.open.Add(-1)
	got := end()
	got.whole(t, "short", 5, movingTokens)
	record := c.record(got)
	if len(record.Moves) != 1 || record.Moves[0].To != to.id || record.Moves[0].GapMs > 8000 || record.Moves[0].KV != openai.KVHandoff {
		t.Errorf("%s", record)
	}
	if n := strings.Count(legsOf(record), "move "+to.id); n != 2 {
		t.Errorf("it was asked %d times: %s", n, record)
	}
}

// A request for which a prefill engine generates hears of room that another gateway's request has
// left, too.
func TestLentHearsOfRoom(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	c.prefill[0].set(atWork(0))
	c.decode[0].set(atWork(1))
	c.decode[0].open.Add(1) // another gateway's
	end := c.begin(movingStream("short"))
	c.openAt(c.prefill[0], 1)
	c.decode[0].open.Add(-1)
	left := time.Now()
	c.until("it leaves", func() bool { return c.decode[0].open.Load() == 1 })
	if took := time.Since(left); took > 8*time.Second {
		t.Errorf("it heard of room after %v", took)
	}
	end().whole(t, "short", 5, movingTokens)
}
