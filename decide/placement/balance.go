package placement

import (
	"cmp"
	"slices"
)

// Running is a request that an engine generates for and that may leave it.
type Running struct {
	ID     string
	Engine string
	// Prompt and Answer are its tokens so far, whose cache would move; Limit is how many the
	// answer may have, 0 where that is not known.
	Prompt, Answer, Limit int
	// Since is when it came to the engine, in ns; Moves is how often it has moved by choice.
	Since int64
	Moves int
	// Avoids are engines that failed it.
	Avoids []string
}

// What is uneven, and who may move for it. Engines differ all the time, as answers end: what
// is small or short is left to placement.
const (
	// unevenBy is by how many requests one engine must have more to do than another, and
	// unevenPart by which part of what it has to do; unevenFor is for how long, in ns.
	unevenBy   = 4
	unevenPart = 4
	unevenFor  = int64(2e9)
	// balanceEvery is how often it is said that they are uneven, in ns: engines are asked then how
	// much room they have, and perhaps no request gains by a move for long.
	balanceEvery = int64(500e6)
	// balanceRest is how long a request stays at an engine before it moves for balance, in ns,
	// and balanceMoves how often it moves by choice.
	balanceRest  = int64(5e9)
	balanceMoves = 2
	// A move costs a request as much as balanceCost tokens of its answer, and one more for
	// each tokensForOne whose cache goes with it.
	balanceCost  = 8
	tokensForOne = 64
)

// Balance is since when the engines of a model are uneven, and when that was last said. The zero
// Balance is of even ones. It is for one goroutine at a time.
type Balance struct{ since, said int64 }

// Uneven takes in how engines stand, and tells now and then whether one has had much more to do
// than another for a while.
func (b *Balance) Uneven(engines []Engine, o Options, now int64) bool {
	most, least := extremes(engines, o)
	switch {
	case most == nil || !o.uneven(most, least):
		b.since = 0
		return false
	case b.since == 0 || b.since > now:
		b.since = now
	}
	if now-b.since < unevenFor || b.said <= now && now-b.said < balanceEvery {
		return false
	}
	b.said = now
	return true
}

// extremes are the decode engines with the most and the least to do among those of the same
// phases, uneven ones if there are any; nil where there are not two of them.
func extremes(engines []Engine, o Options) (most, least *Engine) {
	for _, pool := range pools(engines) {
		if there := decoding(pool, o); len(there) > 1 && (most == nil || !o.uneven(most, least)) {
			most, least = there[0], there[len(there)-1]
		}
	}
	return most, least
}

// decoding are the decode engines that answer, those with the most to do first.
func decoding(engines []Engine, o Options) []*Engine {
	var there []*Engine
	for i := range engines {
		if e := &engines[i]; e.Role&Decode != 0 && !e.Doubtful {
			there = append(there, e)
		}
	}
	slices.SortFunc(there, func(a, b *Engine) int { return cmp.Or(cmp.Compare(o.load(b), o.load(a)), cmp.Compare(a.ID, b.ID)) })
	return there
}

// uneven: one engine has much more to do than another.
func (o Options) uneven(most, least *Engine) bool { return o.unevenLoads(o.load(most), o.load(least)) }

func (o Options) unevenLoads(most, least int) bool {
	return most-least >= max(unevenBy*o.running(), most/unevenPart)
}

// loadOfAll is what an engine has to do for all gateways, as far as is known.
func (o Options) loadOfAll(e *Engine) int { return e.Waiting + max(e.Running, e.All)*o.running() }

// MoveForBalance says which of the running requests leaves an engine that has much more to do
// than another, for which one, and why. It is one that gains more by it than the move costs it,
// the one that gains most. ok is false where none does.
//
// The engine must have more to do both for this gateway and for all. By what it has for this one,
// gateways that know nothing of one another never move more than was uneven, nor to and fro: what
// others move does not change it. By what it has for all, they leave engines alone that are even
// together.
//
// Engines are compared with those that are meant for the same phases.
func MoveForBalance(engines []Engine, running []Running, o Options, now int64) (which int, to string, why Reason, ok bool) {
	for _, pool := range pools(engines) {
		if which, to, why, ok = o.moveWithin(pool, running, now); ok {
			break
		}
	}
	return which, to, why, ok
}

func (o Options) moveWithin(engines []Engine, running []Running, now int64) (which int, to string, why Reason, ok bool) {
	there := decoding(engines, o)
	var free *Engine // the one with the least to do, for all, that would go on at once
	for _, e := range slices.Backward(there) {
		if !e.Full && e.Arriving < e.Room && (free == nil || o.loadOfAll(e) < o.loadOfAll(free)) {
			free = e
		}
	}
	if free == nil {
		return 0, "", Reason{}, false
	}
	for _, busy := range there {
		if !o.uneven(busy, free) {
			break // the rest has less to do
		}
		here, away := o.loadOfAll(busy), o.loadOfAll(free)
		if !o.unevenLoads(here, away) {
			continue
		}
		best := 0.0
		for i := range running {
			if r := &running[i]; r.Engine == busy.ID && r.mayMove(now) && !slices.Contains(r.Avoids, free.ID) {
				if gain := r.gains(here, away+o.running()); gain > best {
					which, best, ok = i, gain, true
				}
			}
		}
		if ok {
			return which, free.ID, Reason{Kind: RunsLess, Held: away / o.running(), Tokens: here / o.running()}, true
		}
	}
	return 0, "", Reason{}, false
}

func (r *Running) mayMove(now int64) bool {
	return r.Moves < balanceMoves && now-r.Since >= balanceRest
}

// gains is how many tokens' time a request is spared where an engine has less to do, less what
// the move costs it. It is taken to have as much before it as behind it, and half of an
// engine's time for a token to grow with what it has to do.
func (r *Running) gains(here, there int) float64 {
	left := r.Answer
	if r.Limit > 0 {
		left = min(left, r.Limit-r.Answer)
	}
	spared := float64(left) * float64(here-there) / float64(max(here, 1)) / 2
	return spared - balanceCost - float64(r.Prompt+r.Answer)/tokensForOne
}
