package phase

import (
	"bytes"
	"slices"
)

const (
	thinkDirective   = "/think"
	noThinkDirective = "/no_think"
	// tailTokens may follow a marker that a chat template wrote at the end of a
	// prompt: a line break or two. What stands further from the end was written
	// by a user or in an earlier turn, and opens nothing.
	tailTokens = 2
)

// Prompt is what comes before the first token of a sequence.
type Prompt struct {
	// Tokens are its ids. Where the model itself wrote the last of them, as when
	// an answer is continued, those are no prompt: feed them to the machine.
	Tokens []uint32
	// NoThink: the request asked for no thought in other words than a directive.
	NoThink bool
}

// opening is what a sequence does until it has shown otherwise.
type opening uint8

const (
	asks   opening = iota // a start marker, or it is the answer
	opened                // it is a thought
	closed                // it is the answer
)

// read says how a sequence begins after p.
func (m *Model) read(p Prompt) opening {
	switch {
	case !m.thinks, p.NoThink, m.disables && m.directed(p.Tokens):
		return closed
	case m.endsWith(p.Tokens, m.closed):
		return closed
	case m.opens, m.endsWith(p.Tokens, m.opened):
		return opened
	}
	return asks
}

// directed says whether the last directive in a prompt is /no_think.
func (m *Model) directed(tokens []uint32) bool {
	if m.directives == nil {
		return false
	}
	state, off := uint16(0), false
	for _, id := range tokens {
		for _, c := range m.texts(id) {
			state = m.directives.step(state, uint32(c))
			if length := m.directives.found[state]; length > 0 {
				off = int(length) == len(noThinkDirective)
			}
		}
	}
	return off
}

// endsWith says whether a prompt ends with one of the markers.
func (m *Model) endsWith(tokens []uint32, markers []Marker) bool {
	if m.prose {
		return m.endsWithText(tokens, markers)
	}
	for after := range min(tailTokens, len(tokens)) + 1 {
		before := tokens[:len(tokens)-after]
		if slices.ContainsFunc(markers, func(k Marker) bool {
			return len(before) >= len(k.IDs) && slices.Equal(before[len(before)-len(k.IDs):], k.IDs)
		}) {
			return true
		}
	}
	return false
}

func (m *Model) endsWithText(tokens []uint32, markers []Marker) bool {
	var text []byte
	for _, id := range tokens[max(0, len(tokens)-maxMarkerLength-tailTokens):] {
		text = append(text, m.texts(id)...)
	}
	text = bytes.TrimRight(text, " \n")
	return slices.ContainsFunc(markers, func(k Marker) bool { return bytes.HasSuffix(text, []byte(k.Text)) })
}
