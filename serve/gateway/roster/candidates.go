package roster

import (
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Candidates are the engines as placement sees them. An engine that the prober has
// not reached yet is not among them; one that failed lately is, as doubtful.
func (r *Roster) Candidates(w request.Wanted, now time.Time) []placement.Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := Instant(now.Add(-prefixLife))
	candidates := make([]placement.Engine, 0, len(r.engines))
	kept := r.kept.Held(w.Request.Prefix, Instant(now))
	for key, e := range r.engines {
		up, a, stray := e.Up.Load(), e.About.Load(), e.Stray.Load()
		if !a.Asked || e.hopeless() || !a.Serves(w.Request.Model) || slices.Contains(w.Avoid, key) || w.Kind != nil && a.Kind != *w.Kind {
			continue
		}
		held, told, coming := 0, false, 0
		if r.options.AffinityWeight > 0 {
			held, told = r.held(e, w.Request, since)
			coming = r.coming.Held(key, w.Request.Prefix) * w.Request.Prefix.TokensPerHash
		}
		stored := 0
		if r.options.AffinityWeight > 0 && kept > 0 && e.fetches() {
			stored = w.Request.StoredTokens(kept, int(e.Unit.Load()))
		}
		role := e.Role
		if stray {
			role &^= placement.Prefill
		}
		arriving := e.Arriving.Load()
		running := int(max(e.Running.Load()+arriving, 0))
		candidates = append(candidates, placement.Engine{
			ID: key, Name: e.Name(), Role: role, Phases: e.Phases, Doubtful: !up, Full: e.isFull(now), Spare: w.Spare && role == placement.Prefill && a.Kind == openai.KindMeridian,
			Held: held, Told: told, InFlight: coming, Stored: stored, StoredWeight: e.pace.StoredWeight(), Running: running, Room: int(e.room.Load()), Arriving: int(max(arriving, 0)), Waiting: int(e.Waiting.Load()),
			All: int(max(e.all.Load()+arriving, 0)),
		})
	}
	return candidates
}

// held is how many tokens of a prompt an engine holds: by its own word, where it
// gives it and the prompt's tokens are known, else by what was sent to it. The
// caller holds mu.
func (r *Roster) held(e *Engine, a *request.Request, since int64) (tokens int, told bool) {
	guess := r.index.Held(e.Key, a.Prefix, since) * a.Prefix.TokensPerHash
	if len(e.caches) == 0 {
		return guess, false
	}
	prompt := a.Known(e.About.Load().isAdapter(a.Model))
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

// HeldAt is how many tokens of a prompt an engine holds, and whether it has told that itself.
func (r *Roster) HeldAt(e *Engine, a *request.Request, now time.Time) (tokens int, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held(e, a, Instant(now.Add(-prefixLife)))
}
