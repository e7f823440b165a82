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

func (m *Push) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.Hash(m.Digest)
	appendGrants(w, m.Grants)
}

func (m *Push) parse(r *fields.Reader) {
	m.Session, m.Digest, m.Grants = r.Uint(), r.Hash(), parseGrants(r)
}

// Pushed tells how far the source's followers have come. It answers every Push.
type Pushed struct {
	Session uint64
	Flows   []FlowReport
	Problem Problem
}

func (m *Pushed) append(w *fields.Writer) {
	w.Uint(m.Session)
	appendReports(w, m.Flows)
	m.Problem.append(w)
}

func (m *Pushed) parse(r *fields.Reader) {
	m.Session, m.Flows = r.Uint(), parseReports(r)
	m.Problem.parse(r)
}
