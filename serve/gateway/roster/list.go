package roster

import "fmt"

// List adds an engine that was named, not found.
func (r *Roster) List(i int, b Backend) error {
	url, _, err := checkURL(b.URL)
	if err != nil {
		return err
	}
	if b.Role == 0 {
		return fmt.Errorf("gateway: the engine at %s has no role", b.URL)
	}
	e := &Engine{Key: fmt.Sprintf("%d:%s", i, url), URL: url, Role: b.Role, Phases: b.Phases, listed: true, cacheEvents: b.Cache, given: About{ID: b.Engine}}
	if b.APIKey != "" {
		e.Authorization = "Bearer " + b.APIKey
	}
	e.About.Store(&e.given)
	sources, err := b.Cache.sources(url)
	if err != nil {
		return fmt.Errorf("gateway: the engine at %s: %w", b.URL, err)
	}
	r.add(e)
	r.followCaches(e, sources)
	return nil
}

// followCaches subscribes to what an engine says of its caches.
func (r *Roster) followCaches(e *Engine, sources []source) {
	if len(sources) == 0 {
		return
	}
	caches, err := follow(sources, func() { r.Misjudged(e.Key) }, &r.told, r.logger)
	if err != nil {
		r.logger.Warn("an engine's cache events are not followed", "engine", e.Name(), "error", err)
		return
	}
	r.followed(e, caches)
}
