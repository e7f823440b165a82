package handoff

// End is a taker's last word: it has everything, or it wants nothing more. It is
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

func (m *End) append(w *writer) {
	w.uint(m.Session)
	w.bytes(m.Ticket)
	m.Problem.append(w)
	w.flag(m.Final)
}

func (m *End) parse(r *reader) {
	m.Session, m.Ticket = r.uint(), r.bytes(MaxTicketBytes)
	m.Problem.parse(r)
	m.Final = r.flag()
}

// Ended is a holder's last word to a session, asked for or not.
type Ended struct {
	Session uint64
	Problem Problem
}

func (m *Ended) append(w *writer) {
	w.uint(m.Session)
	m.Problem.append(w)
}

func (m *Ended) parse(r *reader) {
	m.Session = r.uint()
	m.Problem.parse(r)
}
