package door

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"meridian/serve/door/doorpb"
)

// Frame is one frame as it came: a type, a message, and maybe a descriptor.
type Frame struct {
	Type doorpb.FrameType
	Body []byte
	// File came with the frame's first byte; nil if none did. The reader
	// of the frame closes it.
	File *os.File
}

// ErrFrame means that what came is not a frame of this protocol.
var ErrFrame = errors.New("door: bad frame")

const headerBytes = 6 // u32 length of type and message, u16 type

// AppendFrame writes a message as a frame.
func AppendFrame(b []byte, kind doorpb.FrameType, m proto.Message) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return b[:start], fmt.Errorf("door: writing %v: %w", kind, err)
	}
	length := len(b) - start - 4
	if length > MaxFrameBytes {
		return b[:start], fmt.Errorf("%w: %v of %d bytes, at most %d", ErrFrame, kind, length, MaxFrameBytes)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(length))
	return b, nil
}

// Close lets the descriptor go that came with the frame.
func (f *Frame) Close() {
	closeAll([]*os.File{f.File})
	f.File = nil
}

// MaxMessages bounds the messages within one request of an engine, or one Decision: an empty one
// takes two bytes of a frame, and a hundred in memory.
const MaxMessages = 32 << 10

// UnmarshalRequest reads what an engine asks, or is to do, which is bounded before it is
// read.
func (f *Frame) UnmarshalRequest(into proto.Message) error {
	left := MaxMessages
	if !countMessages(f.Body, into.ProtoReflect().Descriptor(), &left) {
		return fmt.Errorf("%w: %v is broken, or has more than %d messages in it", ErrFrame, f.Type, MaxMessages)
	}
	return f.Unmarshal(into)
}

// countMessages takes the messages within one off what is left, and reports
// whether that was enough. Only depths that the schema has are gone into, which
// has no cycles.
func countMessages(b []byte, of protoreflect.MessageDescriptor, left *int) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return false
		}
		if field := of.Fields().ByNumber(number); field != nil && field.Message() != nil && kind == protowire.BytesType {
			within, _ := protowire.ConsumeBytes(b)
			if *left--; *left < 0 || !countMessages(within, field.Message(), left) {
				return false
			}
		}
		b = b[n:]
	}
	return true
}

// Request is the number that a frame asks under: field 1 of everything that is
// answered, also in frames that this build does not know. 0 means that no answer
// is wanted.
func (f *Frame) Request() (request uint64) {
	for b := f.Body; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0
		}
		if number == 1 && kind == protowire.VarintType {
			request, _ = protowire.ConsumeVarint(b) // the last one counts, as everywhere
		}
		b = b[n:]
	}
	return request
}

// Unmarshal reads the message of a frame.
func (f *Frame) Unmarshal(into proto.Message) error {
	if err := proto.Unmarshal(f.Body, into); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrFrame, f.Type, err)
	}
	return nil
}
