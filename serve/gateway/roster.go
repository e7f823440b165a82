package gateway

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// roster knows the engines: who is there, how busy, and who holds what.
type roster struct {
	options placement.Options

	mu      sync.Mutex // protects what follows; never held across a call
	engines map[string]*engine
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

// Bounds of what is remembered of prompts.
const (
	indexHashes  = 1 << 16
	prefixLife   = 30 * time.Minute
	lexiconBytes = 32 << 20
)

func newRoster(o placement.Options) *roster {
	return &roster{
		options: o, engines: make(map[string]*engine), index: placement.NewIndex(indexHashes), lexicon: placement.NewLexicon(lexiconBytes),
		kept: placement.NewKept(keptHashes, int64(keptLife), int64(keptDoubt)), coming: placement.NewUnderway(indexHashes),
		changed: make(chan struct{}), lostAt: time.Now(), once: make(map[string]bool),
	}
}

// add makes an engine known, in the place of one with the same key.
func (r *roster) add(e *engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engines[e.key] = e
	e.askingToMove = make(chan struct{}, maxAskingAt)
	e.lostAt.Store(time.Now().UnixNano())
	r.bound(e)
	r.wake()
}

func (r *roster) bound(e *engine) {
	if e.cacheHashes > 0 {
		r.index.Limit(e.key, e.cacheHashes)
	}
}

// wake wakes the requests that wait for an engine. The caller holds mu.
func (r *roster) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// learn takes in what an engine answered, and tells whether that it answers is
// news; found is nil where what it said of itself was known.
func (r *roster) learn(e *engine, found *about) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found != nil {
		found.legs = e.about.Load().legs // the directory's word
		e.about.Store(found)
		for _, model := range found.models {
			if len(r.once) < maxOnce {
				r.once[model] = true
			}
		}
	}
	if e.up.Load() {
		return false
	}
	e.markUp()
	r.wake()
	return true
}

// servedOnce tells whether a model was served at some time.
func (r *roster) servedOnce(model string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.once[model]
}

func (r *roster) remove(key string) { r.removeIf(key, func(*engine) bool { return true }) }

// removeStray forgets an engine that does not answer, unless the directory names
// it again.
func (r *roster) removeStray(e *engine) bool {
	return r.removeIf(e.key, func(current *engine) bool { return current == e && e.stray.Load() })
}

func (r *roster) removeIf(key string, holds func(*engine) bool) bool {
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
func (r *roster) claim(named *engine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.engines[named.key]
	if e == nil || e.url != named.url || e.role != named.role || e.cut != named.cut {
		return false
	}
	e.stray.Store(false)
	e.home.Store(named.home.Load())
	if now := *e.about.Load(); now.legs != named.given.legs {
		now.legs = named.given.legs
		e.about.Store(&now)
	}
	if e.cacheTokens != named.cacheTokens { // else what its answers told of it stays
		e.cacheTokens = named.cacheTokens
		e.unit.Store(int64(named.cacheTokens))
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
func (r *roster) unfollow(e *engine) {
	r.mu.Lock()
	caches := e.caches
	e.caches = nil
	r.mu.Unlock()
	closeCaches(caches)
}

// followed takes in that an engine's caches are followed, unless it has gone.
func (r *roster) followed(e *engine, caches []*cache) {
	r.mu.Lock()
	stays := r.engines[e.key] == e
	if stays {
		e.caches = caches
	}
	r.mu.Unlock()
	if !stays {
		closeCaches(caches)
	}
}

func (r *roster) cachesOf(e *engine) []*cache {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.caches
}

// followsCaches tells whether any engine says what it holds.
func (r *roster) followsCaches() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.engines {
		if len(e.caches) > 0 {
			return true
		}
	}
	return false
}

// card is what an engine shows of a model, or nil.
func (r *roster) card(model string) json.RawMessage {
	for _, e := range r.all() {
		if card := e.about.Load().cards[model]; card != nil && e.role&placement.Decode != 0 {
			return card
		}
	}
	return nil
}

// learnTokens remembers which tokens a text prompt came to.
func (r *roster) learnTokens(p placement.Prefix, tokens []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lexicon.Learn(p, tokens)
}

// recall finds out what a prompt's tokens are, where an earlier one tells.
func (r *roster) recall(c *request.Request) {
	if !c.IsText() || c.Whole || !r.followsCaches() {
		return
	}
	r.mu.Lock()
	ids, whole := r.lexicon.Recall(c.Prefix)
	r.mu.Unlock()
	if c.IDs, c.Partly = ids, !whole; whole {
		c.Tokens = len(ids)
	}
}

// learns: what the prompt's tokens are would help to place the next one that begins alike.
func (r *roster) learns(c *request.Request) bool {
	return c.IsText() && !c.Whole && (len(c.IDs) == 0 || c.Partly) && r.followsCaches()
}

// orphan keeps an engine that has lost its agent for as long as it answers. One
// that only prefills is of no use without.
func (r *roster) orphan(key string) {
	e := r.get(key)
	if e == nil || e.role&placement.Decode == 0 {
		r.remove(key)
		return
	}
	e.stray.Store(true)
	e.markDown() // until it has said otherwise
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetKept()
}

func (r *roster) all() []*engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.engines), func(a, b *engine) int { return cmp.Or(cmp.Compare(a.id(), b.id()), cmp.Compare(a.key, b.key)) })
}

// models are the names of all that can be asked for, sorted.
func (r *roster) models() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	served := make(map[string]bool)
	for _, e := range r.engines {
		a := e.about.Load()
		if e.role&placement.Decode == 0 || !a.asked {
			continue
		}
		for _, model := range a.models {
			served[model] = true
		}
	}
	return slices.Sorted(maps.Keys(served))
}

