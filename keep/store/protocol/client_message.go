package protocol

import (
	"slices"

	"meridian/internal/fields"
	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// What a client asks of an owner, and what the owner answers.

// Attributes are what a writer says of an object besides its bytes.
type Attributes struct {
	PageSize uint32 // 0: arena.PageSize
	Pinned   bool
	Priority uint8
}

func (a *Attributes) each(c fields.Codec) {
	fields.UpTo(c, 1<<31, &a.PageSize)
	c.Flag(&a.Pinned)
	c.U8(&a.Priority)
}

// Put stores a small object, which is in the message. It is answered by a Reply.
type Put struct {
	Name  []byte
	Value []byte
	Attributes
	// PatienceMs is how long its client waits for the answer.
	PatienceMs uint64
}

func (*Put) kind() uint8 { return 1 }

func (m *Put) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	c.Bytes(MaxInline, &m.Value)
	m.Attributes.each(c)
	c.Uint(&m.PatienceMs)
}

// PutFrom stores an object that lies in Source, which its client has opened to the
// owner: that reads it. It is answered by a Reply; until then, or until it has revoked
// the grant, the client leaves its memory as it is.
type PutFrom struct {
	Name   []byte
	Source Span
	Attributes
	// PatienceMs is how long its client waits for the answer.
	PatienceMs uint64
}

func (*PutFrom) kind() uint8 { return 29 }

func (m *PutFrom) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	m.Source.each(c)
	m.Attributes.each(c)
	c.Uint(&m.PatienceMs)
}

// Open makes room for an object that its client writes itself. It is answered by a
// Plan, or by a Reply with a problem.
type Open struct {
	Name  []byte
	Bytes uint64
	Attributes
	// PatienceMs is how long its client waits for the plan, WriteMs how long it may
	// write; 0 for the owner's default.
	PatienceMs, WriteMs uint64
	// Payer is the tenant whose share it takes, where this process asks itself and knows it;
	// empty: that of the agent that asks. No message has it.
	Payer string
}

func (*Open) kind() uint8 { return 2 }

func (m *Open) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	c.Uint(&m.Bytes)
	m.Attributes.each(c)
	c.Uint(&m.PatienceMs, &m.WriteMs)
}

// Span is memory of an agent that a grant opens to another.
type Span struct {
	Region, Epoch  uint64
	Offset, Length uint64
	Grant          kv.ID
}

func (s *Span) each(c fields.Codec) {
	c.Uint(&s.Region, &s.Epoch, &s.Offset, &s.Length)
	c.ID(&s.Grant)
}

// Plan is where the client of an Open writes, until its time is over or it
// commits.
type Plan struct {
	owner.Plan
	// Span is the payload in the owner's arena.
	Span Span
}

func (*Plan) kind() uint8 { return 3 }

func (m *Plan) each(c fields.Codec) {
	eachU32(c, &m.Header, &m.Epoch)
	c.Uint(&m.KeyHash, &m.Offset, &m.Bytes)
	eachU32(c, &m.Pages, &m.PageSize)
	m.Span.each(c)
}

func eachU32(c fields.Codec, values ...*uint32) { fields.UpTo(c, 1<<32-1, values...) }

// Commit says that the bytes of a plan are written, or that they will not be. It is
// answered by a Reply.
type Commit struct {
	Header, Epoch uint32
	KeyHash       uint64
	Abort         bool
	// Checksum is that of what the writer meant to write, where Summed: what lies there
	// must have it.
	Summed   bool
	Checksum uint64
}

func (*Commit) kind() uint8 { return 4 }

func (m *Commit) each(c fields.Codec) {
	eachU32(c, &m.Header, &m.Epoch)
	c.Uint(&m.KeyHash)
	c.Flag(&m.Abort, &m.Summed)
	c.Uint(&m.Checksum)
}

// Get asks for an object. Its Value comes into the landing, which holds Length bytes;
// in one message where it is small, or fits into no landing and is no longer than
// MaxInline.
type Get struct {
	Name       []byte
	Landing    Span
	PatienceMs uint64
}

func (*Get) kind() uint8 { return 5 }

func (m *Get) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	m.Landing.each(c)
	c.Uint(&m.PatienceMs)
}

// Value is an object: in Data, or in the landing, where it is before this comes.
type Value struct {
	Bytes, Checksum uint64
	Landed          bool
	Data            []byte
}

func (*Value) kind() uint8 { return 6 }

func (m *Value) each(c fields.Codec) {
	m.eachOfHead(c)
	c.Bytes(MaxInline, &m.Data)
	c.Demand(m.Landed || uint64(len(m.Data)) == m.Bytes)
}

func (m *Value) eachOfHead(c fields.Codec) {
	c.Uint(&m.Bytes, &m.Checksum)
	c.Flag(&m.Landed)
}

// AppendValue appends a Value in wire form whose bytes its caller has yet to copy:
// data is where they go.
func AppendValue(dst []byte, request uint64, m *Value) (message, data []byte) {
	w := fields.Writer{B: dst}
	appendHead(&w, request, m)
	m.eachOfHead(fields.Writing(&w))
	w.Uint(m.Bytes)
	at := len(w.B)
	message = slices.Grow(w.B, int(m.Bytes))[:at+int(m.Bytes)]
	return message, message[at:]
}

