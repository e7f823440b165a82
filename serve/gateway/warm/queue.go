package warm

import (
	"cmp"
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/roster"
)

// queue decides which history an idle engine computes, and which is dropped. It
// has no clock and does no I/O.
type queue struct {
	waiting []waitingHistory // the oldest first
}

type waitingHistory struct {
	*history
	since time.Time
}

// Bounds of what waits. One that no engine had time for within its patience comes too
// late: the next turn is here, or its user has gone.
const (
	maxHistories    = 256
	historyPatience = 20 * time.Second
)

// push appends a history, and returns the one that must leave for it: the oldest.
func (q *queue) push(h *history, now time.Time) (left *history) {
	if len(q.waiting) == maxHistories {
		left = q.waiting[0].history
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	q.waiting = append(q.waiting, waitingHistory{h, now})
	return left
}

// late takes those out that have waited for too long.
func (q *queue) late(now time.Time) (left []*history) {
	for len(q.waiting) > 0 && now.Sub(q.waiting[0].since) > historyPatience {
		left = append(left, q.waiting[0].history)
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	return left
}

// idleEngine is one that has time, as the queue sees it.
type idleEngine struct {
	*roster.Engine
	holds func(placement.Prefix) int // chunks of a prompt
}

// next takes out the oldest history that one of the engines can compute, and says
// which: one that computes prompts for others rather than one whose users wait for
// tokens, and of these who holds most of it. Both are nil where there is none.
func (q *queue) next(idle []idleEngine) (*history, *roster.Engine) {
	for i, h := range q.waiting {
		var best *idleEngine
		better := func(e *idleEngine) bool {
			return best == nil || cmp.Or(cmp.Compare(e.Role&placement.Prefill, best.Role&placement.Prefill), cmp.Compare(e.holds(h.prefix), best.holds(h.prefix))) > 0
		}
		for k := range idle {
			if e := &idle[k]; e.About.Load().Serves(h.model) && better(e) {
				best = e
			}
		}
		if best != nil {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			return h.history, best.Engine
		}
	}
	return nil, nil
}
