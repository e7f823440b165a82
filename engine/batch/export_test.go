package batch

// Append adds the token that follows. All before it must be computed.
func (s *Scheduler) Append(q *Sequence, token uint32) { q.Tokens = append(q.Tokens, token) }

// Tokens is how many tokens' cache, from the first on, a hold is for.
func (h *Hold) Tokens() int { return h.tokens }
