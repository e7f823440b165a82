package protocol

import (
	"fmt"

	"meridian/internal/fields"
)

// Messages begin with
//
//	"MRDS" │ u8 version of the form │ u8 kind │ varint request │ the kind's own
//
// An answer has the number of the request that it answers.
const (
	// Magic is how every message begins.
	Magic          = "MRDS"
	messageVersion = 1
	// MaxInline is the largest value that travels in a message.
	MaxInline = 256 << 10
	// SmallValue is the largest that travels in a message although its reader has a
	// landing: up to it, a message costs less than a transfer.
	SmallValue = 64 << 10
	// MaxKeys is how many keys one message names.
	MaxKeys = 1024

	maxName   = 255
	maxHashes = 16384
)

// Message is one thing that is said.
type Message interface {
	kind() uint8
	// each goes through the fields, to write or to read them.
	each(fields.Codec)
}

// kinds makes an empty message of each kind. A number keeps its meaning.
var kinds = []func() Message{
	1:  func() Message { return &Put{} },
	2:  func() Message { return &Open{} },
	3:  func() Message { return &Plan{} },
	4:  func() Message { return &Commit{} },
	5:  func() Message { return &Get{} },
	6:  func() Message { return &Value{} },
	7:  func() Message { return &Remove{} },
	8:  func() Message { return &Locate{} },
	9:  func() Message { return &Location{} },
	10: func() Message { return &Has{} },
	11: func() Message { return &Present{} },
	12: func() Message { return &List{} },
	13: func() Message { return &Listing{} },
	14: func() Message { return &Describe{} },
	15: func() Message { return &Description{} },
	16: func() Message { return &Evict{} },
	17: func() Message { return &Evicted{} },
	18: func() Message { return &Reply{} },
	19: func() Message { return &Where{} },
	20: func() Message { return &Owners{} },
	21: func() Message { return &Forget{} },
	22: func() Message { return &Renew{} },
	23: func() Message { return &Answer{} },
	24: func() Message { return &Keys{} },
	25: func() Message { return &Claim{} },
	26: func() Message { return &Claimed{} },
	27: func() Message { return &Dropped{} },
	28: func() Message { return &DroppedAck{} },
	29: func() Message { return &PutFrom{} },
	30: func() Message { return &Cold{} },
	31: func() Message { return &DescribeTiers{} },
	32: func() Message { return &Tiers{} },
	33: func() Message { return &Inspect{} },
	34: func() Message { return &Inspected{} },
	35: func() Message { return &Pin{} },
	36: func() Message { return &Pins{} },
}

// IsMessage reports whether a notification is one of these.
func IsMessage(payload []byte) bool {
	return len(payload) >= len(Magic) && string(payload[:len(Magic)]) == Magic
}

// AppendMessage appends a message in wire form.
func AppendMessage(dst []byte, request uint64, m Message) []byte {
	w := fields.Writer{B: dst}
	appendHead(&w, request, m)
	m.each(fields.Writing(&w))
	return w.B
}

func appendHead(w *fields.Writer, request uint64, m Message) {
	w.B = append(w.B, Magic...)
	w.U8(messageVersion)
	w.U8(m.kind())
	w.Uint(request)
}

// ParseMessage reads what AppendMessage wrote, from a stranger. Values and keys
// are parts of b.
func ParseMessage(b []byte) (request uint64, m Message, err error) {
	if !IsMessage(b) {
		return 0, nil, fmt.Errorf("%w: it does not begin as one", ErrMessage)
	}
	r := fields.Reader{B: b[len(Magic):]}
	if v := r.U8(); v != messageVersion {
		return 0, nil, fmt.Errorf("%w: form %d, this build reads %d", ErrMessage, v, messageVersion)
	}
	kind := r.U8()
	if kind == 0 || int(kind) >= len(kinds) {
		return 0, nil, fmt.Errorf("%w: unknown kind %d", ErrMessage, kind)
	}
	m = kinds[kind]()
	request = r.Uint()
	m.each(fields.Reading(&r))
	if !r.End() {
		return 0, nil, fmt.Errorf("%w: %T", ErrMessage, m)
	}
	return request, m, nil
}

// Answers reports whether a message answers a request of a client.
func Answers(m Message) bool {
	switch m.(type) {
	case *Plan, *Value, *Location, *Present, *Listing, *Description, *Evicted, *Reply, *Owners, *Tiers, *Inspected, *Pins:
		return true
	}
	return false
}

// TellsMaster reports whether a message is what an owner tells the master of itself. How
// many there are follows from what the owner has, not from what its peers ask: a
// lease or a list of keys that is not told is lost.
func TellsMaster(m Message) bool {
	switch m.(type) {
	case *Renew, *Keys, *Claim, *Dropped:
		return true
	}
	return false
}

// Reply says that something is done, or what the problem is.
type Reply struct{ Problem Problem }

func (*Reply) kind() uint8           { return 18 }
func (m *Reply) each(c fields.Codec) { m.Problem.each(c) }
