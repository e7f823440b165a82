// Package roster knows the engines: who is there and how busy, by the directory, by asking them
// and by what the gateway itself sends them; and what they hold of prompts, where they say so.
package roster

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"meridian/decide/placement"
	"meridian/member/directory"
)

// Roster knows the engines: who is there, how busy, and who holds what.
type Roster struct {
	options placement.Options
	logger  *slog.Logger
	prober  *prober
	told    cacheCounts
	// follower follows the directory, nil without one.
	follower *follower

	mu      sync.Mutex // protects what follows; never held across a call
	engines map[string]*Engine
	index   *placement.Index
	lexicon *placement.TokenCache
	kept    *placement.StoredPrefixes
	coming  *placement.InFlight
	changed chan struct{}   // closed and replaced when an engine comes
	lostAt  time.Time       // when the last engine left, or the roster was made
	once    map[string]bool // models that were served at some time
}

// maxOnce bounds how many names of models are remembered: an engine that comes back
// may have others every time.
const maxOnce = 1 << 14

// maxAskingAt is how many requests an engine is asked for at a time to let them go, so that one
// that does not answer keeps none from leaving others.
const maxAskingAt = 4

// Bounds of what is remembered of prompts.
const (
	indexHashes  = 1 << 16
	prefixLife   = 30 * time.Minute
	lexiconBytes = 32 << 20
)

// Options of a roster.
type Options struct {
	Place placement.Options
	// Client asks engines, every ProbeInterval, and waits for ProbeTimeout at most.
	Client                      *http.Client
	ProbeInterval, ProbeTimeout time.Duration
	Logger                      *slog.Logger
	// Drains is told of an engine that says it is about to go, every time it says so.
	Drains func(*Engine)
}

// New knows no engine yet.
func New(o Options) *Roster {
	r := &Roster{
		options: o.Place, logger: o.Logger, engines: make(map[string]*Engine), index: placement.NewIndex(indexHashes), lexicon: placement.NewLexicon(lexiconBytes),
		kept: placement.NewKept(keptHashes, int64(keptLife), int64(keptDoubt)), coming: placement.NewUnderway(indexHashes),
		changed: make(chan struct{}), lostAt: time.Now(), once: make(map[string]bool),
	}
	r.prober = &prober{
		roster: r, client: o.Client, interval: o.ProbeInterval, timeout: o.ProbeTimeout, soon: make(chan struct{}, 1),
		drains: o.Drains,
	}
	return r
}

// Ask asks all engines once, and waits for their answers.
func (r *Roster) Ask(ctx context.Context) {
	r.prober.round(ctx)
	r.prober.active.Wait()
}

// Run asks engines whether they are there, until ctx ends.
func (r *Roster) Run(ctx context.Context) { r.prober.run(ctx) }

// Hurry has engines asked soon.
func (r *Roster) Hurry() { r.prober.hurry() }

// AskRoom has engines tell how many requests they would begin at once, and waits for that: one
// that took no more may have room again, as requests of other gateways have left it. One
// goroutine at a time calls it.
func (r *Roster) AskRoom(ctx context.Context, engines []*Engine) { r.prober.askRoom(ctx, engines) }

// FollowDirectory returns what keeps the engines as the directory has them, until ctx ends or its
// events do. From now on the directory counts as away until it has said something.
func (r *Roster) FollowDirectory(ctx context.Context, events <-chan directory.Event) (run func()) {
	r.follower = &follower{roster: r, keys: make(map[string]string)}
	return func() { r.follower.run(ctx, events) }
}

// DirectoryKnown is false while the directory is away.
func (r *Roster) DirectoryKnown() bool {
	return r.follower == nil || r.follower.known.Load()
}

// Close ends what engines' caches are followed by.
func (r *Roster) Close() {
	for _, e := range r.All() {
		r.unfollow(e)
	}
}

// add makes an engine known, in the place of one with the same key.
func (r *Roster) add(e *Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engines[e.Key] = e
	e.AskingToMove = make(chan struct{}, maxAskingAt)
	e.lostAt.Store(Instant(time.Now()))
	r.bound(e)
	r.wake()
}

func (r *Roster) bound(e *Engine) {
	if e.cacheHashes > 0 {
		r.index.Limit(e.Key, e.cacheHashes)
	}
}

// wake wakes the requests that wait for an engine. The caller holds mu.
func (r *Roster) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Answered takes in what an engine answered, and tells whether that it answers is
// news; found is nil where what it said of itself was known.
func (r *Roster) Answered(e *Engine, found *About) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found != nil {
		found.Legs = e.About.Load().Legs // the directory's word
		e.About.Store(found)
		for _, model := range found.Models {
			if len(r.once) < maxOnce {
				r.once[model] = true
			}
		}
	}
	if e.Up.Load() {
		return false
	}
	e.markUp()
	r.wake()
	return true
}