// Remove takes an object away. It is answered by a Reply.
type Remove struct {
	Name []byte
	// Checksum is that of the object that is meant, of a reader that found it broken:
	// what was put under the name since stays. 0 is for whichever there is.
	Checksum uint64
}

func (*Remove) kind() uint8 { return 7 }

func (m *Remove) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	c.Uint(&m.Checksum)
}

// Locate asks where an object lies. It is answered by a Location, when the object
// is ready or after WaitMs.
type Locate struct {
	Name   []byte
	WaitMs uint64
}

func (*Locate) kind() uint8 { return 8 }

func (m *Locate) each(c fields.Codec) {
	c.Bytes(arena.MaxKey, &m.Name)
	c.Uint(&m.WaitMs)
}

// Location is where it lies: in the arena of the owner that says so.
type Location struct{ owner.Location }

func (*Location) kind() uint8 { return 9 }

func (m *Location) each(c fields.Codec) {
	eachU32(c, &m.Header, &m.Epoch)
	c.Uint(&m.KeyHash, &m.Offset, &m.Bytes, &m.Checksum)
	eachU32(c, &m.PageSize)
}

// Has asks which of these objects are there. It is answered by Present, and counts
// as no use of them.
type Has struct{ Names [][]byte }

func (*Has) kind() uint8 { return 10 }

func (m *Has) each(c fields.Codec) { eachName(c, &m.Names) }

func eachName(c fields.Codec, names *[][]byte) {
	fields.List(c, MaxKeys, names, func(name *[]byte) { c.Bytes(arena.MaxKey, name) })
}

// Present is which are: one entry for each that was asked for.
type Present struct{ Is []bool }

func (*Present) kind() uint8 { return 11 }

func (m *Present) each(c fields.Codec) {
	fields.List(c, MaxKeys, &m.Is, func(is *bool) { c.Flag(is) })
}

// List asks for objects of one tenant, or of all, from a place on. It is answered
// by a Listing.
type List struct {
	Tenant     string
	AllTenants bool
	Prefix     string // of the key
	After      uint64 // Listing.Next of the one before
	Most       uint64
}

func (*List) kind() uint8 { return 12 }

func (m *List) each(c fields.Codec) {
	c.Text(arena.MaxKey, &m.Tenant)
	c.Flag(&m.AllTenants)
	c.Text(arena.MaxKey, &m.Prefix)
	c.Uint(&m.After, &m.Most)
}

// Listing is some of an owner's objects. Next is where to go on, 0 at the end.
type Listing struct {
	Objects []owner.Object
	Next    uint64
}

func (*Listing) kind() uint8 { return 13 }

func (m *Listing) each(c fields.Codec) {
	fields.List(c, MaxKeys, &m.Objects, func(o *owner.Object) {
		c.Bytes(arena.MaxKey, &o.Name)
		c.Uint(&o.Bytes)
		c.U8(&o.Priority)
		c.Flag(&o.Pinned)
		fields.UpTo(c, 1<<16-1, &o.Readers)
		c.Uint(&o.Checksum, &o.AgeSeconds)
	})
	c.Uint(&m.Next)
}

// Describe asks an owner how it stands. It is answered by a Description.
type Describe struct{}

func (*Describe) kind() uint8       { return 14 }
func (*Describe) each(fields.Codec) {}

// Description is how an owner stands.
type Description struct {
	Stats owner.Stats
	// Answers reports whether it has a lease, of the master of Term.
	Answers bool
	Term    uint64
	Master  string
}

func (*Description) kind() uint8 { return 15 }

func (m *Description) each(c fields.Codec) {
	c.Uint(m.numbers()...)
	c.Flag(&m.Answers)
	c.Uint(&m.Term)
	c.Text(maxName, &m.Master)
}

// numbers are the counters in the order in which they travel; new ones come last.
func (m *Description) numbers() []*uint64 {
	s := &m.Stats
	return []*uint64{
		&s.HeapUsed, &s.HeapTotal, &s.Ready, &s.Writing, &s.Waiting, &s.Hits, &s.Misses, &s.Evictions, &s.Reclaims, &s.Timeouts,
		&s.Refused, &s.OutOfMemory, &s.BytesIn, &s.BytesOut, &s.Overloaded, &s.CASFailures, &s.Torn,
	}
}

// Evict asks an owner to let objects go until no more than so many thousandths of
// its heap are used. It is answered by Evicted.
type Evict struct{ Permille uint64 }

func (*Evict) kind() uint8           { return 16 }
func (m *Evict) each(c fields.Codec) { fields.UpTo(c, 1000, &m.Permille) }

// Evicted is how many left.
type Evicted struct{ Objects uint64 }

func (*Evicted) kind() uint8           { return 17 }
func (m *Evicted) each(c fields.Codec) { c.Uint(&m.Objects) }
