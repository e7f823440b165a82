package handoff

import (
	"meridian/internal/fields"
	"meridian/kv"
)

// Push opens the destination's memory to the source's followers: they may write. The
// digest is the destination's own; the source compares it before a byte moves.
type Push struct {
	Session uint64
	Digest  kv.Hash
	Grants  []FlowGrant
}

func (m *Push) each(c fields.Codec) {
	c.Uint(&m.Session)
	c.Hash(&m.Digest)
	eachGrant(c, &m.Grants)
}

// Pushed tells how far the source's followers have come. It answers every Push.
type Pushed struct {
	Session uint64
	Flows   []FlowReport
	Problem Problem
}

func (m *Pushed) each(c fields.Codec) {
	c.Uint(&m.Session)
	eachReport(c, &m.Flows)
	m.Problem.each(c)
}
