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

func (m *Ask) each(c fields.Codec) {
	c.Uint(&m.Session)
	c.U8(&m.Low, &m.High)
	c.Uint(&m.Capabilities)
	c.Flag(&m.Push)
	c.Bytes(MaxTicketBytes, &m.Ticket)
	m.Dst.each(c)
	c.Int(&m.Tokens.Start, &m.Tokens.End)
	c.Uint(&m.RemainingMs)
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

func (m *Answer) each(c fields.Codec) {
	c.Uint(&m.Session)
	c.U8(&m.Version)
	m.Src.each(c)
	c.Int(&m.ContextTokens)
	c.Hash(&m.Digest)
	eachGrant(c, &m.Grants)
	m.Computed.each(c)
	c.Uint(&m.LeaseMs)
}

// Refusal is the source's no.
type Refusal struct {
	Session uint64
	Problem Problem
}

func (m *Refusal) each(c fields.Codec) {
	c.Uint(&m.Session)
	m.Problem.each(c)
}
