package handoff

import "meridian/kv"

// Push opens the taker's memory to the holder's hands: they may write. The
// digest is the taker's own; the holder compares it before a byte moves.
type Push struct {
	Session  uint64
	Digest   kv.Hash
	Openings []Opening
}

func (m *Push) append(w *writer) {
	w.uint(m.Session)
	w.hash(m.Digest)
	appendOpenings(w, m.Openings)
}

func (m *Push) parse(r *reader) {
	m.Session, m.Digest, m.Openings = r.uint(), r.hash(), parseOpenings(r)
}

// Pushed tells how far the holder's hands have come. It answers every Push.
type Pushed struct {
	Session uint64
	Flows   []FlowReport
	Problem Problem
}

func (m *Pushed) append(w *writer) {
	w.uint(m.Session)
	appendReports(w, m.Flows)
	m.Problem.append(w)
}

func (m *Pushed) parse(r *reader) {
	m.Session, m.Flows = r.uint(), parseReports(r)
	m.Problem.parse(r)
}
