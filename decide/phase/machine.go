package phase

import (
	"bytes"
	"math/bits"

	"meridian/kv"
)

// Machine is one sequence: where its stream stands. It is a value of fixed size
// and may be copied.
type Machine struct {
	model *Model
	phase kv.Phase
	// opening says what comes if no start marker does; it counts in Prefill.
	opening opening
	// at is the state of the automaton that the phase reads with, or of the frame
	// of a message.
	at uint16
	// starts has bit i set where a token began i bytes ago: how many tokens a
	// marker in prose took.
	starts uint64
	// tokens counts all, think those of the thought, answer where the answer began.
	tokens, think, answer int
}

// Begin is the machine of a sequence that follows a prompt.
func (m *Model) Begin(p Prompt) Machine { return Machine{model: m, opening: m.read(p)} }

// Phase is where the sequence stands. Until its first tokens have shown whether
// it thinks, that is Prefill.
func (m *Machine) Phase() kv.Phase { return m.phase }

// Tokens counts what was generated, Think the tokens of the thought without its
// markers, and Output those since: markers and frames before the answer belong
// to neither.
func (m *Machine) Tokens() int { return m.tokens }

// Think counts the tokens of the thought so far; see Tokens.
func (m *Machine) Think() int { return m.think }

// Output counts the tokens of the answer so far; see Tokens.
func (m *Machine) Output() int {
	if m.phase < kv.Output {
		return 0
	}
	return m.tokens - m.answer
}

// Step takes the next committed tokens, appends what they caused to events, and
// returns those. Tokens after the end are no part of the sequence.
func (m *Machine) Step(tokens []uint32, events []Event) []Event {
	for i, id := range tokens {
		switch m.phase {
		case kv.Output:
			m.tokens += len(tokens) - i
			return events
		case kv.Complete:
			return events
		case kv.Think:
			if m.at == 0 && m.model.byIDs && m.model.end.absent(id) {
				m.tokens++ // most tokens are of this kind
				m.think++
				continue
			}
		}
		m.tokens++
		was := m.phase
		m.read(id)
		if m.phase == was {
			continue
		}
		if was == kv.Prefill && m.thought() {
			events = append(events, Event{Kind: EnterThink, At: m.tokens})
		}
		if m.phase == kv.Output && m.thought() {
			events = append(events, Event{Kind: ExitThink, At: m.tokens, Think: m.think})
		}
	}
	return events
}

// End says that no token follows.
func (m *Machine) End(events []Event) []Event {
	if m.phase == kv.Complete {
		return events
	}
	if m.phase == kv.Think || m.opening == opened && m.phase == kv.Prefill {
		m.answer = m.tokens // there was none
	}
	m.phase = kv.Complete
	return append(events, Event{Kind: Complete, At: m.tokens, Think: m.think})
}

// thought says whether the sequence is in its thought or has had one.
func (m *Machine) thought() bool { return m.phase == kv.Think || m.opening == opened }

// read takes one token in Prefill or Think.
func (m *Machine) read(id uint32) {
	switch {
	case m.phase == kv.Prefill && m.opening == closed:
		m.answers(m.tokens - 1)
	case m.model.channels:
		m.frame(id)
	case m.model.prose:
		m.spell(id)
	case m.phase == kv.Prefill:
		m.open(id)
	default:
		m.thinks(id)
	}
}

// enters begins the thought; opening tells later that there was one.
func (m *Machine) enters() { m.phase, m.opening, m.at = kv.Think, opened, 0 }

// answers begins the answer after so many tokens.
func (m *Machine) answers(after int) { m.phase, m.at, m.answer = kv.Output, 0, after }

// maxLeading is how many tokens of white space before a thought are waited for.
const maxLeading = 16

// blank says that a token is white space; without a tokenizer none is.
func (m *Model) blank(id uint32) bool {
	if m.texts == nil {
		return false
	}
	text := m.texts(id)
	return len(text) > 0 && len(bytes.TrimLeft(text, " \t\r\n")) == 0
}

// open looks for a start marker at the beginning of the stream, after white space.
func (m *Machine) open(id uint32) {
	start := m.model.start
	next := start.step(m.at, id)
	if start.depth[next] == start.depth[m.at]+1 {
		m.at = next
		if start.found[next] > 0 {
			m.enters()
		}
		return
	}
	if m.opening == asks {
		if m.at > 0 || m.tokens > maxLeading || !m.model.blank(id) {
			m.answers(0)
		}
		return
	}
	var buffer [maxMarkerLength]uint32
	begun := start.path(m.at, &buffer)
	m.enters()
	for _, earlier := range begun {
		m.thinks(earlier) // no end marker stands within a start marker: check refuses that
	}
	m.thinks(id)
}

// thinks looks for an end marker.
func (m *Machine) thinks(id uint32) {
	m.think++
	m.at = m.model.end.step(m.at, id)
	if length := m.model.end.found[m.at]; length > 0 {
		m.think -= int(length)
		m.answers(m.tokens)
	}
}

// spell looks for markers in the text of a token.
func (m *Machine) spell(id uint32) {
	counts := m.phase == kv.Think
	for i, c := range m.model.texts(id) {
		m.starts <<= 1
		if i == 0 {
			m.starts |= 1
		}
		if m.phase == kv.Think {
			m.thinkText(c)
		} else if m.openText(c) {
			counts = true
		}
		if m.phase == kv.Output {
			return
		}
	}
	if counts {
		m.think++
	}
}

// openText looks for a start marker at the beginning of the text, after white
// space. It says whether the token at hand belongs to the thought.
func (m *Machine) openText(c byte) bool {
	start := m.model.start
	next := start.step(m.at, uint32(c))
	switch {
	case start.depth[next] == start.depth[m.at]+1:
		m.at = next
		if start.found[next] > 0 {
			m.enters()
			m.starts = 0 // an end marker begins after the start marker
		}
		return false
	case m.at == 0 && (c == ' ' || c == '\n'):
		return false
	case m.opening == asks:
		m.answers(0)
		return false
	}
	var buffer [maxMarkerLength]uint32
	begun := start.path(m.at, &buffer)
	m.enters()
	m.think = m.tokens - 1 // all before the one at hand
	for _, earlier := range begun {
		m.thinkText(byte(earlier))
	}
	m.thinkText(c)
	return true
}

// thinkText looks for an end marker that may begin and end within a token.
func (m *Machine) thinkText(c byte) {
	end := m.model.end
	m.at = end.step(m.at, uint32(c))
	length := int(end.found[m.at])
	if length == 0 {
		return
	}
	marker := m.starts << (64 - length)
	touched := bits.OnesCount64(marker)
	if marker>>63 == 0 {
		touched++ // its first byte stands within a token
	}
	// The token at hand has not been counted yet.
	m.think = max(0, m.think-(touched-1))
	m.answers(m.tokens)
}