// ready tells whether any engine that generates answers.
func (r *roster) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.engines {
		if e.up.Load() && e.role&placement.Decode != 0 && len(e.about.Load().models) > 0 {
			return true
		}
	}
	return false
}

// lastLoss is when an engine last came, left or failed. For a while after that one
// may be about to come back; later there is nothing to wait for.
func (r *roster) lastLoss() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.lostAt
	for _, e := range r.engines {
		if lost := time.Unix(0, e.lostAt.Load()); lost.After(last) {
			last = lost
		}
	}
	return last
}

// wanted says which engines a request can use.
type wanted struct {
	request *request.Request
	avoid   func(key string) bool
	// kind, where it is not nil, is the kind that it must be.
	kind *openai.EngineKind
	// spare: prefill engines may generate where decode engines are full.
	spare bool
}

// candidates are the engines as placement sees them. An engine that the prober has
// not reached yet is not among them; one that failed lately is, as doubtful.
func (r *roster) candidates(w wanted, now time.Time) []placement.Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Add(-prefixLife).UnixNano()
	candidates := make([]placement.Engine, 0, len(r.engines))
	kept := r.kept.Held(w.request.Prefix, now.UnixNano())
	for key, e := range r.engines {
		up, a, stray := e.up.Load(), e.about.Load(), e.stray.Load()
		if !a.asked || e.hopeless() || !a.serves(w.request.Model) || w.avoid(key) || w.kind != nil && a.kind != *w.kind {
			continue
		}
		held, told, coming := 0, false, 0
		if r.options.AffinityWeight > 0 {
			held, told = r.held(e, w.request, since)
			coming = r.coming.Held(key, w.request.Prefix) * w.request.Prefix.TokensPerHash
		}
		stored := 0
		if r.options.AffinityWeight > 0 && kept > 0 && e.fetches() {
			stored = w.request.StoredTokens(kept, int(e.unit.Load()))
		}
		role := e.role
		if stray {
			role &^= placement.Prefill
		}
		arriving := e.arriving.Load()
		running := int(max(e.running.Load()+arriving, 0))
		candidates = append(candidates, placement.Engine{
			ID: key, Role: role, Phases: e.phases, Doubtful: !up, Full: e.isFull(now), Spare: w.spare && role == placement.Prefill && a.kind == openai.KindMeridian,
			Held: held, Told: told, InFlight: coming, Stored: stored, StoredWeight: e.pace.StoredWeight(), Running: running, Room: int(e.room.Load()), Arriving: int(max(arriving, 0)), Waiting: int(e.waiting.Load()),
			All: int(max(e.all.Load()+arriving, 0)),
		})
	}
	return candidates
}

// held is how many tokens of a prompt an engine holds: by its own word, where it
// gives it and the prompt's tokens are known, else by what was sent to it. The
// caller holds mu.
func (r *roster) held(e *engine, a *request.Request, since int64) (tokens int, told bool) {
	guess := r.index.Held(e.key, a.Prefix, since) * a.Prefix.TokensPerHash
	if len(e.caches) == 0 {
		return guess, false
	}
	prompt := a.Known(e.about.Load().isAdapter(a.Model))
	if prompt == nil {
		return guess, false
	}
	h, told := heldByAll(e.caches, prompt)
	switch {
	case !told:
		return guess, false
	case prompt.Guess && h.all: // what comes after is not known to the gateway
		return max(h.tokens, guess), true
	}
	return h.tokens, true
}

func (r *roster) get(key string) *engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engines[key]
}

// note remembers that an engine has a prompt in its cache.
func (r *roster) note(key string, p placement.Prefix, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.engines[key] != nil {
		r.index.Note(key, p, now.UnixNano())
	}
}

// computes counts a prompt as work that waits at an engine, and remembers that what
// begins alike will be there, until the end that it returns is called, once.
func (r *roster) computes(e *engine, c *request.Request) (end func()) {
	e.waiting.Add(int64(c.Tokens))
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.coming.Begin(e.key, c.Prefix)
	return func() {
		e.waiting.Add(-int64(c.Tokens))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.coming.End(e.key, begun)
	}
}

// paced takes in how long an engine took for a prompt: what it computed, and what it
// fetched of it, about. What it held itself is among what it found, and is not told apart.
func (r *roster) paced(e *engine, report *openai.Report, s spared) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.pace.Computed(s.of-s.tokens, milliseconds(report.PrefillMs).Microseconds())
	if report.KV == openai.KVFound {
		e.pace.Fetched(min(report.KVTokens, s.of), milliseconds(report.HandoffMs).Microseconds())
	}
}

// storedWeight is what was measured of an engine, 0 while it was not.
func (r *roster) storedWeight(e *engine) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.pace.StoredWeight()
}

// misjudged: an engine did not hold what it should have; what is thought of it
// is wrong.
func (r *roster) misjudged(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Forget(key)
	if e := r.engines[key]; e != nil {
		r.bound(e)
	}
}

// news is closed when the next engine comes.
func (r *roster) news() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// name is an engine's, for people.
func (r *roster) name(key string) string {
	if e := r.get(key); e != nil {
		return e.id()
	}
	return key
}

// named puts people's names of engines into a choice.
func (r *roster) named(c placement.Choice) placement.Choice {
	for _, key := range []*string{&c.Prefill, &c.Decode} {
		if e := r.get(*key); e != nil {
			*key = e.id()
		}
	}
	return c
}
