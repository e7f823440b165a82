package mrdn

import "meridian/kv"

// RepeatedSpans is a capability, which Welcome tells: lists may say of a part that its
// spans are those of the part before.
const RepeatedSpans uint64 = 1 << 0

// Hello opens every stream of a link. The stream joins the link it names; the
// first to arrive makes it.
type Hello struct {
	MinVersion, MaxVersion uint16
	Capabilities           uint64
	// Agent and Incarnation are the caller's.
	Agent       string
	Incarnation kv.ID
	// Expect is the incarnation the caller means to reach; zero takes any.
	Expect          kv.ID
	Link            kv.ID
	Stream, Streams uint16
	// Fetch: the caller wants the metadata of the agent that listens, and no link.
	Fetch bool
	// Nonce goes into the proofs that may follow.
	Nonce [32]byte
}

// Append appends h in wire form.
func (h Hello) Append(dst []byte) []byte {
	w := begin(dst, HelloFrame)
	w.u16(h.MinVersion)
	w.u16(h.MaxVersion)
	w.u64(h.Capabilities)
	w.bytes([]byte(h.Agent))
	w.id(h.Incarnation)
	w.id(h.Expect)
	w.id(h.Link)
	w.u16(h.Stream)
	w.u16(h.Streams)
	w.u8(flag(h.Fetch, 1))
	w.b = append(w.b, h.Nonce[:]...)
	return w.finish()
}

// ParseHello reads a frame's own bytes.
func ParseHello(b []byte) (Hello, error) {
	r := reader{b: b}
	h := Hello{MinVersion: r.u16(), MaxVersion: r.u16(), Capabilities: r.u64(), Agent: string(r.bytes())}
	h.Incarnation, h.Expect, h.Link = r.id(), r.id(), r.id()
	h.Stream, h.Streams = r.u16(), r.u16()
	flags := r.u8()
	h.Fetch, h.Nonce = flags == 1, r.proof()
	r.bad = r.bad || flags > 1
	return h, r.end("hello")
}

// Welcome answers a Hello. A Code other than OK refuses it.
type Welcome struct {
	Version      uint16
	Capabilities uint64
	Agent        string
	Incarnation  kv.ID
	// Nonce goes into the proofs, which follow if Prove is set.
	Nonce   [32]byte
	Prove   bool
	Code    Code
	Message string
}

// Append appends w in wire form.
func (m Welcome) Append(dst []byte) []byte {
	w := begin(dst, WelcomeFrame)
	w.u16(m.Version)
	w.u64(m.Capabilities)
	w.bytes([]byte(m.Agent))
	w.id(m.Incarnation)
	w.b = append(w.b, m.Nonce[:]...)
	w.u8(flag(m.Prove, 1))
	w.u16(uint16(m.Code))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParseWelcome reads a frame's own bytes.
func ParseWelcome(b []byte) (Welcome, error) {
	r := reader{b: b}
	m := Welcome{Version: r.u16(), Capabilities: r.u64(), Agent: string(r.bytes()), Incarnation: r.id()}
	m.Nonce = r.proof()
	flags := r.u8()
	m.Prove, m.Code, m.Message = flags == 1, Code(r.u16()), string(r.bytes())
	r.bad = r.bad || flags > 1
	return m, r.end("welcome")
}

// Proof shows that its sender knows the cell's key; docs/wire.md says of what
// it is made. The listener's answers the dialer's, or refuses it.
type Proof struct {
	MAC     [32]byte
	Code    Code
	Message string
}

// Append appends m in wire form.
func (m Proof) Append(dst []byte) []byte {
	w := begin(dst, ProofFrame)
	w.b = append(w.b, m.MAC[:]...)
	w.u16(uint16(m.Code))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParseProof reads a frame's own bytes.
func ParseProof(b []byte) (Proof, error) {
	r := reader{b: b}
	m := Proof{MAC: r.proof(), Code: Code(r.u16()), Message: string(r.bytes())}
	return m, r.end("proof")
}
