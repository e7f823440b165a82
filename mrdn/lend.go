package mrdn

import "meridian/kv"

// Frames between two agents of one machine. Those that lend carry a descriptor
// beside their bytes, with the first of them.

// Board lends the page in which its sender shows what still holds: cells of 8
// bytes, the first Hands × 2 for what each of its hands is taking.
type Board struct {
	Hands uint32
	// Guarded: every read must be asked for.
	Guarded bool
}

// Append appends m in wire form.
func (m Board) Append(dst []byte) []byte {
	w := begin(dst, BoardFrame)
	w.u32(m.Hands)
	w.u8(flag(m.Guarded, 1))
	return w.finish()
}

// ParseBoard reads a frame's own bytes.
func ParseBoard(b []byte) (Board, error) {
	r := reader{b: b}
	m := Board{Hands: r.u32()}
	flags := r.u8()
	m.Guarded, r.bad = flags == 1, r.bad || flags > 1
	return m, r.end("board")
}

// Borrow asks for a region, to read from it under a grant that opens some of
// it.
type Borrow struct {
	Region, Epoch uint64
	Grant         kv.ID
}

// Append appends m in wire form.
func (m Borrow) Append(dst []byte) []byte {
	w := begin(dst, BorrowFrame)
	w.u64(m.Region)
	w.u64(m.Epoch)
	w.id(m.Grant)
	return w.finish()
}

// ParseBorrow reads a frame's own bytes.
func ParseBorrow(b []byte) (Borrow, error) {
	r := reader{b: b}
	m := Borrow{Region: r.u64(), Epoch: r.u64(), Grant: r.id()}
	return m, r.end("borrow")
}

// Lend answers a Borrow, or comes unasked before the first Source that names
// the region. With OK a descriptor comes with it, and the loan holds for as
// long as Cell of the sender's board says Turn.
type Lend struct {
	Region, Epoch uint64
	Grant         kv.ID // of the Borrow that it answers
	Cell          uint32
	Turn          uint64
	Code          Code
	Message       string
}

// Append appends m in wire form.
func (m Lend) Append(dst []byte) []byte {
	w := begin(dst, LendFrame)
	w.u64(m.Region)
	w.u64(m.Epoch)
	w.id(m.Grant)
	w.u32(m.Cell)
	w.u64(m.Turn)
	w.u16(uint16(m.Code))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParseLend reads a frame's own bytes.
func ParseLend(b []byte) (Lend, error) {
	r := reader{b: b}
	m := Lend{Region: r.u64(), Epoch: r.u64(), Grant: r.id(), Cell: r.u32(), Turn: r.u64()}
	m.Code, m.Message = Code(r.u16()), string(r.bytes())
	return m, r.end("lend")
}

// Recall asks to unmap a region that was lent and holds no longer.
type Recall struct{ Region, Turn uint64 }

// Append appends m in wire form.
func (m Recall) Append(dst []byte) []byte {
	w := begin(dst, RecallFrame)
	w.u64(m.Region)
	w.u64(m.Turn)
	return w.finish()
}

// ParseRecall reads a frame's own bytes.
func ParseRecall(b []byte) (Recall, error) {
	r := reader{b: b}
	m := Recall{Region: r.u64(), Turn: r.u64()}
	return m, r.end("recall")
}

// Source comes before the Begin of a write with the same handle and says where
// in the poster's memory its bytes are. They may be taken for as long as Cell
// of the poster's board says Turn.
type Source struct {
	Handle uint32
	Cell   uint32
	Turn   uint64
	List   []byte
}

// Append appends m in wire form.
func (m Source) Append(dst []byte) []byte {
	w := begin(dst, SourceFrame)
	w.u32(m.Handle)
	w.u32(m.Cell)
	w.u64(m.Turn)
	w.bytes(m.List)
	return w.finish()
}

// ParseSource reads a frame's own bytes; List is a part of b.
func ParseSource(b []byte) (Source, error) {
	r := reader{b: b}
	m := Source{Handle: r.u32(), Cell: r.u32(), Turn: r.u64(), List: r.bytes()}
	return m, r.end("source")
}

// Ask asks whether a transfer may read what List names.
type Ask struct {
	ID, Grant kv.ID
	List      []byte
}

// Append appends m in wire form.
func (m Ask) Append(dst []byte) []byte {
	w := begin(dst, AskFrame)
	w.id(m.ID)
	w.id(m.Grant)
	w.bytes(m.List)
	return w.finish()
}

// ParseAsk reads a frame's own bytes; List is a part of b.
func ParseAsk(b []byte) (Ask, error) {
	r := reader{b: b}
	m := Ask{ID: r.id(), Grant: r.id(), List: r.bytes()}
	return m, r.end("ask")
}

// Permit answers an Ask.
type Permit struct {
	ID      kv.ID
	Code    Code
	Message string
}

// Append appends m in wire form.
func (m Permit) Append(dst []byte) []byte {
	w := begin(dst, PermitFrame)
	w.id(m.ID)
	w.u16(uint16(m.Code))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParsePermit reads a frame's own bytes.
func ParsePermit(b []byte) (Permit, error) {
	r := reader{b: b}
	m := Permit{ID: r.id(), Code: Code(r.u16()), Message: string(r.bytes())}
	return m, r.end("permit")
}
