package lifecycle

// Effect is what a life has the gateway do beside its next step: it counts, or tells others
// what was learned. The gateway does all of them before the step, the oldest first.
type Effect interface{ isEffect() }

// Placed: engines were chosen, by what was known of the prompt's cache.
type Placed struct{ By Known }

// FellBack: a prompt that was to be handed over is computed by the decode engine.
type FellBack struct{}

func (Placed) isEffect()   {}
func (FellBack) isEffect() {}

// Effects are those of the events since it was called last.
func (l *Life) Effects() []Effect {
	effects := l.effects
	l.effects = nil
	return effects
}

func (l *Life) effect(e Effect) { l.effects = append(l.effects, e) }
