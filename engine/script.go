package engine

import "hash/fnv"

// script makes a model play one that reasons: <think>, so many tokens, </think>,
// then the answer. It goes by position alone.
type script struct {
	active     bool
	start, end uint32
	tokens     int // of thought
	newline    marker
	trace      *Trace // nil: it plays none
}

// Where the request does not say how long to think, the prompt does.
const (
	leastThought = 8
	thoughtRange = 33
)

func newScript(prompt []uint32, tokens *int, s *servedModel) script {
	c := script{active: true, start: s.thinkStart.id, end: s.thinkEnd.id, newline: s.newline}
	if tokens != nil {
		c.tokens = *tokens
		return c
	}
	h := fnv.New32a()
	for _, t := range prompt {
		h.Write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
	}
	c.tokens = leastThought + int(h.Sum32()%thoughtRange)
	return c
}

// forces is the token that must stand at a position of the answer, if any.
func (s script) forces(position int) (uint32, bool) {
	switch {
	case s.active && position == 0:
		return s.start, true
	case s.active && position == s.tokens+1:
		return s.end, true
	case s.active && position <= s.tokens && s.newline.exists && s.trace.endsLine(position-1):
		return s.newline.id, true
	}
	return 0, false
}

// over: the thought's end stands at this position, by the script or because the engine forced
// it there. From then on all is as if the thought had been meant to be that long.
func (s *script) over(position int) { s.tokens = min(s.tokens, position-1) }

// goesOn: neither the thought nor, before its first token, the answer ends here.
func (s script) goesOn(position int) bool { return s.active && position <= s.tokens+2 }
