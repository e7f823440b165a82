package mrdn

// Hello opens every stream of a link. The stream joins the link it names; the
// first to arrive makes it.
type Hello struct {
	MinVersion, MaxVersion uint16
	Capabilities           uint64
	// Agent and Incarnation are the caller's.
	Agent       string
	Incarnation ID
	// Expect is the incarnation the caller means to reach; zero takes any.
	Expect          ID
	Link            ID
	Stream, Streams uint16
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
	return w.finish()
}

// ParseHello reads a frame's own bytes.
func ParseHello(b []byte) (Hello, error) {
	r := reader{b: b}
	h := Hello{MinVersion: r.u16(), MaxVersion: r.u16(), Capabilities: r.u64(), Agent: string(r.bytes())}
	h.Incarnation, h.Expect, h.Link = r.id(), r.id(), r.id()
	h.Stream, h.Streams = r.u16(), r.u16()
	return h, r.end("hello")
}

// Welcome answers a Hello. A Code other than OK refuses it.
type Welcome struct {
	Version      uint16
	Capabilities uint64
	Agent        string
	Incarnation  ID
	Code         Code
	Message      string
}

// Append appends w in wire form.
func (m Welcome) Append(dst []byte) []byte {
	w := begin(dst, WelcomeFrame)
	w.u16(m.Version)
	w.u64(m.Capabilities)
	w.bytes([]byte(m.Agent))
	w.id(m.Incarnation)
	w.u16(uint16(m.Code))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParseWelcome reads a frame's own bytes.
func ParseWelcome(b []byte) (Welcome, error) {
	r := reader{b: b}
	m := Welcome{Version: r.u16(), Capabilities: r.u64(), Agent: string(r.bytes()), Incarnation: r.id()}
	m.Code, m.Message = Code(r.u16()), string(r.bytes())
	return m, r.end("welcome")
}
