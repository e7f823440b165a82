package handoff

import "meridian/internal/fields"

// Beat is a taker's sign of life. It renews the holder's lease, and tells how
// many computed layers the taker knows of, so that news that was lost is told
// again.
type Beat struct {
	Session uint64
	Layers  int
}

func (m *Beat) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.Count(m.Layers)
}

func (m *Beat) parse(r *fields.Reader) { m.Session, m.Layers = r.Uint(), r.Int() }

// Progress tells how many layers the prefill engine has computed.
type Progress struct {
	Session uint64
	Layers  int
}

func (m *Progress) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.Count(m.Layers)
}

func (m *Progress) parse(r *fields.Reader) { m.Session, m.Layers = r.Uint(), r.Int() }
