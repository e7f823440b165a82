package cache

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"meridian/prove/replay/workload"
)

// lru is a cache of units. It has one of the units that were used least recently leave
// for each that comes, the last of a prompt before the first. 0 units is a cache without
// bound: the most that any can find.
type lru struct {
	units int
	order *list.List // of uint64, the most recent first
	at    map[uint64]*list.Element
}

func newLRU(units int) *lru {
	return &lru{units: units, order: list.New(), at: make(map[uint64]*list.Element)}
}

// wholeUnits are the blocks of a prompt that are units of the cache.
func wholeUnits(q *workload.Request) []uint64 {
	return q.Prefix[:min(len(q.Prefix), int(q.Prompt)/int(q.PrefixTokens))]
}

// find is how many tokens of a prompt the cache has, from the first on, which counts as
// use. An engine computes the last token of a prompt in any case.
func (c *lru) find(q *workload.Request) int {
	whole, found := wholeUnits(q), 0
	for found < len(whole) && c.at[whole[found]] != nil {
		found++
	}
	c.useAll(whole[:found])
	return min(found*int(q.PrefixTokens), int(q.Prompt)-1)
}

// useAll puts units in, or before all others; the first is the last to leave.
func (c *lru) useAll(units []uint64) {
	for _, unit := range slices.Backward(units) {
		c.use(unit)
	}
}

func (c *lru) use(unit uint64) {
	if e, has := c.at[unit]; has {
		c.order.MoveToFront(e)
		return
	}
	c.at[unit] = c.order.PushFront(unit)
	if c.units > 0 && c.order.Len() > c.units {
		oldest := c.order.Back()
		delete(c.at, c.order.Remove(oldest).(uint64))
	}
}

// modelled is how many tokens of each prompt a cache of so many units has that knows no
// delay: what a request computes is there for the request that is sent next.
func modelled(all []workload.Request, units int) []int {
	c, hits := newLRU(units), make([]int, len(all))
	for i := range all {
		hits[i] = c.find(&all[i])
		c.useAll(wholeUnits(&all[i]))
	}
	return hits
}

// span is when a request was sent, and when its first token came: its prompt was computed
// by then, and not known to be before.
type span struct{ sent, first time.Time }

// modelledInTime is modelled for a cache that is given a prompt when its first token comes.
// What could be found before that is of a prompt that no engine had computed.
func modelledInTime(all []workload.Request, units int, spans []span) []int {
	type event struct {
		at      time.Time
		request int
		first   bool
	}
	var events []event
	for i, s := range spans {
		events = append(events, event{s.sent, i, false}, event{s.first, i, true})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.request, b.request)) })
	c, hits := newLRU(units), make([]int, len(all))
	for _, e := range events {
		if q := &all[e.request]; e.first {
			c.useAll(wholeUnits(q))
		} else {
			hits[e.request] = c.find(q)
		}
	}
	return hits
}

// hitRate is hits as part of all prompts' tokens.
func hitRate(all []workload.Request, hits []int) float64 {
	hit, prompt := 0, 0
	for i := range all {
		hit += hits[i]
		prompt += int(all[i].Prompt)
	}
	return float64(hit) / float64(max(prompt, 1))
}
