package keys

import (
	"bytes"
	"errors"
	"fmt"

	"meridian/internal/clip"
	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Magic begins every message.
const Magic = "MRDK"

// ErrMessage means that bytes are no message.
var ErrMessage = errors.New("offload: bad message")

const version = 1

// Limits on what a stranger may say.
const (
	// MaxUnits of one chain: a million tokens in units of 64.
	MaxUnits   = 1 << 14
	maxLayers  = 1 << 12
	maxTenant  = 64
	maxPacking = 80
	maxText    = 256
	maxTokens  = 1 << 20
	maxPayer   = 320 // an engine's id, and what is before it
	maxMs      = 3600_000
)

// LastKind is the last kind of message that this build reads. Agents that read CopyAsk, and
// what came after it, say so in the directory; who does not say so reads those before.
const LastKind = kindPayingCopy

const (
	kindFindAsk    = 3
	kindFindAnswer = 4
	kindCopyAsk    = 5
	// A FindAsk that is answered by one that says in which tiers the units were, too.
	kindTellingAsk    = 6
	kindTellingAnswer = 7
	kindUsed          = 8
	// Asks that say whose share of the owner's memory is taken. The FindAsk is a telling one.
	kindPayingKeep = 9
	kindPayingFind = 10
	kindPayingCopy = 11
)

// Message is a KeepAsk, KeepAnswer, FindAsk, FindAnswer, CopyAsk or Used.
type Message interface {
	kind() uint8
	// each goes through the fields, to write or to read them.
	each(fields.Codec)
}

// AppendMessage writes a message. Request is the asker's number, and its answer's.
func AppendMessage(b []byte, request uint64, m Message) []byte {
	w := fields.Writer{B: append(b, Magic...)}
	w.U8(version)
	w.U8(m.kind())
	w.Uint(request)
	m.each(fields.Writing(&w))
	return w.B
}

// ParseMessage reads one of a stranger. It keeps no part of b.
func ParseMessage(b []byte) (request uint64, m Message, err error) {
	if len(b) < len(Magic)+2 || string(b[:len(Magic)]) != Magic {
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrMessage, len(b))
	}
	if v := b[len(Magic)]; v != version {
		return 0, nil, fmt.Errorf("%w: of version %d, this build reads %d", ErrMessage, v, version)
	}
	switch kind := b[len(Magic)+1]; kind {
	case 1:
		m = new(KeepAsk)
	case 2:
		m = new(KeepAnswer)
	case kindFindAsk:
		m = new(FindAsk)
	case kindFindAnswer:
		m = new(FindAnswer)
	case kindTellingAsk:
		m = &FindAsk{Tell: true}
	case kindPayingFind:
		m = &FindAsk{Tell: true, Pays: true}
	case kindPayingKeep:
		m = &KeepAsk{Pays: true}
	case kindPayingCopy:
		m = &CopyAsk{Pays: true}
	case kindTellingAnswer:
		m = &FindAnswer{Tell: true}
	case kindUsed:
		m = new(Used)
	case kindCopyAsk:
		m = new(CopyAsk)
	default:
		return 0, nil, fmt.Errorf("%w: of kind %d", ErrMessage, kind)
	}
	r := fields.Reader{B: b[len(Magic)+2:]}
	request = r.Uint()
	m.each(fields.Reading(&r))
	if !r.End() {
		return 0, nil, fmt.Errorf("%w: a %T that is cut off, too long or impossible", ErrMessage, m)
	}
	return request, m, nil
}

// Shape says what units are: any publisher of a model has the same.
type Shape struct {
	Geometry kv.Geometry
	Packing  kv.Packing
	Tokens   int // in a unit
}

