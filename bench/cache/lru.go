package cache

import (
	"container/list"

	"meridian/replay/workload"
)

// lru is a cache of units that knows no delay: what a request computed is there for the
// next one. It has one of the units that were used least recently leave for each that
// comes, the last of a prompt before the first. 0 units is a cache without bound: the
// most that any can find.
type lru struct {
	units int
	order *list.List // of uint64, the most recent first
	at    map[uint64]*list.Element
}

func newLRU(units int) *lru {
	return &lru{units: units, order: list.New(), at: make(map[uint64]*list.Element)}
}

// serve is how many tokens of a prompt the cache has, from the first on. Then it has all
// whole units of it. An engine computes the last token of a prompt in any case.
func (c *lru) serve(q workload.Request) (hit int) {
	unit := int(q.PrefixTokens)
	whole := q.Prefix[:min(len(q.Prefix), int(q.Prompt)/unit)]
	for _, block := range whole {
		if _, has := c.at[block]; !has {
			break
		}
		hit += unit
	}
	for i := len(whole) - 1; i >= 0; i-- {
		c.use(whole[i])
	}
	return min(hit, int(q.Prompt)-1)
}

func (c *lru) use(block uint64) {
	if e, has := c.at[block]; has {
		c.order.MoveToFront(e)
		return
	}
	c.at[block] = c.order.PushFront(block)
	if c.units > 0 && c.order.Len() > c.units {
		oldest := c.order.Back()
		delete(c.at, c.order.Remove(oldest).(uint64))
	}
}

// modelled is which part of all prompts' tokens a cache of so many units has.
func modelled(all []workload.Request, units int) float64 {
	c := newLRU(units)
	var hit, prompt int
	for _, q := range all {
		hit += c.serve(q)
		prompt += int(q.Prompt)
	}
	return float64(hit) / float64(max(prompt, 1))
}
