package policy

// horizon is how far a policy's classes hold, while it gives them.
type horizon struct {
	now   Instant
	steps int32
	until Instant
}

// in says that a class may change after so many tokens of one request.
func (h *horizon) in(steps int32) {
	if h.steps == 0 || steps < h.steps {
		h.steps = max(1, steps)
	}
}

// at says that a class may change at a moment.
func (h *horizon) at(t Instant) {
	if h.until == 0 || t < h.until {
		h.until = t
	}
}

// since is how long r has been left out, or has waited for its first turn.
func (h *horizon) since(r *Request) Instant { return h.now - max(r.LastServed, r.Arrived) }

// limit makes the decision hold no longer than the classes that it stands on.
// Where every request takes part they do not matter.
func (h *horizon) limit(k *ranking) {
	if !k.contended {
		return
	}
	if h.steps > 0 {
		k.d.Steps = min(k.d.Steps, h.steps)
	}
	k.d.Until = h.until
}

// ahead is how much time r's reader still has to read, at the pace of one token
// in that time: negative, if it waits, and 0 before its first token.
func (r *Request) ahead(now, pace Instant) Instant {
	if r.FirstOutput == 0 {
		return 0
	}
	return Instant(r.Output)*pace - (now - r.FirstOutput)
}