// Unit is what such units look like.
func (s *Shape) Unit() (reshard.Unit, error) {
	layout, err := kv.ParseLayout("BLHNC")
	if err != nil {
		return reshard.Unit{}, err
	}
	return reshard.UnitOf(reshard.Side{
		Geometry: s.Geometry, Parallelism: kv.Split(len(s.Geometry.Layers), 1, 1), Layout: layout, Packing: s.Packing, BlockTokens: s.Tokens, Blocks: 1,
	}, s.Tokens)
}

func (s *Shape) each(c fields.Codec) {
	fields.Enum(c, &s.Geometry.DType)
	packing := s.Packing.String()
	c.Text(maxPacking, &packing)
	if c.Reads() {
		var err error
		s.Packing, err = kv.ParsePacking(packing)
		c.Demand(err == nil)
	}
	fields.UpTo(c, maxTokens, &s.Tokens)
	before := kv.Layer{}
	fields.List(c, maxLayers, &s.Geometry.Layers, func(l *kv.Layer) {
		first := l == &s.Geometry.Layers[0]
		same := !first && *l == before
		if c.Flag(&same); same {
			c.Demand(!first)
			if c.Reads() {
				*l = before
			}
			return
		}
		fields.Enum(c, &l.Attention)
		sizes := []int{l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes}
		if c.Ints(4, &sizes); c.Reads() {
			c.Demand(len(sizes) == 4)
			if len(sizes) == 4 {
				l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes = sizes[0], sizes[1], sizes[2], sizes[3]
			}
		}
		before = *l
	})
}

func (c *Chain) each(codec fields.Codec) {
	codec.Text(maxTenant, &c.Tenant)
	seen := make(map[kv.Hash]bool)
	fields.List(codec, MaxUnits, &c.Keys, func(key *kv.Hash) {
		if codec.Hash(key); codec.Reads() {
			codec.Demand(!seen[*key]) // no chain has it twice; each time would be work
			seen[*key] = true
		}
	})
}

// KeepAsk asks an owner to keep the units of a chain from First on, which the ticket is
// for. Those before it has or another has; it uses them with these.
type KeepAsk struct {
	Shape  Shape
	Chain  Chain
	First  int
	Ticket []byte
	// WithinMs is how long the blocks may be kept from the engine.
	WithinMs uint64
	// Pays: the message says who the chain's Payer is.
	Pays bool
}

func (m *KeepAsk) kind() uint8 {
	if m.Pays {
		return kindPayingKeep
	}
	return 1
}

func (m *KeepAsk) each(c fields.Codec) {
	m.Shape.each(c)
	m.Chain.each(c)
	fields.UpTo(c, MaxUnits, &m.First)
	eachTicket(c, &m.Ticket)
	fields.UpTo(c, maxMs, &m.WithinMs)
	if m.Pays {
		eachPayer(c, &m.Chain)
	}
	c.Demand(m.First < len(m.Chain.Keys))
}

// Verdict is what an owner says to an ask.
type Verdict uint8

const (
	// Taken: the owner takes it, or grants it.
	Taken Verdict = iota
	// Have: it is there already, or another brings it just now.
	Have
	// Full: there is no room; another owner may have some.
	Full
	// Busy: too much goes on.
	Busy
	// Missing: it is not there, or not any more.
	Missing
	// Refused: it cannot be, for a reason that another owner would have, too.
	Refused

	verdicts
)

var verdictNames = [...]string{Taken: "taken", Have: "have", Full: "full", Busy: "busy", Missing: "missing", Refused: "refused"}

func (v Verdict) String() string { return verdictNames[min(v, Refused)] }

// KeepAnswer says whether the owner takes what a KeepAsk offers. It comes before the
// first byte is copied: how that ends the offer tells.
type KeepAnswer struct {
	Verdict Verdict
	Why     string
}

func (*KeepAnswer) kind() uint8 { return 2 }

func (m *KeepAnswer) each(c fields.Codec) {
	why := clip.Text(m.Why, maxText, "…")
	eachVerdict(c, &m.Verdict)
	if c.Text(maxText, &why); c.Reads() {
		m.Why = why
	}
}

