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

func (m *End) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.Bytes(m.Ticket)
	m.Problem.append(w)
	w.Flag(m.Final)
}

func (m *End) parse(r *fields.Reader) {
	m.Session, m.Ticket = r.Uint(), r.Bytes(MaxTicketBytes)
	m.Problem.parse(r)
	m.Final = r.Flag()
}

// Ended is a source's last word to a session, asked for or not.
type Ended struct {
	Session uint64
	Problem Problem
}

func (m *Ended) append(w *fields.Writer) {
	w.Uint(m.Session)
	m.Problem.append(w)
}

func (m *Ended) parse(r *fields.Reader) {
	m.Session = r.Uint()
	m.Problem.parse(r)
}
