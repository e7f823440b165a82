package phase

import "meridian/kv"

// Where a stream of messages stands; a number above inName is inName and how
// many ids of the thought's channel have matched.
const (
	between uint16 = iota // messages: what stands there is frame
	inThought
	inOtherName // of a channel that holds no thought
	inName
)

// maxFrameTokens without a channel are taken for text, not for a frame: streams
// that have lost their frames are counted all the same.
const maxFrameTokens = 8

// frame takes a token of a model whose messages name their channel.
func (m *Machine) frame(id uint32) {
	if m.phase == kv.Prefill && m.opening == opened {
		m.enters()
		m.at = inThought
	}
	c := &m.model.channel
	switch {
	case id == c.Open:
		m.at = inName
	case m.at == inThought && id == c.Close:
		m.at, m.starts = between, 0
	case m.at == inThought:
		m.think++
	case m.at == between:
		m.unframed()
	case id == c.Message && int(m.at-inName) == len(c.Think) && m.at >= inName:
		m.enters()
		m.at = inThought
	case id == c.Message:
		m.answers(m.tokens)
	case m.at >= inName && int(m.at-inName) < len(c.Think):
		if c.Think[m.at-inName] == id {
			m.at++
		} else {
			m.at = inOtherName
		}
	}
}

// unframed takes a token between messages.
func (m *Machine) unframed() {
	m.starts++ // which prose alone uses for what it is named after
	if m.starts <= maxFrameTokens {
		return
	}
	if m.phase == kv.Think {
		m.at = inThought
		m.think++
		return
	}
	m.answers(0)
}
