package keys

import (
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
	maxMs      = 3600_000
)

// LastKind is the last kind of message that this build reads. Agents that read CopyAsk, and
// what came after it, say so in the directory; who does not say so reads those before.
const LastKind = kindUsed

const (
	kindFindAsk    = 3
	kindFindAnswer = 4
	kindCopyAsk    = 5
	// A FindAsk that is answered by one that says in which tiers the units were, too.
	kindTellingAsk    = 6
	kindTellingAnswer = 7
	kindUsed          = 8
)

// Message is a KeepAsk, KeepAnswer, FindAsk, FindAnswer, CopyAsk or Used.
type Message interface {
	kind() uint8
	append(*fields.Writer)
	parse(*fields.Reader)
}

// AppendMessage writes a message. Request is the asker's number, and its answer's.
func AppendMessage(b []byte, request uint64, m Message) []byte {
	w := fields.Writer{B: append(b, Magic...)}
	w.U8(version)
	w.U8(m.kind())
	w.Uint(request)
	m.append(&w)
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
	m.parse(&r)
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

func (s *Shape) append(w *fields.Writer) {
	w.U8(uint8(s.Geometry.DType))
	w.Text(s.Packing.String())
	w.Count(s.Tokens)
	w.Count(len(s.Geometry.Layers))
	for i, l := range s.Geometry.Layers {
		same := i > 0 && l == s.Geometry.Layers[i-1]
		if w.Flag(same); same {
			continue
		}
		w.U8(uint8(l.Attention))
		w.Ints([]int{l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes})
	}
}

func (s *Shape) parse(r *fields.Reader) {
	s.Geometry.DType = kv.DType(r.U8())
	packing, err := kv.ParsePacking(r.Text(maxPacking))
	if err != nil {
		r.Fail()
	}
	s.Packing, s.Tokens = packing, int(r.UintTo(maxTokens))
	for i := range r.Count(maxLayers) {
		if same := r.Flag(); same {
			if i == 0 || r.Failed() {
				r.Fail()
				return
			}
			s.Geometry.Layers = append(s.Geometry.Layers, s.Geometry.Layers[i-1])
			continue
		}
		attention, sizes := kv.Attention(r.U8()), r.Ints(4)
		if len(sizes) != 4 {
			r.Fail()
			return
		}
		s.Geometry.Layers = append(s.Geometry.Layers, kv.Layer{
			Attention: attention, KVHeads: sizes[0], HeadDim: sizes[1], WindowTokens: sizes[2], IndexBytes: sizes[3],
		})
	}
}

func (c *Chain) append(w *fields.Writer) {
	w.Text(c.Tenant)
	w.Count(len(c.Keys))
	for _, key := range c.Keys {
		w.Hash(key)
	}
}

func (c *Chain) parse(r *fields.Reader) {
	c.Tenant = r.Text(maxTenant)
	seen := make(map[kv.Hash]bool)
	for range r.Count(MaxUnits) {
		key := r.Hash()
		if r.Failed() { // a count is no promise
			return
		}
		if seen[key] { // no chain has it twice; each time would be work
			r.Fail()
			return
		}
		seen[key] = true
		c.Keys = append(c.Keys, key)
	}
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
}

func (*KeepAsk) kind() uint8 { return 1 }

func (m *KeepAsk) append(w *fields.Writer) {
	m.Shape.append(w)
	m.Chain.append(w)
	w.Count(m.First)
	w.Bytes(m.Ticket)
	w.Uint(m.WithinMs)
}

func (m *KeepAsk) parse(r *fields.Reader) {
	m.Shape.parse(r)
	m.Chain.parse(r)
	m.First = int(r.UintTo(MaxUnits))
	m.Ticket = append([]byte(nil), r.Bytes(handoff.MaxTicketBytes)...)
	m.WithinMs = r.UintTo(maxMs)
	if m.First >= len(m.Chain.Keys) {
		r.Fail()
	}
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

func (m *KeepAnswer) append(w *fields.Writer) {
	w.U8(uint8(m.Verdict))
	w.Text(clip.Text(m.Why, maxText, "…"))
}

func (m *KeepAnswer) parse(r *fields.Reader) {
	m.Verdict, m.Why = parseVerdict(r), r.Text(maxText)
}

func parseVerdict(r *fields.Reader) Verdict {
	v := Verdict(r.U8())
	if v >= verdicts {
		r.Fail()
	}
	return v
}

// ReadsTelling reports whether an agent that reads messages up to a kind can be asked to Tell.
func ReadsTelling(lastKind int) bool { return lastKind >= kindTellingAnswer }

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
	// Tell: the answer is to say where the units were.
	Tell bool
}

func (m *FindAsk) kind() uint8 {
	if m.Tell {
		return kindTellingAsk
	}
	return kindFindAsk
}

func (m *FindAsk) append(w *fields.Writer) {
	m.Shape.append(w)
	m.Units.append(w)
	w.Count(m.First)
	for _, part := range []kv.Hash{m.Fingerprint.Model, m.Fingerprint.Prompt, m.Fingerprint.Salt} {
		w.Hash(part)
	}
	w.Uint(m.WithinMs)
	w.Uint(m.PatienceMs)
}

func (m *FindAsk) parse(r *fields.Reader) {
	m.Shape.parse(r)
	m.Units.parse(r)
	m.First = int(r.UintTo(MaxUnits))
	m.Fingerprint = handoff.Fingerprint{Model: r.Hash(), Prompt: r.Hash(), Salt: r.Hash()}
	m.WithinMs, m.PatienceMs = r.UintTo(maxMs), r.UintTo(maxMs)
	if len(m.Units.Keys) == 0 || m.First+len(m.Units.Keys) > MaxUnits {
		r.Fail()
	}
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

func (m *FindAnswer) append(w *fields.Writer) {
	w.U8(uint8(m.Verdict))
	w.Count(m.Have)
	w.Bytes(m.Ticket)
	if !m.Tell {
		return
	}
	from := m.From[:min(len(m.From), maxTiers)]
	w.Count(len(from))
	for _, f := range from {
		w.Text(f.Tier)
		w.Count(f.Units)
		w.Uint(f.Micros)
	}
}

func (m *FindAnswer) parse(r *fields.Reader) {
	m.Verdict, m.Have = parseVerdict(r), int(r.UintTo(MaxUnits))
	m.Ticket = append([]byte(nil), r.Bytes(handoff.MaxTicketBytes)...)
	if (m.Verdict == Taken) != (len(m.Ticket) > 0) {
		r.Fail()
	}
	if !m.Tell {
		return
	}
	units := 0
	for range r.Count(maxTiers) {
		f := TierWait{Tier: r.Text(maxTierName), Units: int(r.UintTo(MaxUnits)), Micros: r.UintTo(maxMs * 1000)}
		if units += f.Units; !IsTier(f.Tier) || units > m.Have {
			r.Fail()
			return
		}
		m.From = append(m.From, f)
	}
}
