package prefix

import (
	"time"

	"meridian/move/transceiver/handoff"
)

// fetch is a segment that an engine was told of, until its hand-off has ended.
type fetch struct {
	engine string
	tokens int
	asked  time.Duration // until it was granted
}

// maxFetches bounds how many are remembered; of what is beyond, the time is not measured.
const maxFetches = 4096

// worth says whether a run of so many tokens is better fetched than computed.
func (c *Cache) worth(e *engine, tokens int, tokenTime time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.tokenTime = tokenTime
	return e.breakEven.Worth(tokens, float64(tokenTime)/float64(time.Microsecond))
}

// expect notes what was found, and how long its owners took to grant it.
func (c *Cache) expect(engine string, found Found, asked time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fetches)+len(found.Segments) > maxFetches {
		clear(c.fetches) // engines find, and do not fetch
	}
	for _, s := range found.Segments {
		if ticket, err := c.options.Transceiver.OpenTicket(s.Ticket, nil); err == nil {
			c.fetches[ticket.Transfer] = fetch{engine: engine, tokens: s.End - s.Start, asked: asked}
		}
	}
}

// Ended hears of every hand-off of this agent that has ended: how long those took that
// brought what was found.
func (c *Cache) Ended(r *handoff.Record) {
	if r.As != handoff.Destination {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f, is := c.fetches[r.Transfer]
	delete(c.fetches, r.Transfer)
	e := c.engines[f.engine]
	if !is || e == nil || r.Problem != "" || r.Stages.Ended <= r.Stages.Begun || f.tokens < 1 {
		return
	}
	e.breakEven.Fetched(f.tokens, float64(f.asked)/float64(time.Microsecond)+float64(r.Stages.Ended-r.Stages.Begun))
}
