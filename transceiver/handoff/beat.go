package handoff

// Beat is a taker's sign of life. It renews the holder's lease, and tells how
// many computed layers the taker knows of, so that news that was lost is told
// again.
type Beat struct {
	Session uint64
	Layers  int
}

func (m *Beat) append(w *writer) {
	w.uint(m.Session)
	w.count(m.Layers)
}

func (m *Beat) parse(r *reader) { m.Session, m.Layers = r.uint(), r.int() }

// Progress tells how many layers the prefill engine has computed.
type Progress struct {
	Session uint64
	Layers  int
}

func (m *Progress) append(w *writer) {
	w.uint(m.Session)
	w.count(m.Layers)
}

func (m *Progress) parse(r *reader) { m.Session, m.Layers = r.uint(), r.int() }
