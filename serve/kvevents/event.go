package kvevents

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Kind is what happened to blocks.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota + 1
	Removed      // given up, in one medium
	Cleared      // all of them
)

// Event is one thing that happened in an engine's cache. Blocks go by the
// engine's own names, which mean nothing to another engine; what they are of is
// said by tokens.
type Event struct {
	Kind   Kind
	Blocks []uint64
	Medium string // GPU, CPU, STORAGE; "" where it is not said
	Remote bool   // in a store that is not the engine's own
	Group  int    // of layers that are cached alike

	// Of Stored: blocks of BlockTokens tokens each, one after the other, after
	// Parent.
	Parent      uint64
	HasParent   bool
	Tokens      []uint32
	BlockTokens int
	Spec        string // how the group's layers attend, "" where it is not said
	Adapter     string // LoRA
	Salt        string // of a sequence's first block
	// Others has, for each block, what else it is of, as it came: images,
	// embeddings. Nil where there is nothing of the kind in any block.
	Others [][]byte
}

// Batch is what an engine's step did to its cache.
type Batch struct {
	Time   float64 // of the engine's clock, in seconds
	Rank   int     // data-parallel
	Events []Event
	// Unknown counts events of kinds that came after this was written.
	Unknown int
}

// DecodeBatch reads a batch. Nothing of it points into data.
func DecodeBatch(data []byte) (Batch, error) {
	m := &msgpack{data: data}
	var b Batch
	n, err := m.list()
	if err != nil {
		return b, err
	}
	if n < 2 {
		return b, fmt.Errorf("%w: a batch of %d members, not time and events", ErrEncoding, n)
	}
	if b.Time, err = m.float(); err != nil {
		return b, err
	}
	if err := b.events(m); err != nil {
		return b, err
	}
	if n > 2 && !m.isNil() {
		rank, err := m.integer()
		if err != nil {
			return b, err
		}
		b.Rank = int(min(rank, math.MaxInt32))
	}
	return b, nil // members beyond are newer than this
}

// maxEvents bounds a batch: an event of a few bytes becomes one of some hundred here.
const maxEvents = 1 << 16

func (b *Batch) events(m *msgpack) error {
	n, err := m.list()
	if err != nil {
		return err
	}
	if n > maxEvents {
		return fmt.Errorf("%w: %d events, at most %d", ErrEncoding, n, maxEvents)
	}
	for range n {
		var e Event
		if err := e.decode(m); err != nil {
			return err
		}
		if e.Kind == 0 {
			b.Unknown++
			continue
		}
		b.Events = append(b.Events, e)
	}
	return nil
}

var kinds = map[string]Kind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}

// positions are the members of events where these are lists, after the type:
// the encoding of older releases.
var positions = map[Kind][]string{
	Stored: {
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
		"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality",
	},
	Removed: {"block_hashes", "medium", "group_idx", "locality"},
}

// memberNames are the members of events that matter; an engine may send any number
// of others, and they are passed over.
var memberNames = func() map[string]bool {
	names := map[string]bool{"type": true}
	for _, list := range positions {
		for _, name := range list {
			names[name] = true
		}
	}
	return names
}()

// decode reads an event, which is a map with its type among the members, or a
// list that starts with it.
func (e *Event) decode(m *msgpack) error {
	if m.left() > 0 && (m.data[m.at]&0xf0 == 0x80 || m.data[m.at] == 0xde || m.data[m.at] == 0xdf) {
		return e.decodeMap(m)
	}
	n, err := m.list()
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: an event without a type", ErrEncoding)
	}
	kind, err := m.text()
	if err != nil {
		return err
	}
	e.Kind = kinds[string(kind)]
	names := positions[e.Kind]
	raw := members{values: make(map[string][]byte, len(names))}
	for i := range n - 1 {
		value, err := m.skip()
		if err != nil {
			return err
		}
		if i < len(names) {
			raw.values[names[i]] = value
		}
	}
	return e.fill(&raw)
}

func (e *Event) decodeMap(m *msgpack) error {
	n, err := m.pairs()
	if err != nil {
		return err
	}
	raw := members{values: make(map[string][]byte)}
	for range n {
		name, err := m.text()
		if err != nil {
			return err
		}
		value, err := m.skip()
		if err != nil {
			return err
		}
		if memberNames[string(name)] {
			raw.values[string(name)] = value
		}
	}
	kind := raw.text("type")
	if kind == "" && raw.err == nil {
		return fmt.Errorf("%w: an event without a type", ErrEncoding)
	}
	e.Kind = kinds[kind]
	return e.fill(&raw)
}

