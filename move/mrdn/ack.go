package mrdn

import "meridian/kv"

// Ack ends a part, or answers a Notice. OK means that the last byte is in
// place and its checksum was right, or that the notification was delivered.
type Ack struct {
	ID   kv.ID
	Part uint16
	// Handle is the Begin's that it answers: a late answer to an earlier post of
	// the same id is not mistaken for one to this. A Notice has none.
	Handle uint32
	Code   Code
	// Untouched, with a refusal, says that no byte of the part was placed or
	// given.
	Untouched bool
	Message   string
}

// NoticeAck is the Part of an Ack that answers a Notice.
const NoticeAck uint16 = 0xFFFF

// Append appends m in wire form.
func (m Ack) Append(dst []byte) []byte {
	w := begin(dst, AckFrame)
	w.id(m.ID)
	w.u16(m.Part)
	w.u32(m.Handle)
	w.u16(uint16(m.Code))
	w.u8(flag(m.Untouched, 1))
	w.bytes([]byte(m.Message))
	return w.finish()
}

// ParseAck reads a frame's own bytes.
func ParseAck(b []byte) (Ack, error) {
	r := reader{b: b}
	m := Ack{ID: r.id(), Part: r.u16(), Handle: r.u32(), Code: Code(r.u16())}
	flags := r.u8()
	m.Untouched, m.Message = flags == 1, string(r.bytes())
	r.bad = r.bad || flags > 1
	return m, r.end("ack")
}

// Cancel asks the peer to forget a transfer: to place no more of its bytes and
// to give none.
type Cancel struct{ ID kv.ID }

// Append appends m in wire form.
func (m Cancel) Append(dst []byte) []byte {
	w := begin(dst, CancelFrame)
	w.id(m.ID)
	return w.finish()
}

// ParseCancel reads a frame's own bytes.
func ParseCancel(b []byte) (Cancel, error) {
	r := reader{b: b}
	m := Cancel{ID: r.id()}
	return m, r.end("cancel")
}

// Notice is a notification by itself, or the one that follows a read.
type Notice struct {
	ID      kv.ID
	Payload []byte
}

// Append appends m in wire form.
func (m Notice) Append(dst []byte) []byte {
	w := begin(dst, NoticeFrame)
	w.id(m.ID)
	w.bytes(m.Payload)
	return w.finish()
}

// ParseNotice reads a frame's own bytes; Payload is a part of b.
func ParseNotice(b []byte) (Notice, error) {
	r := reader{b: b}
	m := Notice{ID: r.id(), Payload: r.bytes()}
	return m, r.end("notice")
}

// AppendPing and AppendPong append the frames that show a stream to be alive.
func AppendPing(dst []byte) []byte {
	w := begin(dst, PingFrame)
	return w.finish()
}

// AppendPong answers a ping.
func AppendPong(dst []byte) []byte {
	w := begin(dst, PongFrame)
	return w.finish()
}
