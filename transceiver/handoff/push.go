package handoff

import "meridian/kv"

// Push opens the taker's memory to the holder's followers: they may write. The
// digest is the taker's own; the holder compares it before a byte moves.
type Push struct {
	Session uint64
	Digest  kv.Hash
	Grants  []FlowGrant
}

func (m *Push) append(w *writer) {
	w.uint(m.Session)
	w.hash(m.Digest)
	appendGrants(w, m.Grants)
}

func (m *Push) parse(r *reader) {
	m.Session, m.Digest, m.Grants = r.uint(), r.hash(), parseGrants(r)
}

// Pushed tells how far the holder's followers have come. It answers every Push.
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
