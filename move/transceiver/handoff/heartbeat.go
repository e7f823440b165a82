package handoff

import "meridian/internal/fields"

// Heartbeat is a destination's sign of life. It renews the source's lease, and tells what
// the destination knows to be computed, so that news that was lost is told again.
type Heartbeat struct {
	Session  uint64
	Computed Computed
}

func (m *Heartbeat) each(c fields.Codec) {
	c.Uint(&m.Session)
	m.Computed.each(c)
}

// Progress tells how much the prefill engine has computed.
type Progress struct {
	Session  uint64
	Computed Computed
}

func (m *Progress) each(c fields.Codec) {
	c.Uint(&m.Session)
	m.Computed.each(c)
}
