package protocol

import (
	"meridian/internal/fields"
)

// Cold asks an owner that says it has tiers which of these objects they have. It is
// answered by Present, at once.
type Cold struct{ Names [][]byte }

func (*Cold) kind() uint8 { return 30 }

func (m *Cold) each(c fields.Codec) { eachName(c, &m.Names) }

// DescribeTiers asks such an owner how they stand. It is answered by Tiers.
type DescribeTiers struct{}

func (*DescribeTiers) kind() uint8       { return 31 }
func (*DescribeTiers) each(fields.Codec) {}

// Tiers is how the tiers of an owner stand, the nearest to memory first.
type Tiers struct{ Tiers []Tier }

// maxTiers is more than there are kinds of tiers.
const maxTiers = 8

// Tier is how one stands, as an operator sees it.
type Tier struct {
	Name        string `json:"name"`
	Down        bool   `json:"down"`
	Objects     uint64 `json:"objects"`
	Bytes       uint64 `json:"bytes"`
	Limit       uint64 `json:"limit"`
	Waiting     uint64 `json:"waiting"` // bytes that are to be written
	Puts        uint64 `json:"puts"`
	PutsDropped uint64 `json:"puts_dropped"`
	PutsFailed  uint64 `json:"puts_failed"`
	Hits        uint64 `json:"hits"`
	Misses      uint64 `json:"misses"`
	Slow        uint64 `json:"slow"`
	Failed      uint64 `json:"failed"`
	Broken      uint64 `json:"broken"`
	Reclaimed   uint64 `json:"reclaimed"` // segments
	Requests    uint64 `json:"requests"`  // to a server, and those over its budget
	Exceeds     uint64 `json:"over_budget"`
}

func (*Tiers) kind() uint8 { return 32 }

func (m *Tiers) each(c fields.Codec) {
	fields.List(c, maxTiers, &m.Tiers, func(t *Tier) {
		c.Text(maxName, &t.Name)
		c.Uint(t.numbers()...)
		c.Flag(&t.Down)
	})
}

// numbers are the counters in the order in which they travel.
func (t *Tier) numbers() []*uint64 {
	return []*uint64{
		&t.Objects, &t.Bytes, &t.Limit, &t.Waiting, &t.Puts, &t.PutsDropped, &t.PutsFailed, &t.Hits, &t.Misses, &t.Slow, &t.Failed, &t.Broken,
		&t.Reclaimed, &t.Requests, &t.Exceeds,
	}
}
