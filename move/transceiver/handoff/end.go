package handoff

import "meridian/internal/fields"

// End is a destination's last word: it has everything, or it wants nothing more. It is
// repeated until Ended comes back.
type End struct {
	Session uint64
	// Ticket is the right to say this also of what was never asked for.
	Ticket []byte
	// Problem is none when every byte is in place and verified.
	Problem Problem
	// Final: no other decode engine will come for it.
	Final bool
}

func (m *End) each(c fields.Codec) {
	c.Uint(&m.Session)
	c.Bytes(MaxTicketBytes, &m.Ticket)
	m.Problem.each(c)
	c.Flag(&m.Final)
}

// Ended is a source's last word to a session, asked for or not.
type Ended struct {
	Session uint64
	Problem Problem
}

func (m *Ended) each(c fields.Codec) {
	c.Uint(&m.Session)
	m.Problem.each(c)
}
