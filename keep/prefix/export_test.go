package prefix

import (
	"time"

	"meridian/kv"
)

// MaxVerified is how many bytes are looked at for finders at a time.
const MaxVerified = maxVerified

// Verify takes a part of what may be looked at for finders, until it is given back.
func (c *Cache) Verify(bytes uint64) (giveBack func(), ok bool) {
	ok = c.enter(&c.verifying, bytes)
	return func() { c.leave(&c.verifying, bytes) }, ok
}

// MaxTold is how many owners are being told at a time that something was used.
const MaxTold = maxTold

// Occupy has as much looked at for one other agent as may be, until it is given back.
func (c *Cache) Occupy(from kv.Member) (giveBack func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks[from] += maxOfPeer
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asks[from] -= maxOfPeer; c.asks[from] == 0 {
			delete(c.asks, from)
		}
	}
}

// Others is how much is being done for other agents, and how many owners are being told.
func (c *Cache) Others() (asks, told int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, asks = c.granting.InFlight()
	_, told = c.telling.InFlight()
	return asks, told
}

// FillIn has as much on its way to this agent's owner as may be.
func (c *Cache) FillIn() error { return c.in.enter(c.ctx, c.options.MaxBytesInFlight) }

// Takings is how many Keeps this agent's owner takes, or will.
func (c *Cache) Takings() (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, count = c.taking.InFlight()
	return count
}

// BreakEven is from how many tokens on an engine fetches what is kept; 0: from the first
// on, or it has not said what a token costs it.
func (c *Cache) BreakEven(engine string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engines[engine]
	if e == nil {
		return 0
	}
	return e.breakEven.Tokens(float64(e.tokenTime)/float64(time.Microsecond), maxBreakEven)
}

// maxBreakEven is what is told where fetching is never worth it.
const maxBreakEven = 1 << 20
