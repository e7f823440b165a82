package mrdn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"meridian/kv"
)

// Frames of the link between two agents, in binary. Every one starts with
//
//	 0        4      5       6       8
//	┌────────┬──────┬───────┬───────┬──────────────┄
//	│ length │ type │ fold  │ check │ length bytes
//	│ u32    │ u8   │ u8    │ u16   │
//	└────────┴──────┴───────┴───────┴──────────────┄
//
// and integers are little-endian. A request that changed on the way must not be
// carried out: check is the low 16 bits of the XXH3-64 of the length bytes. And
// a length that changed must not be waited for: fold is the exclusive or of the
// five bytes before it, inverted. Only a Chunk is followed by bytes that its
// length does not count: the payload, which goes straight to its destination.
const (
	// LinkVersion is the version of the link that this build speaks.
	LinkVersion = 1
	// PrefixSize is the number of bytes before a link frame's own.
	PrefixSize = 8
	// MaxLinkFrame bounds what a prefix may promise. A list of 100,000
	// scattered blocks takes about a sixth of it.
	MaxLinkFrame = 4 << 20
)

// LinkFrame is the type of a frame.
type LinkFrame uint8

// The frames of a link.
const (
	HelloFrame LinkFrame = iota + 1
	WelcomeFrame
	BeginFrame
	ChunkFrame
	AckFrame
	CancelFrame
	NoticeFrame
	PingFrame
	PongFrame
	ProofFrame
	BlobFrame
	FlagPageFrame
	LendFrame
	RecallFrame
	SourceFrame
	TakenFrame
	LendGPUFrame
)

// ErrLinkFrame means that a link frame is malformed; what follows it on the
// stream cannot be trusted either.
var ErrLinkFrame = errors.New("mrdn: bad link frame")

// ParsePrefix reads the first PrefixSize bytes of a frame.
func ParsePrefix(b []byte) (LinkFrame, uint32, error) {
	length, frame := binary.LittleEndian.Uint32(b), LinkFrame(b[4])
	if b[5] != fold(b) || frame < HelloFrame || frame > LendGPUFrame || length > MaxLinkFrame {
		return 0, 0, badPrefix(b[:PrefixSize])
	}
	return frame, length, nil
}

// badPrefix is put into words only where a log shows them: strangers send
// many.
type badPrefix [PrefixSize]byte

func (p badPrefix) Unwrap() error { return ErrLinkFrame }

func (p badPrefix) Error() string {
	length, frame := binary.LittleEndian.Uint32(p[:]), LinkFrame(p[4])
	switch {
	case p[5] != fold(p[:]):
		return fmt.Sprintf("%v: a prefix % x that changed on the way", ErrLinkFrame, p[:])
	case length > MaxLinkFrame:
		return fmt.Sprintf("%v: %d bytes, at most %d", ErrLinkFrame, length, MaxLinkFrame)
	}
	return fmt.Sprintf("%v: unknown type %d", ErrLinkFrame, frame)
}

// CheckFrame compares a frame with the check in its prefix, which ParsePrefix
// has read.
func CheckFrame(prefix, body []byte) error {
	if binary.LittleEndian.Uint16(prefix[6:]) != checkOf(body) {
		return fmt.Errorf("%w: type %d of %d bytes changed on the way", ErrLinkFrame, prefix[4], len(body))
	}
	return nil
}

func checkOf(body []byte) uint16 { return uint16(xxh3.Hash(body)) }

func fold(b []byte) byte { return ^(b[0] ^ b[1] ^ b[2] ^ b[3] ^ b[4]) }

func putPrefix(b []byte, frame LinkFrame, body []byte) {
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	b[4] = byte(frame)
	b[5] = fold(b)
	binary.LittleEndian.PutUint16(b[6:], checkOf(body))
}

// writer builds a frame; finish fills in its prefix.
type writer struct {
	b     []byte
	start int
}

func begin(dst []byte, frame LinkFrame) writer {
	return writer{b: append(dst, 0, 0, 0, 0, byte(frame), 0, 0, 0), start: len(dst)}
}

func (w *writer) u8(v uint8)   { w.b = append(w.b, v) }
func (w *writer) u16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *writer) id(v kv.ID)   { w.b = append(w.b, v[:]...) }

func (w *writer) bytes(v []byte) {
	w.u32(uint32(len(v)))
	w.b = append(w.b, v...)
}

func (w *writer) finish() []byte {
	frame := w.b[w.start:]
	putPrefix(frame, LinkFrame(frame[4]), frame[PrefixSize:])
	return w.b
}

// reader takes a frame apart. The first field that is not there fails all that
// follow, so that a parser checks once, at its end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, min(n, 64)) // the longest field of fixed size
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) id() kv.ID   { return kv.ID(r.take(16)) }

func (r *reader) proof() [32]byte { return [32]byte(r.take(32)) }

// bytes is a part of the input, not a copy.
func (r *reader) bytes() []byte {
	n := r.u32()
	if r.bad || uint64(n) > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	return r.take(int(n))
}

// end demands that nothing is left and nothing was missing.
func (r *reader) end(what string) error {
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("%w: %s", ErrLinkFrame, what)
	}
	return nil
}
