package handoff

import (
	"meridian/internal/fields"
	"meridian/kv"
)

// Capabilities of a build that another one may lack.
const (
	// CanLayers: it takes layers as they are computed. Without it the answer
	// waits until all are.
	CanLayers uint64 = 1 << iota
	// CanPlaces: it knows object caches, whose blocks lie at places of an arena.
	// Without it a cache refuses, and nothing that it could not read is said to it.
	CanPlaces
	// CanTokens: it takes the tokens of a chunk as they are computed. Without it
	// nothing moves before the last chunk is.
	CanTokens

	// AllCapabilities are those of this build.
	AllCapabilities = CanLayers | CanPlaces | CanTokens
)

// Ask is a decode home's wish for a cache. It is repeated until it is answered.
type Ask struct {
	// Session numbers the wishes of one start of the asking home.
	Session      uint64
	Low, High    uint8 // versions
	Capabilities uint64
	// Push asks the source's followers to write, instead of reading from them.
	Push   bool
	Ticket []byte
	Dst    Party
	// Tokens is what the destination lacks.
	Tokens      kv.TokenRange
	RemainingMs uint64
}

func (m *Ask) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.U8(m.Low)
	w.U8(m.High)
	w.Uint(m.Capabilities)
	w.Flag(m.Push)
	w.Bytes(m.Ticket)
	m.Dst.append(w)
	w.Uint(uint64(m.Tokens.Start))
	w.Uint(uint64(m.Tokens.End))
	w.Uint(m.RemainingMs)
}

func (m *Ask) parse(r *fields.Reader) {
	m.Session, m.Low, m.High, m.Capabilities, m.Push = r.Uint(), r.U8(), r.U8(), r.Uint(), r.Flag()
	m.Ticket = r.Bytes(MaxTicketBytes)
	m.Dst.parse(r)
	m.Tokens = kv.TokenRange{Start: r.Int(), End: r.Int()}
	m.RemainingMs = r.Uint()
}

// Answer is the source's consent: what it has and where, the digest of the plan
// that it made, and, unless it is to write itself, the grants to read with.
type Answer struct {
	Session       uint64
	Version       uint8
	Src           Party
	ContextTokens int
	Digest        kv.Hash
	Grants        []FlowGrant
	// Computed is what is computed so far.
	Computed Computed
	// LeaseMs is how long the source waits for a sign of life.
	LeaseMs uint64
}

func (m *Answer) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.U8(m.Version)
	m.Src.append(w)
	w.Uint(uint64(m.ContextTokens))
	w.Hash(m.Digest)
	appendGrants(w, m.Grants)
	m.Computed.append(w)
	w.Uint(m.LeaseMs)
}

func (m *Answer) parse(r *fields.Reader) {
	m.Session, m.Version = r.Uint(), r.U8()
	m.Src.parse(r)
	m.ContextTokens, m.Digest, m.Grants = r.Int(), r.Hash(), parseGrants(r)
	m.Computed.parse(r)
	m.LeaseMs = r.Uint()
}

// Refusal is the source's no.
type Refusal struct {
	Session uint64
	Problem Problem
}

func (m *Refusal) append(w *fields.Writer) {
	w.Uint(m.Session)
	m.Problem.append(w)
}

func (m *Refusal) parse(r *fields.Reader) {
	m.Session = r.Uint()
	m.Problem.parse(r)
}
