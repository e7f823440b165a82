package gateway

import (
	"net/http"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
)

// Where one engine has much more to do than another for a while, some of its streams leave,
// until the two are about even, and no more; where that is turned off, or the other has as much
// to do for other gateways, none does.
func TestMovesForBalance(t *testing.T) {
	for name, story := range map[string]struct {
		on     bool
		others int
		moves  bool
	}{
		"on":           {true, 0, true},
		"off":          {false, 0, false},
		"even for all": {true, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 0, 2, func(o *Options) { o.MoveForBalance = story.on })
			c.decode[0].set(habits{moves: true, slow: 10 * time.Millisecond})
			c.decode[1].set(habits{status: http.StatusTooManyRequests, fault: "full"})
			const streams = 6
			var ends []func() reply
			for range streams {
				ends = append(ends, c.begin(`{"model":"m","prompt":"short","max_tokens":1000,"seed":5,"stream":true}`))
			}
			c.openAt(c.decode[0], streams)
			c.decode[1].set(habits{moves: true, slow: time.Millisecond, others: story.others})
			moved := 0
			for _, end := range ends {
				got := end()
				got.whole(t, "short", 5, 1000)
				record := c.record(got)
				moved += len(record.Moves)
				for _, m := range record.Moves {
					if m.Why != "balance" || m.From != "d0" || m.To != "d1" || m.GapMs <= 0 {
						t.Errorf("%+v", m)
					}
				}
				if record.Resumed != 0 || len(record.Moves) > 2 {
					t.Errorf("%s", record)
				}
			}
			if (moved > 0) != story.moves || moved == streams {
				t.Errorf("%d moved", moved)
			}
			if got := c.Metrics().Moves["balance"]["moved"]; int(got) != moved {
				t.Errorf("%d are counted of %d", got, moved)
			}
			for _, e := range c.roster.All() {
				if n := e.Arriving.Load(); n != 0 {
					t.Errorf("%d requests are still counted on at %s", n, e.Name())
				}
			}
		})
	}
}

// A receiver that is full, or dies, when a request comes that left by choice: it goes on where
// it was.
func TestBalanceGoesBack(t *testing.T) {
	for name, receiver := range map[string]habits{
		"full": {status: http.StatusTooManyRequests, fault: "full"},
		"dies": {dieBefore: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 0, 2, nil)
			c.decode[0].set(atWork(0))
			c.decode[1].set(habits{status: http.StatusTooManyRequests, fault: "full"})
			end := c.begin(movingStream("short"))
			c.openAt(c.decode[0], 1)
			c.decode[1].set(receiver)
			var leg *moves.Leg
			c.until("it runs", func() bool {
				if legs := c.moves.ByModel()["m"]; len(legs) == 1 && legs[0].Answered.Load() > 3 {
					leg = legs[0]
				}
				return leg != nil
			})
			for _, e := range c.roster.All() {
				if e.Name() == "d1" {
					c.moves.AskFor(leg, lifecycle.ByBalance, e, placement.Reason{Kind: placement.RunsLess, Tokens: 9, Held: 1})
				}
			}
			got := end()
			got.whole(t, "short", 5, movingTokens)
			if record := c.record(got); len(record.Moves) != 1 || record.Moves[0].Why != "balance" || len(record.Legs) < 3 {
				t.Errorf("%s", record)
			}
		})
	}
}
