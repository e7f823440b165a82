package kveventstest

import (
	"encoding/binary"
	"math"
)

// Event is one to be published, as a map of members.
type Event []Member

// Member is one of an event's; values are nil, int, uint64, string, []uint64,
// []uint32 or [][]any.
type Member struct {
	Name  string
	Value any
}

// Stored tells of blocks of equal size after parent, which is nil for none.
func Stored(blocks []uint64, parent any, tokens []uint32, more ...Member) Event {
	return append(Event{
		{"type", "BlockStored"},
		{"block_hashes", blocks},
		{"parent_block_hash", parent},
		{"token_ids", tokens},
		{"block_size", len(tokens) / len(blocks)},
		{"lora_id", nil},
		{"medium", "GPU"},
		{"lora_name", nil},
	}, more...)
}

// Removed tells of blocks that were given up.
func Removed(blocks ...uint64) Event {
	return Event{{"type", "BlockRemoved"}, {"block_hashes", blocks}, {"medium", "GPU"}}
}

// Cleared tells that nothing is left.
func Cleared() Event { return Event{{"type", "AllBlocksCleared"}} }

// Batch encodes events as a publisher does.
func Batch(time float64, events ...Event) []byte {
	b := []byte{0x93, 0xcb}
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(time))
	b = appendList(b, len(events))
	for _, e := range events {
		b = append(b, 0xde)
		b = binary.BigEndian.AppendUint16(b, uint16(len(e)))
		for _, m := range e {
			b = appendValue(appendValue(b, m.Name), m.Value)
		}
	}
	return append(b, 0)
}

func appendList(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, 0xc0)
	case int:
		return appendValue(b, uint64(v))
	case uint64:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
	case uint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), v)
	case string:
		return append(append(b, 0xd9, byte(len(v))), v...)
	case []uint64:
		return appendAll(b, v)
	case []uint32:
		return appendAll(b, v)
	case []any:
		return appendAll(b, v)
	}
	panic("kveventstest: a value of no kind")
}

func appendAll[T any](b []byte, values []T) []byte {
	b = appendList(b, len(values))
	for _, v := range values {
		b = appendValue(b, v)
	}
	return b
}
