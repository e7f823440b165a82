package handoff

import "meridian/internal/fields"

// Beat is a taker's sign of life. It renews the holder's lease, and tells what
// the taker knows to be computed, so that news that was lost is told again.
type Beat struct {
	Session  uint64
	Computed Computed
}

func (m *Beat) append(w *fields.Writer) {
	w.Uint(m.Session)
	m.Computed.append(w)
}

func (m *Beat) parse(r *fields.Reader) {
	m.Session = r.Uint()
	m.Computed.parse(r)
}

// Progress tells how much the prefill engine has computed.
type Progress struct {
	Session  uint64
	Computed Computed
}

func (m *Progress) append(w *fields.Writer) {
	w.Uint(m.Session)
	m.Computed.append(w)
}

func (m *Progress) parse(r *fields.Reader) {
	m.Session = r.Uint()
	m.Computed.parse(r)
}
