// Package record is how an object rests outside of memory: an MRDN frame, which any
// reader in any language can check, with its key, its header and the sum of its payload
// in the body, and then the payload.
//
//	0       32                 64                     n
//	┌──────┬──────────────────┬─────┬────────┐┌─────────┬───────┐
//	│ MRDN │ prefix           │ key │ header ││ payload │ zeros │
//	└──────┴──────────────────┴─────┴────────┘└─────────┴───────┘
//	prefix:  0  u32  "OBJ2"            zeros fill the record up to what its reader
//	         4  u16  bytes of key      aligns to; integers are little-endian
//	         6  u16  bytes of header
//	         8  u32  bytes of payload
//	        12  u8   kind: 0 an object, 1 the key was dropped
//	        13  u24  zero
//	        16  u64  checksum of the payload (package checksum)
//	        24  u32  bytes behind the frame, payload and zeros
//	        28  u32  zero
//
// The frame's own checksum, BLAKE3, covers the body, and by the sum in it the payload. It
// does not cover the payload itself: at 1 to 3 GB/s a core that took more of the processor
// than all else of a write (ADR-0031). Records of "OBJ1", whose frame is around all of it,
// are read, and not written any more. A reader of a whole segment looks at frames alone:
// whether a payload is whole is found when it is read.
//
// A segment is records one after the other. What follows a broken one is lost: a payload
// may hold bytes that look like a record, so a reader does not look for the next.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/mrdn"
)

const (
	// MaxKey and MaxHeader bound what a record has beside its payload.
	MaxKey    = 1024
	MaxHeader = 256
	// MaxPayload is the longest payload: frames are below 4 GiB.
	MaxPayload = 1 << 30
	// prefixSize is that of the prefix, Lead how many bytes at the start of a record
	// always tell what it is: frame header, prefix, key and header.
	prefixSize = 32
	Lead       = mrdn.HeaderSize + prefixSize + MaxKey + MaxHeader

	magic       = "OBJ2"
	magicBefore = "OBJ1"
)

// What can be wrong with a record.
var (
	// ErrBroken means that bytes are not those of a record, or not any more.
	ErrBroken = errors.New("record: broken")
	// ErrTorn is a record that ends before its end.
	ErrTorn = fmt.Errorf("%w: cut short", ErrBroken)
	// ErrSize means that an object cannot be a record.
	ErrSize = errors.New("record: a key, a header or a payload is too long")
)

// Record is an object at rest, or the word that there is none.
type Record struct {
	Key, Header []byte
	Payload     []byte
	Dropped     bool
}

// Size is how many bytes a record takes, a multiple of align.
func Size(r *Record, align int) int {
	n := mrdn.HeaderSize + prefixSize + len(r.Key) + len(r.Header) + len(r.Payload)
	return (n + align - 1) / align * align
}

// Largest is the longest payload whose record fits so much room, whatever its key and header.
func Largest(room uint64, align int) uint64 {
	const around = mrdn.HeaderSize + prefixSize + MaxKey + MaxHeader
	room = room / uint64(align) * uint64(align)
	return min(max(room, around)-around, MaxPayload)
}

// Check says whether an object can be a record.
func (r *Record) Check() error {
	if len(r.Key) == 0 || len(r.Key) > MaxKey || len(r.Header) > MaxHeader || len(r.Payload) > MaxPayload {
		return fmt.Errorf("%w: %d, %d and %d bytes: keys have 1 to %d, headers up to %d, payloads up to %d", ErrSize, len(r.Key), len(r.Header), len(r.Payload), MaxKey, MaxHeader, MaxPayload)
	}
	return nil
}

// Encode writes a record that passes Check into dst, which is as long as Size says.
func Encode(dst []byte, r *Record) error {
	n := prefixSize + len(r.Key) + len(r.Header)
	body, behind := dst[mrdn.HeaderSize:mrdn.HeaderSize+n], dst[mrdn.HeaderSize+n:]
	p := body[:prefixSize]
	clear(p)
	copy(p, magic)
	binary.LittleEndian.PutUint16(p[4:], uint16(len(r.Key)))
	binary.LittleEndian.PutUint16(p[6:], uint16(len(r.Header)))
	binary.LittleEndian.PutUint32(p[8:], uint32(len(r.Payload)))
	if r.Dropped {
		p[12] = 1
	}
	copy(body[prefixSize+copy(body[prefixSize:], r.Key):], r.Header)
	var few [8 * 512]byte
	sums := checksum.AppendCopy(few[:0], behind, r.Payload)
	clear(behind[len(r.Payload):])
	binary.LittleEndian.PutUint64(p[16:], checksum.OfSums(sums))
	binary.LittleEndian.PutUint32(p[24:], uint32(len(behind)))
	frame, err := mrdn.NewHeader(kv.ThinkComplete, body)
	if err != nil {
		return err
	}
	frame.Append(dst[:0])
	return nil
}

