package mrdn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

const (
	// Magic starts every frame.
	Magic = "MRDN"
	// Version is the only version there is.
	Version = 1
	// HeaderSize is the number of bytes before the body.
	HeaderSize = 32
	// ChecksumSize is the number of bytes of the body's BLAKE3 digest kept.
	ChecksumSize = 16
	// DefaultMaxBody is the cap on a body's length where the caller names none.
	DefaultMaxBody = 256 << 20
)

// What can be wrong with a frame. Checks run in this order, in all three
// implementations, so that one bad input has one verdict everywhere.
var (
	ErrTruncated = errors.New("mrdn: frame is cut short")
	ErrMagic     = errors.New("mrdn: not an MRDN frame")
	ErrVersion   = errors.New("mrdn: unknown frame version")
	ErrPad       = errors.New("mrdn: padding is not zero")
	ErrTier      = errors.New("mrdn: unknown tier")
	ErrTooLarge  = errors.New("mrdn: body is longer than the cap")
	ErrChecksum  = errors.New("mrdn: body does not match its checksum")
)

// Header is the fixed part of a frame.
type Header struct {
	Tier     kv.Tier
	BodyLen  uint32
	Checksum [ChecksumSize]byte
}

// Frame is a whole frame. Body belongs to the owner of the bytes it was parsed
// from.
type Frame struct {
	Header
	Body []byte
}

// Checksum returns the BLAKE3 digest of body, cut to 128 bits.
func Checksum(body []byte) [ChecksumSize]byte {
	sum := blake3.Sum256(body)
	return [ChecksumSize]byte(sum[:ChecksumSize])
}

// NewHeader returns the header of a frame around body.
func NewHeader(tier kv.Tier, body []byte) (Header, error) {
	if !tier.Valid() {
		return Header{}, fmt.Errorf("%w: %d", ErrTier, uint8(tier))
	}
	if uint64(len(body)) > math.MaxUint32 {
		return Header{}, fmt.Errorf("%w: %d bytes do not fit a frame", ErrTooLarge, len(body))
	}
	return Header{Tier: tier, BodyLen: uint32(len(body)), Checksum: Checksum(body)}, nil
}

// Append appends h in wire form. A sender that need not have the frame in one
// piece writes this and then its body.
func (h Header) Append(dst []byte) []byte {
	dst = append(dst, Magic...)
	dst = binary.LittleEndian.AppendUint32(dst, Version)
	dst = binary.LittleEndian.AppendUint32(dst, h.BodyLen)
	dst = append(dst, byte(h.Tier), 0, 0, 0)
	return append(dst, h.Checksum[:]...)
}

// AppendFrame appends a whole frame around body.
func AppendFrame(dst []byte, tier kv.Tier, body []byte) ([]byte, error) {
	h, err := NewHeader(tier, body)
	if err != nil {
		return dst, err
	}
	return append(h.Append(dst), body...), nil
}

// ParseHeader reads the header at the start of b. It does not look at the body.
func ParseHeader(b []byte, maxBody uint32) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d of the header's %d bytes", ErrTruncated, len(b), HeaderSize)
	}
	if string(b[:4]) != Magic {
		return Header{}, fmt.Errorf("%w: starts with %q", ErrMagic, b[:4])
	}
	if version := binary.LittleEndian.Uint32(b[4:]); version != Version {
		return Header{}, fmt.Errorf("%w: %d, this build reads version %d", ErrVersion, version, Version)
	}
	if b[13] != 0 || b[14] != 0 || b[15] != 0 {
		return Header{}, fmt.Errorf("%w: % x", ErrPad, b[13:16])
	}
	h := Header{
		Tier:     kv.Tier(b[12]),
		BodyLen:  binary.LittleEndian.Uint32(b[8:]),
		Checksum: [ChecksumSize]byte(b[16:HeaderSize]),
	}
	if !h.Tier.Valid() {
		return Header{}, fmt.Errorf("%w: %d", ErrTier, b[12])
	}
	if h.BodyLen > maxBody {
		return Header{}, fmt.Errorf("%w: %d bytes, the cap is %d", ErrTooLarge, h.BodyLen, maxBody)
	}
	return h, nil
}

// Parse reads and verifies the frame at the start of b and returns what follows
// it. The frame's body is a part of b, not a copy.
func Parse(b []byte, maxBody uint32) (f Frame, rest []byte, err error) {
	h, err := ParseHeader(b, maxBody)
	if err != nil {
		return Frame{}, b, err
	}
	body := b[HeaderSize:]
	if uint64(len(body)) < uint64(h.BodyLen) {
		return Frame{}, b, fmt.Errorf("%w: %d of the body's %d bytes", ErrTruncated, len(body), h.BodyLen)
	}
	body, rest = body[:h.BodyLen:h.BodyLen], body[h.BodyLen:]
	if err := h.Verify(body); err != nil {
		return Frame{}, b, err
	}
	return Frame{Header: h, Body: body}, rest, nil
}

// Verify checks body against the header's checksum.
func (h Header) Verify(body []byte) error {
	if sum := Checksum(body); sum != h.Checksum {
		return fmt.Errorf("%w: header says %x, body has %x", ErrChecksum, h.Checksum, sum)
	}
	return nil
}
