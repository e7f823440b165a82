package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/engine/batch"
	"meridian/serve/door"
)

// prefixLookup is a request's question whether the cell has a prefix of its prompt. The
// request waits for the answer before it takes its place, and others run meanwhile.
//
//	asking ──found──► the request fetches the run, and computes the rest
//	   │        └─────what was here is not any more──┐
//	   └─────nothing, an error, too late─────────────┴──► it computes its prompt
type prefixLookup struct {
	timer   *time.Timer
	present int // tokens that are here: what is found begins behind them
}

const (
	// findTime is how long an agent may look for a prefix, and findPatience how long a
	// request waits for one that does not answer.
	findTime     = 200 * time.Millisecond
	findPatience = 250 * time.Millisecond
	// foundPatience bounds how long a run that was found may take to come: by then it
	// might have been computed.
	foundPatience = 2 * time.Second
	// maxKeeps is how many prefixes are on their way to be kept at a time.
	maxKeeps = 32
)

// mayFind tells how many tokens are here, and whether it is worth asking for more. A
// request with several prompts does not ask.
func (e *Engine) mayFind(q *request) (present int, may bool) {
	if e.door == nil || len(q.Prompts) != 1 || q.Ticket != nil || e.searches >= door.MaxFinds {
		return 0, false
	}
	terms, has := e.door.Cache()
	leader := &q.choices[0].sequence
	if !has || terms.BlockTokens < 1 || q.choices[0].finish != "" || len(leader.Tokens) > door.MaxPrefixTokens {
		return 0, false
	}
	most := (len(leader.Tokens) - 1) / terms.BlockTokens * terms.BlockTokens // the last token is computed in any case
	if most < worthFetching {
		return 0, false
	}
	present = e.scheduler.Cached(leader)
	return present, most-present >= worthFetching
}

// measure follows what a token of a prompt costs: by steps that compute little else.
func (e *Engine) measure(work []batch.Work, took time.Duration) {
	prompts, all := 0, 0
	for _, w := range work {
		all += w.Count
		if w.Count > 1 {
			prompts += w.Count
		}
	}
	if prompts < measuredTokens || 4*prompts < 3*all {
		return
	}
	token := took / time.Duration(all)
	if e.tokenTime == 0 {
		e.tokenTime = token
	}
	e.tokenTime += (token - e.tokenTime) / 4
}

// measuredTokens is how many a step must compute to say what one costs.
const measuredTokens = 32

// find asks the agent.
func (e *Engine) find(q *request, present int) {
	s := &prefixLookup{present: present}
	q.search = s
	s.timer = e.look(q.choices[0], present, func(found door.Found) { e.searched(q, s, found) })
}

// look asks the agent what the cell has of a sequence, of which so much is here. The step
// loop hears of the answer, and of nothing when the timer ends: whichever comes second may
// have a ticket to be given back.
func (e *Engine) look(c *choice, present int, hear func(door.Found)) *time.Timer {
	q := c.request
	c.sought = len(c.sequence.Tokens)
	e.searches++
	message := door.Find{Scope: requestScope(q), Tokens: slices.Clip(c.sequence.Tokens), Present: present, Within: findTime, TokenTime: e.tokenTime, Request: q.ID, Leg: q.Leg}
	e.inBackground(func(ctx context.Context) {
		found, err := e.door.Find(ctx, message)
		e.post(func() {
			e.searches--
			if err != nil {
				e.options.Logger.Debug("a prefix could not be looked for", "request", q.ID, "error", err)
			}
			hear(found)
		})
	})
	return time.AfterFunc(cmp.Or(e.options.patience, findPatience), func() { e.post(func() { hear(door.Found{}) }) })
}

// searched: the agent has answered, or is not waited for any more.
func (e *Engine) searched(q *request, s *prefixLookup, found door.Found) {
	if q.search != s || q.over {
		e.giveBack(found.Ticket)
		return
	}
	q.search = nil
	s.timer.Stop()
	if found.Tokens == 0 {
		e.counters.Missed++
	} else {
		q.Ticket, q.found = found.Ticket, found.Tokens
		q.choices[0].sequence.Fetch, q.choices[0].sequence.FetchFrom = found.Tokens, s.present
	}
	e.enqueue(q)
}

// keep lets the agent have what is computed of a choice, unless there is nothing new
// in it, or too much of the memory is out already: keeping is never in the way.
func (e *Engine) keep(c *choice) {
	if e.door == nil || c.sequence.State() != batch.Running {
		return
	}
	terms, has := e.door.Cache()
	if !has || terms.BlockTokens < 1 {
		return
	}
	computed := c.sequence.Computed()
	if c.thoughtThrough() { // the next turn begins with the prompt, and goes on otherwise
		computed = min(computed, c.sequence.Prompt)
	}
	tokens := min(computed, door.MaxPrefixTokens) / terms.BlockTokens * terms.BlockTokens
	if tokens <= c.kept {
		return
	}
	blocks := (tokens + e.options.BlockTokens - 1) / e.options.BlockTokens
	if s := e.scheduler.Stats(); e.keeps >= maxKeeps || e.keptBlocks+blocks > s.Total/4 || s.Free+s.Cached < s.Total/4 {
		e.counters.Unkept++
		return
	}
	c.kept = tokens
	e.keepAs(c, tokens, nil)
}

// keepAs has the cache of a choice's first tokens kept; w, if any, is a copy that is made
// by that.
func (e *Engine) keepAs(c *choice, tokens int, w *copying) {
	o := &offer{hold: e.scheduler.Hold(&c.sequence, tokens), kept: true, copying: w}
	_, _ = rand.Read(o.transfer[:]) // it does not fail
	e.offers[o.transfer] = o
	e.keeps++
	e.keptBlocks += len(o.hold.Blocks())
	message := door.Keep{
		Transfer: o.transfer, Scope: requestScope(c.request), Tokens: slices.Clip(c.sequence.Tokens[:tokens]), Tables: [][]uint32{slices.Clone(o.hold.Blocks())}, Request: c.request.ID, Leg: c.request.Leg,
	}
	e.inBackground(func(ctx context.Context) {
		err := e.door.Keep(ctx, message)
		e.post(func() { e.told(o, err) })
	})
}

// thoughtThrough: the answer has a thought that ended, as the request says how.
func (c *choice) thoughtThrough() bool {
	end, answer := c.request.ThoughtEnd, c.sequence.Tokens[c.sequence.Prompt:]
	for i := range len(answer) - len(end) + 1 {
		if len(end) > 0 && slices.Equal(answer[i:i+len(end)], end) {
			return true
		}
	}
	return false
}

// told hears what the agent says to a Keep.
func (e *Engine) told(o *offer, err error) {
	if err == nil {
		e.counters.Kept++
		return
	}
	e.counters.Unkept++
	if o.copying != nil {
		o.copying.failed = true
	}
	e.options.Logger.Debug("a prefix is not kept", "transfer", fmt.Sprintf("%x", o.transfer), "error", err)
	if !errors.Is(err, door.ErrNoAnswer) { // else Freed comes
		e.freed(o)
	}
}