// ServedOnce tells whether a model was served at some time.
func (r *Roster) ServedOnce(model string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.once[model]
}

func (r *Roster) remove(key string) { r.removeIf(key, func(*Engine) bool { return true }) }

// removeStray forgets an engine that does not answer, unless the directory names
// it again.
func (r *Roster) removeStray(e *Engine) bool {
	return r.removeIf(e.Key, func(current *Engine) bool { return current == e && e.Stray.Load() })
}

func (r *Roster) removeIf(key string, holds func(*Engine) bool) bool {
	r.mu.Lock()
	e := r.engines[key]
	gone := e != nil && holds(e)
	if gone {
		delete(r.engines, key)
		r.lostAt = time.Now()
		r.index.Forget(key)
		r.forgetKept()
	}
	r.mu.Unlock()
	if gone {
		r.unfollow(e)
	}
	return gone
}

// claim: the directory names an engine, which is no stray then, and may say other
// things of it than before, as when its agent was started anew. It returns false where
// there is none that is the same.
func (r *Roster) claim(named *Engine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.engines[named.Key]
	if e == nil || e.URL != named.URL || e.Role != named.Role || e.cut != named.cut {
		return false
	}
	e.Stray.Store(false)
	e.Home.Store(named.Home.Load())
	if now := *e.About.Load(); now.Legs != named.given.Legs {
		now.Legs = named.given.Legs
		e.About.Store(&now)
	}
	if e.cacheTokens != named.cacheTokens { // else what its answers told of it stays
		e.cacheTokens = named.cacheTokens
		e.Unit.Store(int64(named.cacheTokens))
		r.forgetKept()
	}
	if e.cacheHashes != named.cacheHashes {
		e.cacheHashes = named.cacheHashes
		r.bound(e)
	}
	return true
}

// unfollow ends what an engine's caches are followed by. They take the lock, so
// it must not be held.
func (r *Roster) unfollow(e *Engine) {
	r.mu.Lock()
	caches := e.caches
	e.caches = nil
	r.mu.Unlock()
	closeCaches(caches)
}

// followed takes in that an engine's caches are followed, unless it has gone.
func (r *Roster) followed(e *Engine, caches []*cache) {
	r.mu.Lock()
	stays := r.engines[e.Key] == e
	if stays {
		e.caches = caches
	}
	r.mu.Unlock()
	if !stays {
		closeCaches(caches)
	}
}

// followsCaches tells whether any engine says what it holds.
func (r *Roster) followsCaches() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.engines {
		if len(e.caches) > 0 {
			return true
		}
	}
	return false
}

// Card is what an engine shows of a model, or nil.
func (r *Roster) Card(model string) json.RawMessage {
	for _, e := range r.All() {
		if card := e.About.Load().cards[model]; card != nil && e.Role&placement.Decode != 0 {
			return card
		}
	}
	return nil
}

// orphan keeps an engine that has lost its agent for as long as it answers. One
// that only prefills is of no use without.
func (r *Roster) orphan(key string) {
	e := r.Get(key)
	if e == nil || e.Role&placement.Decode == 0 {
		r.remove(key)
		return
	}
	e.Stray.Store(true)
	e.markDown() // until it has said otherwise
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetKept()
}

// All are the engines that are known, by name.
func (r *Roster) All() []*Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.engines), func(a, b *Engine) int { return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Key, b.Key)) })
}

// Models are the names of all that can be asked for, sorted.
func (r *Roster) Models() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	served := make(map[string]bool)
	for _, e := range r.engines {
		a := e.About.Load()
		if e.Role&placement.Decode == 0 || !a.Asked {
			continue
		}
		for _, model := range a.Models {
			served[model] = true
		}
	}
	return slices.Sorted(maps.Keys(served))
}

// Ready tells whether any engine that generates answers.
func (r *Roster) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.engines {
		if e.Up.Load() && e.Role&placement.Decode != 0 && len(e.About.Load().Models) > 0 {
			return true
		}
	}
	return false
}

// LastLoss is when an engine last came, left or failed. For a while after that one
// may be about to come back; later there is nothing to wait for.
func (r *Roster) LastLoss() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.lostAt
	for _, e := range r.engines {
		if lost := began.Add(time.Duration(e.lostAt.Load())); lost.After(last) {
			last = lost
		}
	}
	return last
}

// SetLastLoss has all losses so far count from then.
func (r *Roster) SetLastLoss(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lostAt = at
	for _, e := range r.engines {
		e.lostAt.Store(Instant(at))
	}
}

// Get is nil for an engine that has gone.
func (r *Roster) Get(key string) *Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engines[key]
}

// News is closed when the next engine comes.
func (r *Roster) News() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Name is an engine's, for people.
func (r *Roster) Name(key string) string {
	if e := r.Get(key); e != nil {
		return e.Name()
	}
	return key
}
