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

func (a *Attributes) append(w *fields.Writer) {
	w.Uint(uint64(a.PageSize))
	w.Flag(a.Pinned)
	w.U8(a.Priority)
}

func (a *Attributes) parse(r *fields.Reader) {
	a.PageSize, a.Pinned, a.Priority = uint32(r.UintTo(1<<31)), r.Flag(), r.U8()
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

func (m *Put) append(w *fields.Writer) {
	w.Bytes(m.Name)
	w.Bytes(m.Value)
	m.Attributes.append(w)
	w.Uint(m.PatienceMs)
}

func (m *Put) parse(r *fields.Reader) {
	m.Name, m.Value = r.Bytes(arena.MaxKey), r.Bytes(MaxInline)
	m.Attributes.parse(r)
	m.PatienceMs = r.Uint()
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

func (m *PutFrom) append(w *fields.Writer) {
	w.Bytes(m.Name)
	m.Source.append(w)
	m.Attributes.append(w)
	w.Uint(m.PatienceMs)
}

func (m *PutFrom) parse(r *fields.Reader) {
	m.Name = r.Bytes(arena.MaxKey)
	m.Source.parse(r)
	m.Attributes.parse(r)
	m.PatienceMs = r.Uint()
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
}

func (*Open) kind() uint8 { return 2 }

func (m *Open) append(w *fields.Writer) {
	w.Bytes(m.Name)
	w.Uint(m.Bytes)
	m.Attributes.append(w)
	w.Uint(m.PatienceMs)
	w.Uint(m.WriteMs)
}

func (m *Open) parse(r *fields.Reader) {
	m.Name, m.Bytes = r.Bytes(arena.MaxKey), r.Uint()
	m.Attributes.parse(r)
	m.PatienceMs, m.WriteMs = r.Uint(), r.Uint()
}

// Span is memory of an agent that a grant opens to another.
type Span struct {
	Region, Epoch  uint64
	Offset, Length uint64
	Grant          kv.ID
}

func (s *Span) append(w *fields.Writer) {
	w.Uint(s.Region)
	w.Uint(s.Epoch)
	w.Uint(s.Offset)
	w.Uint(s.Length)
	w.ID(s.Grant)
}

func (s *Span) parse(r *fields.Reader) {
	s.Region, s.Epoch, s.Offset, s.Length, s.Grant = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.ID()
}

// Plan is where the client of an Open writes, until its time is over or it
// commits.
type Plan struct {
	owner.Plan
	// Span is the payload in the owner's arena.
	Span Span
}

func (*Plan) kind() uint8 { return 3 }

func (m *Plan) append(w *fields.Writer) {
	w.Uint(uint64(m.Header))
	w.Uint(uint64(m.Epoch))
	w.Uint(m.KeyHash)
	w.Uint(m.Offset)
	w.Uint(m.Bytes)
	w.Uint(uint64(m.Pages))
	w.Uint(uint64(m.PageSize))
	m.Span.append(w)
}

func (m *Plan) parse(r *fields.Reader) {
	m.Header, m.Epoch, m.KeyHash = u32(r), u32(r), r.Uint()
	m.Offset, m.Bytes, m.Pages, m.PageSize = r.Uint(), r.Uint(), u32(r), u32(r)
	m.Span.parse(r)
}

func u32(r *fields.Reader) uint32 { return uint32(r.UintTo(1<<32 - 1)) }

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

func (m *Commit) append(w *fields.Writer) {
	w.Uint(uint64(m.Header))
	w.Uint(uint64(m.Epoch))
	w.Uint(m.KeyHash)
	w.Flag(m.Abort)
	w.Flag(m.Summed)
	w.Uint(m.Checksum)
}

func (m *Commit) parse(r *fields.Reader) {
	m.Header, m.Epoch, m.KeyHash, m.Abort = u32(r), u32(r), r.Uint(), r.Flag()
	m.Summed, m.Checksum = r.Flag(), r.Uint()
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

func (m *Get) append(w *fields.Writer) {
	w.Bytes(m.Name)
	m.Landing.append(w)
	w.Uint(m.PatienceMs)
}

func (m *Get) parse(r *fields.Reader) {
	m.Name = r.Bytes(arena.MaxKey)
	m.Landing.parse(r)
	m.PatienceMs = r.Uint()
}

// Value is an object: in Data, or in the landing, where it is before this comes.
type Value struct {
	Bytes, Checksum uint64
	Landed          bool
	Data            []byte
}

func (*Value) kind() uint8 { return 6 }

func (m *Value) append(w *fields.Writer) {
	m.appendHead(w, len(m.Data))
	w.B = append(w.B, m.Data...)
}

func (m *Value) appendHead(w *fields.Writer, data int) {
	w.Uint(m.Bytes)
	w.Uint(m.Checksum)
	w.Flag(m.Landed)
	w.Count(data)
}

// AppendValue appends a Value in wire form whose bytes its caller has yet to copy:
// data is where they go.
func AppendValue(dst []byte, request uint64, m *Value) (message, data []byte) {
	w := fields.Writer{B: dst}
	appendHead(&w, request, m)
	m.appendHead(&w, int(m.Bytes))
	at := len(w.B)
	message = slices.Grow(w.B, int(m.Bytes))[:at+int(m.Bytes)]
	return message, message[at:]
}

func (m *Value) parse(r *fields.Reader) {
	m.Bytes, m.Checksum, m.Landed, m.Data = r.Uint(), r.Uint(), r.Flag(), r.Bytes(MaxInline)
	if !m.Landed && uint64(len(m.Data)) != m.Bytes {
		r.Fail()
	}
}

// Remove takes an object away. It is answered by a Reply.
type Remove struct {
	Name []byte
	// Checksum is that of the object that is meant, of a reader that found it broken:
	// what was put under the name since stays. 0 is for whichever there is.
	Checksum uint64
}

func (*Remove) kind() uint8 { return 7 }

func (m *Remove) append(w *fields.Writer) {
	w.Bytes(m.Name)
	w.Uint(m.Checksum)
}

func (m *Remove) parse(r *fields.Reader) { m.Name, m.Checksum = r.Bytes(arena.MaxKey), r.Uint() }

// Locate asks where an object lies. It is answered by a Location, when the object
// is ready or after WaitMs.
type Locate struct {
	Name   []byte
	WaitMs uint64
}

func (*Locate) kind() uint8 { return 8 }

func (m *Locate) append(w *fields.Writer) {
	w.Bytes(m.Name)
	w.Uint(m.WaitMs)
}
func (m *Locate) parse(r *fields.Reader) { m.Name, m.WaitMs = r.Bytes(arena.MaxKey), r.Uint() }

// Location is where it lies: in the arena of the owner that says so.
type Location struct{ owner.Location }

func (*Location) kind() uint8 { return 9 }

func (m *Location) append(w *fields.Writer) {
	w.Uint(uint64(m.Header))
	w.Uint(uint64(m.Epoch))
	w.Uint(m.KeyHash)
	w.Uint(m.Offset)
	w.Uint(m.Bytes)
	w.Uint(m.Checksum)
	w.Uint(uint64(m.PageSize))
}

func (m *Location) parse(r *fields.Reader) {
	m.Header, m.Epoch, m.KeyHash = u32(r), u32(r), r.Uint()
	m.Offset, m.Bytes, m.Checksum, m.PageSize = r.Uint(), r.Uint(), r.Uint(), u32(r)
}

// Has asks which of these objects are there. It is answered by Present, and counts
// as no use of them.
type Has struct{ Names [][]byte }

func (*Has) kind() uint8 { return 10 }

func (m *Has) append(w *fields.Writer) { appendNames(w, m.Names) }
func (m *Has) parse(r *fields.Reader)  { m.Names = parseNames(r) }

func appendNames(w *fields.Writer, names [][]byte) {
	w.Count(len(names))
	for _, name := range names {
		w.Bytes(name)
	}
}

func parseNames(r *fields.Reader) (names [][]byte) {
	for range r.Count(MaxKeys) {
		names = append(names, r.Bytes(arena.MaxKey))
	}
	return names
}

// Present is which are: one entry for each that was asked for.
type Present struct{ Is []bool }

func (*Present) kind() uint8 { return 11 }

func (m *Present) append(w *fields.Writer) {
	w.Count(len(m.Is))
	for _, is := range m.Is {
		w.Flag(is)
	}
}

func (m *Present) parse(r *fields.Reader) {
	for range r.Count(MaxKeys) {
		m.Is = append(m.Is, r.Flag())
	}
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

func (m *List) append(w *fields.Writer) {
	w.Text(m.Tenant)
	w.Flag(m.AllTenants)
	w.Text(m.Prefix)
	w.Uint(m.After)
	w.Uint(m.Most)
}

func (m *List) parse(r *fields.Reader) {
	m.Tenant, m.AllTenants, m.Prefix = r.Text(arena.MaxKey), r.Flag(), r.Text(arena.MaxKey)
	m.After, m.Most = r.Uint(), r.Uint()
}

// Listing is some of an owner's objects. Next is where to go on, 0 at the end.
type Listing struct {
	Objects []owner.Object
	Next    uint64
}

func (*Listing) kind() uint8 { return 13 }

func (m *Listing) append(w *fields.Writer) {
	w.Count(len(m.Objects))
	for i := range m.Objects {
		o := &m.Objects[i]
		w.Bytes(o.Name)
		w.Uint(o.Bytes)
		w.U8(o.Priority)
		w.Flag(o.Pinned)
		w.Uint(uint64(o.Readers))
		w.Uint(o.Checksum)
		w.Uint(o.AgeSeconds)
	}
	w.Uint(m.Next)
}

func (m *Listing) parse(r *fields.Reader) {
	for range r.Count(MaxKeys) {
		m.Objects = append(m.Objects, owner.Object{
			Name: r.Bytes(arena.MaxKey), Bytes: r.Uint(), Priority: r.U8(), Pinned: r.Flag(), Readers: uint16(r.UintTo(1<<16 - 1)),
			Checksum: r.Uint(), AgeSeconds: r.Uint(),
		})
	}
	m.Next = r.Uint()
}

// Describe asks an owner how it stands. It is answered by a Description.
type Describe struct{}

func (*Describe) kind() uint8           { return 14 }
func (*Describe) append(*fields.Writer) {}
func (*Describe) parse(*fields.Reader)  {}

// Description is how an owner stands.
type Description struct {
	Stats owner.Stats
	// Answers reports whether it has a lease, of the master of Term.
	Answers bool
	Term    uint64
	Master  string
}

func (*Description) kind() uint8 { return 15 }

func (m *Description) append(w *fields.Writer) {
	for _, v := range m.numbers() {
		w.Uint(*v)
	}
	w.Flag(m.Answers)
	w.Uint(m.Term)
	w.Text(m.Master)
}

func (m *Description) parse(r *fields.Reader) {
	for _, v := range m.numbers() {
		*v = r.Uint()
	}
	m.Answers, m.Term, m.Master = r.Flag(), r.Uint(), r.Text(maxName)
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

func (*Evict) kind() uint8               { return 16 }
func (m *Evict) append(w *fields.Writer) { w.Uint(m.Permille) }
func (m *Evict) parse(r *fields.Reader)  { m.Permille = r.UintTo(1000) }

// Evicted is how many left.
type Evicted struct{ Objects uint64 }

func (*Evicted) kind() uint8               { return 17 }
func (m *Evicted) append(w *fields.Writer) { w.Uint(m.Objects) }
func (m *Evicted) parse(r *fields.Reader)  { m.Objects = r.Uint() }
