package handoff

import "meridian/kv"

// Capabilities of a build that another one may lack.
const (
	// CanLayers: it takes layers as they are computed. Without it the answer
	// waits until all are.
	CanLayers uint64 = 1 << iota

	allCapabilities = CanLayers
)

// Ask is a decode home's wish for a cache. It is repeated until it is answered.
type Ask struct {
	// Session numbers the wishes of one start of the asking home.
	Session      uint64
	Low, High    uint8 // versions
	Capabilities uint64
	// Push asks the holder's followers to write, instead of reading from them.
	Push   bool
	Ticket []byte
	Dst    Party
	// Tokens is what the destination lacks.
	Tokens      kv.TokenRange
	RemainingMs uint64
}

func (m *Ask) append(w *writer) {
	w.uint(m.Session)
	w.u8(m.Low)
	w.u8(m.High)
	w.uint(m.Capabilities)
	w.flag(m.Push)
	w.bytes(m.Ticket)
	m.Dst.append(w)
	w.uint(uint64(m.Tokens.Start))
	w.uint(uint64(m.Tokens.End))
	w.uint(m.RemainingMs)
}

func (m *Ask) parse(r *reader) {
	m.Session, m.Low, m.High, m.Capabilities, m.Push = r.uint(), r.u8(), r.u8(), r.uint(), r.flag()
	m.Ticket = r.bytes(MaxTicketBytes)
	m.Dst.parse(r)
	m.Tokens = kv.TokenRange{Start: r.int(), End: r.int()}
	m.RemainingMs = r.uint()
}

// Answer is the holder's consent: what it has and where, the digest of the plan
// that it made, and, unless it is to write itself, the grants to read with.
type Answer struct {
	Session       uint64
	Version       uint8
	Src           Party
	ContextTokens int
	Digest        kv.Hash
	Grants        []FlowGrant
	// Layers is how many are computed so far.
	Layers int
	// LeaseMs is how long the holder waits for a sign of life.
	LeaseMs uint64
}

func (m *Answer) append(w *writer) {
	w.uint(m.Session)
	w.u8(m.Version)
	m.Src.append(w)
	w.uint(uint64(m.ContextTokens))
	w.hash(m.Digest)
	appendGrants(w, m.Grants)
	w.uint(uint64(m.Layers))
	w.uint(m.LeaseMs)
}

func (m *Answer) parse(r *reader) {
	m.Session, m.Version = r.uint(), r.u8()
	m.Src.parse(r)
	m.ContextTokens, m.Digest, m.Grants = r.int(), r.hash(), parseGrants(r)
	m.Layers, m.LeaseMs = r.int(), r.uint()
}

// Refusal is the holder's no.
type Refusal struct {
	Session uint64
	Problem Problem
}

func (m *Refusal) append(w *writer) {
	w.uint(m.Session)
	m.Problem.append(w)
}

func (m *Refusal) parse(r *reader) {
	m.Session = r.uint()
	m.Problem.parse(r)
}
