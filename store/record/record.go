// Package record is how an object rests outside of memory: as one MRDN frame, which
// any reader in any language can check, with its key and its header in the body.
//
//	     0       32                 64
//	     ┌──────┬──────────────────┬─────┬────────┬─────────┬───────┐
//	     │ MRDN │ prefix           │ key │ header │ payload │ zeros │
//	     └──────┴──────────────────┴─────┴────────┴─────────┴───────┘
//	prefix:  0  u32  "OBJ1"            zeros fill the frame up to what its reader
//	         4  u16  bytes of key      aligns to; integers are little-endian
//	         6  u16  bytes of header
//	         8  u32  bytes of payload
//	        12  u8   kind: 0 an object, 1 the key was dropped
//	        13  u24  zero
//	        16  u64  checksum of the payload (package checksum)
//	        24  u64  XXH3-64 of the frame's body length, the 24 bytes before, key and header
//
// The frame's own checksum is BLAKE3 of all of it: proof for strangers, at 1 to 2 GB/s
// a core. A reader of one object checks the two sums of the prefix instead, which cover
// the same bytes but the zeros and keep up with a disk. A reader of a whole segment looks
// at prefixes alone: whether a payload is whole is found when it is read.
//
// A segment is records one after the other. What follows a broken one is lost: a payload
// may hold bytes that look like a record, so nobody looks for the next.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"meridian/checksum"
	"meridian/kv"
	"meridian/mrdn"
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

	magic = "OBJ1"
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

// Check says whether an object can be a record.
func (r *Record) Check() error {
	if len(r.Key) == 0 || len(r.Key) > MaxKey || len(r.Header) > MaxHeader || len(r.Payload) > MaxPayload {
		return fmt.Errorf("%w: %d, %d and %d bytes: keys have 1 to %d, headers up to %d, payloads up to %d", ErrSize, len(r.Key), len(r.Header), len(r.Payload), MaxKey, MaxHeader, MaxPayload)
	}
	return nil
}

// Encode writes a record that passes Check into dst, which is as long as Size says.
func Encode(dst []byte, r *Record) error {
	body := dst[mrdn.HeaderSize:]
	p := body[:prefixSize]
	copy(p, magic)
	binary.LittleEndian.PutUint16(p[4:], uint16(len(r.Key)))
	binary.LittleEndian.PutUint16(p[6:], uint16(len(r.Header)))
	binary.LittleEndian.PutUint32(p[8:], uint32(len(r.Payload)))
	clear(p[12:16])
	if r.Dropped {
		p[12] = 1
	}
	n := prefixSize + copy(body[prefixSize:], r.Key)
	n += copy(body[n:], r.Header)
	var few [8 * 512]byte
	sums := checksum.AppendCopy(few[:0], body[n:], r.Payload)
	clear(body[n+len(r.Payload):])
	binary.LittleEndian.PutUint64(p[16:], checksum.OfSums(sums))
	binary.LittleEndian.PutUint64(p[24:], prefixSum(uint32(len(body)), body[:n]))
	frame, err := mrdn.NewHeader(kv.ThinkComplete, body)
	if err != nil {
		return err
	}
	frame.Append(dst[:0])
	return nil
}

// prefixSum is the sum of what comes before the payload.
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
	switch {
	case string(p[:4]) != magic || p[12] > 1 || p[13]|p[14]|p[15] != 0:
		return Entry{}, fmt.Errorf("%w: not an object", ErrBroken)
	case key == 0 || key > MaxKey || header > MaxHeader || payload > MaxPayload || int64(frame.BodyLen) < int64(n)+payload:
		return Entry{}, fmt.Errorf("%w: %w", ErrBroken, ErrSize)
	case len(body) < n:
		return Entry{}, fmt.Errorf("%w: %d bytes of key and header", ErrTorn, len(body))
	case prefixSum(frame.BodyLen, body[:n]) != binary.LittleEndian.Uint64(p[24:]):
		return Entry{}, fmt.Errorf("%w: its prefix does not match its sum", ErrBroken)
	}
	return Entry{
		Key: body[prefixSize : prefixSize+key : prefixSize+key], Header: body[prefixSize+key : n : n], Dropped: p[12] == 1,
		Bytes: mrdn.HeaderSize + int(frame.BodyLen), Payload: mrdn.HeaderSize + n, Length: int(payload), sum: binary.LittleEndian.Uint64(p[16:]),
	}, nil
}

// CopyPayload copies the payload of a whole record to dst, which is at least as long, and
// checks what arrived there.
func (e *Entry) CopyPayload(dst, whole []byte) error {
	if len(whole) < e.Payload+e.Length {
		return ErrTorn
	}
	var few [8 * 512]byte
	if sums := checksum.AppendCopy(few[:0], dst, whole[e.Payload:e.Payload+e.Length]); checksum.OfSums(sums) != e.sum {
		return fmt.Errorf("%w: its payload does not match its sum", ErrBroken)
	}
	return nil
}

// Is reports whether a record is of this key, and holds an object.
func (e *Entry) Is(key []byte) bool { return !e.Dropped && bytes.Equal(e.Key, key) }

// HashKey is by what objects at rest are found. Two keys of one hash displace each other;
// none is ever answered for the other.
func HashKey(key []byte) uint64 { return xxh3.Hash(key) }