// fill reads the members that matter.
func (e *Event) fill(raw *members) error {
	if e.Kind != Stored && e.Kind != Removed {
		return raw.err
	}
	e.Blocks, e.Medium, e.Group = raw.names("block_hashes"), raw.text("medium"), raw.count("group_idx")
	e.Remote = raw.text("locality") == "REMOTE"
	if e.Kind == Removed {
		return raw.err
	}
	if parent := raw.given("parent_block_hash"); parent != nil {
		e.Parent, e.HasParent = raw.name(parent), true
	}
	e.Tokens, e.BlockTokens = raw.tokens("token_ids"), raw.count("block_size")
	e.Spec, e.Adapter = raw.text("kv_cache_spec_kind"), raw.text("lora_name")
	if raw.err == nil && (e.BlockTokens < 1 || len(e.Tokens) != len(e.Blocks)*e.BlockTokens) {
		return fmt.Errorf("%w: %d blocks of %d tokens, with %d tokens", ErrEncoding, len(e.Blocks), e.BlockTokens, len(e.Tokens))
	}
	if raw.err != nil {
		return raw.err
	}
	return e.extras(raw.values["extra_keys"])
}

// extras reads what blocks are of besides tokens: for each block nil or a list,
// with the adapter's name first where there is one, and bare texts for salts.
func (e *Event) extras(raw []byte) error {
	m := &msgpack{data: raw}
	if len(raw) == 0 || m.isNil() {
		return nil
	}
	n, err := m.list()
	if err != nil {
		return err
	}
	if n != len(e.Blocks) {
		return fmt.Errorf("%w: extra keys of %d blocks, and %d blocks", ErrEncoding, n, len(e.Blocks))
	}
	for block := range n {
		if m.isNil() {
			continue
		}
		start := m.at
		others, err := e.extra(m, block == 0 && !e.HasParent)
		if err != nil {
			return err
		}
		if others {
			if e.Others == nil {
				e.Others = make([][]byte, n)
			}
			e.Others[block] = append([]byte(nil), raw[start:m.at]...)
		}
	}
	return nil
}

// extra reads one block's, and tells whether there is more than a name and a
// salt.
func (e *Event) extra(m *msgpack, first bool) (others bool, err error) {
	n, err := m.list()
	if err != nil {
		return false, err
	}
	for i := range n {
		value, err := m.skip()
		if err != nil {
			return false, err
		}
		text := ""
		if isText(value[0]) {
			b, err := (&msgpack{data: value}).text()
			if err != nil {
				return false, err
			}
			text = string(b)
		}
		switch {
		case text != "" && i == 0 && text == e.Adapter:
		case text != "" && first && e.Salt == "":
			e.Salt = text
		default:
			others = true
		}
	}
	return others, nil
}

// members are an event's, as they came. The first that cannot be read is
// remembered, so that all of them can be asked for first.
type members struct {
	values map[string][]byte
	err    error
}

func (r *members) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

// given is a reader of a member, nil where there is none.
func (r *members) given(name string) *msgpack {
	m := &msgpack{data: r.values[name]}
	if len(m.data) == 0 || m.isNil() {
		return nil
	}
	return m
}

func (r *members) text(name string) string {
	m := r.given(name)
	if m == nil {
		return ""
	}
	b, err := m.text()
	r.note(err)
	return string(b)
}

func (r *members) count(name string) int {
	m := r.given(name)
	if m == nil {
		return 0
	}
	n, err := m.integer()
	if err == nil && n > math.MaxInt32 {
		err = fmt.Errorf("%w: %s is %d", ErrEncoding, name, int64(n))
	}
	r.note(err)
	return int(n)
}

// list reads the length of a list, and returns what reads its elements.
func (r *members) list(name string) (int, *msgpack) {
	m := r.given(name)
	if m == nil {
		return 0, nil
	}
	n, err := m.list()
	r.note(err)
	if err != nil {
		return 0, nil
	}
	return n, m
}

func (r *members) names(name string) []uint64 {
	n, m := r.list(name)
	names := make([]uint64, n)
	for i := range names {
		names[i] = r.name(m)
	}
	return names
}

// name reads a block's hash: an integer, which is the low 64 bits, or all of its
// bytes, of which the last are those.
func (r *members) name(m *msgpack) uint64 {
	if m.left() > 0 && m.data[m.at] >= 0xc4 && m.data[m.at] <= 0xc6 {
		b, err := m.text()
		if err == nil && len(b) < 8 {
			err = fmt.Errorf("%w: a block's hash of %d bytes", ErrEncoding, len(b))
		}
		r.note(err)
		if err != nil {
			return 0
		}
		return binary.BigEndian.Uint64(b[len(b)-8:])
	}
	n, err := m.integer()
	r.note(err)
	return n
}

func (r *members) tokens(name string) []uint32 {
	n, m := r.list(name)
	tokens := make([]uint32, n)
	for i := range tokens {
		id, err := m.integer()
		if err == nil && id > math.MaxUint32 {
			err = fmt.Errorf("%w: %d is no token", ErrEncoding, int64(id))
		}
		r.note(err)
		tokens[i] = uint32(id)
	}
	return tokens
}