func eachVerdict(c fields.Codec, v *Verdict) {
	fields.Enum(c, v)
	c.Demand(*v < verdicts)
}

// eachTicket, when read, is a copy.
func eachTicket(c fields.Codec, ticket *[]byte) {
	if c.Bytes(handoff.MaxTicketBytes, ticket); c.Reads() {
		*ticket = bytes.Clone(*ticket)
	}
}

// ReadsTelling reports whether an agent that reads messages up to a kind can be asked to Tell.
func ReadsTelling(lastKind int) bool { return lastKind >= kindTellingAnswer }

// ReadsPayer reports whether an agent that reads messages up to a kind can be told who pays.
func ReadsPayer(lastKind int) bool { return lastKind >= kindPayingCopy }

func eachPayer(c fields.Codec, of *Chain) {
	c.Text(maxPayer, &of.Payer)
	c.Demand(of.Payer != "")
}

// FindAsk asks an owner for units of a chain, the first of which is unit First of its
// sequence. The owner knows keys, not tokens: the fingerprint is that of all tokens up to
// the end of the last unit, under the owner's own key.
type FindAsk struct {
	Shape       Shape
	Units       Chain
	First       int
	Fingerprint handoff.Fingerprint
	// WithinMs is how long the offer is to stand, PatienceMs how long the answer is
	// waited for.
	WithinMs, PatienceMs uint64
	// Tell: the answer is to say where the units were. Pays: the message says who the units'
	// Payer is, and that the answer is to Tell.
	Tell, Pays bool
}

func (m *FindAsk) kind() uint8 {
	switch {
	case m.Pays:
		return kindPayingFind
	case m.Tell:
		return kindTellingAsk
	}
	return kindFindAsk
}

func (m *FindAsk) each(c fields.Codec) {
	m.Shape.each(c)
	m.Units.each(c)
	fields.UpTo(c, MaxUnits, &m.First)
	c.Hash(&m.Fingerprint.Model, &m.Fingerprint.Prompt, &m.Fingerprint.Salt)
	fields.UpTo(c, maxMs, &m.WithinMs, &m.PatienceMs)
	if m.Pays {
		eachPayer(c, &m.Units)
	}
	c.Demand(len(m.Units.Keys) > 0 && m.First+len(m.Units.Keys) <= MaxUnits)
}

// FindAnswer brings the ticket of all that was asked for, or says how many units from the
// first on can be asked for.
type FindAnswer struct {
	Verdict Verdict
	Have    int
	Ticket  []byte
	// From is where the units were that are there, if the ask said Tell, as this does then.
	From []TierWait
	Tell bool
}

// TierWait is a tier that had units, and how long it kept their reader waiting.
type TierWait struct {
	Tier   string
	Units  int
	Micros uint64
}

// maxTiers is more than an owner has.
const maxTiers = 8

// IsTier reports whether a text can be the name of a tier: it is shown, and may be a stranger's.
func IsTier(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= maxTierName
}

const maxTierName = 32

func (m *FindAnswer) kind() uint8 {
	if m.Tell {
		return kindTellingAnswer
	}
	return kindFindAnswer
}

func (m *FindAnswer) each(c fields.Codec) {
	eachVerdict(c, &m.Verdict)
	fields.UpTo(c, MaxUnits, &m.Have)
	eachTicket(c, &m.Ticket)
	c.Demand((m.Verdict == Taken) == (len(m.Ticket) > 0))
	if !m.Tell {
		return
	}
	from, units := m.From[:min(len(m.From), maxTiers)], 0
	fields.List(c, maxTiers, &from, func(f *TierWait) {
		c.Text(maxTierName, &f.Tier)
		fields.UpTo(c, MaxUnits, &f.Units)
		fields.UpTo(c, maxMs*1000, &f.Micros)
		units += f.Units
		c.Demand(IsTier(f.Tier) && units <= m.Have)
	})
	if c.Reads() {
		m.From = from
	}
}
