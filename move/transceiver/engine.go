package transceiver

import (
	"context"
	"fmt"
	"strings"

	"meridian/move/transceiver/handoff"
)

// ranks is the ranks of an engine on this agent.
type ranks struct {
	home   string // the agent that speaks for it, if that is another
	memory map[int]handoff.Memory
	events func(handoff.Event) // of an object cache
}

// Join makes this agent the home of an engine. Ranks of it that live here need
// not be served apart; those elsewhere are, by their own agents.
func (t *Transceiver) Join(e handoff.Engine) error {
	if strings.HasPrefix(e.ID, handoff.StorePrefix) {
		return fmt.Errorf("%w: engine %q has an id of an object cache: call it something that does not begin with %s", handoff.ErrTerms, e.ID, handoff.StorePrefix)
	}
	return t.join(e, nil)
}

// JoinStore makes this agent the home of an object cache: an engine whose blocks
// are units at places of its memory. What is found in it is offered, and what is
// to be kept accepted, as by any engine, under limits of its own. What happens to it
// is told to events in the place of Options.Events, and as that is.
func (t *Transceiver) JoinStore(e handoff.Engine, events func(handoff.Event)) error {
	if !e.IsStore() || events == nil {
		return fmt.Errorf("transceiver: engine %q is no object cache, or has no function for events", e.ID)
	}
	return t.join(e, events)
}

func (t *Transceiver) join(e handoff.Engine, events func(handoff.Event)) error {
	if err := e.Validate(); err != nil {
		return err
	}
	here := make(map[int]handoff.Memory)
	for number, rank := range e.Ranks {
		if rank.Agent == t.self {
			here[number] = rank.Memory
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.enter(e.ID, "", here); err != nil {
		return err
	}
	t.engines[e.ID].events = events
	t.source.Join(&e)
	t.destination.Join(&e)
	t.follower.Join(e.ID, t.self.Name)
	return nil
}

// Serve makes ranks of an engine whose home is elsewhere work for it. As long as
// nothing is asked of them it may be called again, when more of them are here.
func (t *Transceiver) Serve(engine, home string, memory map[int]handoff.Memory) error {
	if home == t.self.Name {
		return fmt.Errorf("transceiver: %s is the home of %s itself: use Join", home, engine)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if standing := t.engines[engine]; standing != nil && standing.home == home && !t.follower.Busy(engine) {
		delete(t.engines, engine)
	}
	if err := t.enter(engine, home, memory); err != nil {
		return err
	}
	t.follower.Join(engine, home)
	return nil
}

func (t *Transceiver) enter(engine, home string, memory map[int]handoff.Memory) error {
	switch {
	case t.closed:
		return ErrClosed
	case t.engines[engine] != nil:
		return fmt.Errorf("transceiver: engine %q is here already; it must leave first", engine)
	}
	t.engines[engine] = &ranks{home: home, memory: memory}
	return nil
}

// Leave takes an engine away: its offers are withdrawn, what it takes is
// cancelled, and when Leave returns nil nothing of them touches its memory here.
func (t *Transceiver) Leave(ctx context.Context, engine string) error {
	t.step(func(now handoff.Instant) []handoff.Effect { return t.leave(now, engine) })
	return t.until(ctx, func() bool { return !t.busy(engine) })
}

// leave needs mu.
func (t *Transceiver) leave(now handoff.Instant, engine string) []handoff.Effect {
	delete(t.engines, engine)
	effects := append(t.source.Leave(now, engine), t.destination.Leave(now, engine)...)
	return append(effects, t.follower.Leave(engine)...)
}

func (t *Transceiver) leaveAll(now handoff.Instant) []handoff.Effect {
	var effects []handoff.Effect
	for engine := range t.engines {
		effects = append(effects, t.leave(now, engine)...)
	}
	return effects
}

// busy reports whether something runs for an engine; mu is held.
func (t *Transceiver) busy(engine string) bool {
	for _, o := range t.offers {
		if o.engine == engine {
			return true
		}
	}
	for _, in := range t.accepts {
		if in.engine == engine {
			return true
		}
	}
	return t.follower.Busy(engine)
}

// settled waits until nothing runs for any engine, and every event was delivered.
func (t *Transceiver) settled(ctx context.Context) error {
	return t.until(ctx, func() bool {
		return len(t.offers)+len(t.accepts)+len(t.events) == 0 && !t.delivering && !t.follower.Busy("")
	})
}

// until waits for something that mu protects and that a step brings about.
func (t *Transceiver) until(ctx context.Context, done func() bool) error {
	for {
		t.mu.Lock()
		if done() {
			t.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("transceiver: waiting for hand-offs to become quiet: %w", ctx.Err())
		}
	}
}