// prefixSum is, of a record of before, the sum of what comes before the payload.
func prefixSum(bodyLen uint32, lead []byte) uint64 {
	var h xxh3.Hasher
	var length [4]byte
	binary.LittleEndian.PutUint32(length[:], bodyLen)
	_, _ = h.Write(length[:])
	_, _ = h.Write(lead[:24])
	_, _ = h.Write(lead[prefixSize:])
	return h.Sum64()
}

// Entry is what the start of a record tells.
type Entry struct {
	Key, Header []byte // parts of what was parsed
	Dropped     bool
	Bytes       int // of the whole record
	Payload     int // where the payload begins, from the record's start
	Length      int // of the payload
	sum         uint64
}

// Parse reads the start of a record: of lead, no more than Lead bytes are looked at. The
// payload need not be there.
func Parse(lead []byte) (Entry, error) {
	frame, err := mrdn.ParseHeader(lead, math.MaxUint32)
	if err != nil {
		if errors.Is(err, mrdn.ErrTruncated) {
			return Entry{}, fmt.Errorf("%w: %w", ErrTorn, err)
		}
		return Entry{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	body := lead[mrdn.HeaderSize:]
	if len(body) < prefixSize {
		return Entry{}, fmt.Errorf("%w: %d bytes of a prefix", ErrTorn, len(body))
	}
	p := body[:prefixSize]
	key, header, payload := int(binary.LittleEndian.Uint16(p[4:])), int(binary.LittleEndian.Uint16(p[6:])), int64(binary.LittleEndian.Uint32(p[8:]))
	n := prefixSize + key + header
	before := string(p[:4]) == magicBefore
	length := int64(n) + int64(binary.LittleEndian.Uint32(p[24:])) // of body and what is behind it
	if before {
		length = int64(frame.BodyLen)
	}
	switch {
	case !before && string(p[:4]) != magic || p[12] > 1 || p[13]|p[14]|p[15] != 0:
		return Entry{}, fmt.Errorf("%w: not an object", ErrBroken)
	case key == 0 || key > MaxKey || header > MaxHeader || payload > MaxPayload || length < int64(n)+payload || !before && int64(frame.BodyLen) != int64(n):
		return Entry{}, fmt.Errorf("%w: %w", ErrBroken, ErrSize)
	case len(body) < n:
		return Entry{}, fmt.Errorf("%w: %d bytes of key and header", ErrTorn, len(body))
	case before && prefixSum(frame.BodyLen, body[:n]) != binary.LittleEndian.Uint64(p[24:]):
		return Entry{}, fmt.Errorf("%w: its prefix does not match its sum", ErrBroken)
	case !before && (frame.Verify(body[:n]) != nil || binary.LittleEndian.Uint32(p[28:]) != 0):
		return Entry{}, fmt.Errorf("%w: its frame does not match its sum", ErrBroken)
	}
	return Entry{
		Key: body[prefixSize : prefixSize+key : prefixSize+key], Header: body[prefixSize+key : n : n], Dropped: p[12] == 1,
		Bytes: mrdn.HeaderSize + int(length), Payload: mrdn.HeaderSize + n, Length: int(payload), sum: binary.LittleEndian.Uint64(p[16:]),
	}, nil
}

// CopyPayload copies the payload of a whole record to dst, which is at least as long, and
// checks what arrived there.
func (e *Entry) CopyPayload(dst, whole []byte) error {
	c := Copying{entry: e, dst: dst}
	c.Take(whole)
	return c.End()
}

// Copying copies a payload while its record is read.
type Copying struct {
	entry *Entry
	dst   []byte
	done  int // bytes of dst
	sums  []byte
}

// CopyTo begins to copy to dst, which is at least as long as the payload.
func (e *Entry) CopyTo(dst []byte) *Copying { return &Copying{entry: e, dst: dst} }

// Take copies what is there of the payload and was not before; read is the record from its
// beginning, as far as it was read.
func (c *Copying) Take(read []byte) {
	there := min(len(read)-c.entry.Payload, c.entry.Length)
	if there < c.entry.Length {
		there = max(there, 0) / checksum.Segment * checksum.Segment // the rest of a segment is summed with its end
	}
	if there <= c.done {
		return
	}
	if c.sums == nil {
		c.sums = make([]byte, 0, 8*((c.entry.Length+checksum.Segment-1)/checksum.Segment))
	}
	c.sums = checksum.AppendCopy(c.sums, c.dst[c.done:], read[c.entry.Payload+c.done:c.entry.Payload+there])
	c.done = there
}

// End says whether all of it arrived as it was put.
func (c *Copying) End() error {
	switch {
	case c.done < c.entry.Length:
		return ErrTorn
	case checksum.OfSums(c.sums) != c.entry.sum:
		return fmt.Errorf("%w: its payload does not match its sum", ErrBroken)
	}
	return nil
}

// Is reports whether a record is of this key, and holds an object.
func (e *Entry) Is(key []byte) bool { return !e.Dropped && bytes.Equal(e.Key, key) }

// HashKey is by what objects at rest are found. Two keys of one hash displace each other;
// none is ever answered for the other.
func HashKey(key []byte) uint64 { return xxh3.Hash(key) }
