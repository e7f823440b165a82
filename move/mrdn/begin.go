package mrdn

import "meridian/kv"

// Begin asks the peer to take (write) or to give (read) one part of a transfer.
// A transfer is cut into as many parts as it has streams to use; each part
// travels on its own stream and is answered there.
type Begin struct {
	// Handle names the part on this stream, in its chunks.
	Handle uint32
	ID     kv.ID
	// Grant is what opens the peer's memory to this transfer.
	Grant kv.ID
	Write bool
	// Part of Parts; all parts of one ID say the same Parts.
	Part, Parts uint16
	// Bytes is the length of this part.
	Bytes uint64
	// List says where in the peer's memory, as fabric.List encodes it.
	List []byte
	// Notification, on part 0 of a write, is delivered once all parts are in
	// place. Notify tells an empty one from none.
	Notify       bool
	Notification []byte
}

// Append appends m in wire form.
func (m Begin) Append(dst []byte) []byte {
	w := begin(dst, BeginFrame)
	w.u32(m.Handle)
	w.id(m.ID)
	w.id(m.Grant)
	w.u8(flag(m.Write, 1) | flag(m.Notify, 2))
	w.u16(m.Part)
	w.u16(m.Parts)
	w.u64(m.Bytes)
	w.bytes(m.List)
	w.bytes(m.Notification)
	return w.finish()
}

// ParseBegin reads a frame's own bytes; List and Notification are parts of b.
func ParseBegin(b []byte) (Begin, error) {
	r := reader{b: b}
	m := Begin{Handle: r.u32(), ID: r.id(), Grant: r.id()}
	flags := r.u8()
	m.Write, m.Notify = flags&1 != 0, flags&2 != 0
	m.Part, m.Parts, m.Bytes = r.u16(), r.u16(), r.u64()
	m.List, m.Notification = r.bytes(), r.bytes()
	if flags > 3 || m.Part >= m.Parts || !m.Notify && len(m.Notification) > 0 {
		r.bad = true
	}
	return m, r.end("begin")
}

func flag(set bool, bit uint8) uint8 {
	if set {
		return bit
	}
	return 0
}
