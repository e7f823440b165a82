package handoff

import (
	"fmt"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// Extent is a stretch of a registered region.
type Extent struct {
	Region, Epoch  uint64
	Offset, Length uint64
}

// Memory is a rank's KV memory: extents that follow one another in the order in
// which a reshard.Side counts its bytes.
type Memory []Extent

// Bytes is how much there is.
func (m Memory) Bytes() (total uint64) {
	for _, e := range m {
		total += e.Length
	}
	return total
}

// Rank is where one rank of an engine lives.
type Rank struct {
	Agent  kv.Member
	Memory Memory
	// Capabilities are those of the agent's build, as far as this one knows. They
	// are for its home, and not told to others.
	Capabilities uint64
}

// Engine is an engine as its home tells of it.
type Engine struct {
	ID   string
	Side reshard.Side
	// Ranks by their number, as kv.Parallelism.Index counts.
	Ranks []Rank
}

// Limits on what a stranger may say of himself.
const (
	maxName    = 255
	maxRanks   = 1 << 10
	maxExtents = 1 << 16
	maxLayers  = 1 << 14
	maxTables  = 1 << 6
	// maxComponents: a group of layers has two at most.
	maxComponents = 2 * maxTables
	maxBlocks     = 1 << 22
)

// Validate says what is impossible about e.
func (e *Engine) Validate() error {
	if e.ID == "" || len(e.ID) > maxName {
		return fmt.Errorf("%w: an engine has an id of 1 to %d bytes", ErrTerms, maxName)
	}
	sizes, err := e.Side.RankBytes()
	if err != nil {
		return err
	}
	if len(e.Ranks) != len(sizes) {
		return fmt.Errorf("%w: engine %s has %d ranks, %v has %d", ErrTerms, e.ID, len(e.Ranks), e.Side.Parallelism, len(sizes))
	}
	for number := range e.Ranks {
		if err := e.Ranks[number].validate(uint64(sizes[number])); err != nil {
			return fmt.Errorf("%w: rank %d of engine %s: %w", ErrTerms, number, e.ID, err)
		}
	}
	return nil
}

// fits says what keeps the cache of src from moving to dst. One of them is a
// stranger's: whether it is of the same model is seen first, so that what it
// costs to look at the rest is bounded by the other.
func fits(src, dst, stranger *Engine) error {
	if found := reshard.CompareModels(src.Side, dst.Side); len(found) > 0 {
		return &reshard.Incompatible{Differences: found}
	}
	if err := stranger.Validate(); err != nil {
		return err
	}
	if found := reshard.Compare(src.Side, dst.Side); len(found) > 0 {
		return &reshard.Incompatible{Differences: found}
	}
	return nil
}

func (r *Rank) validate(need uint64) error {
	if r.Agent.Name == "" || len(r.Agent.Name) > maxName {
		return fmt.Errorf("its agent needs a name of 1 to %d bytes", maxName)
	}
	if len(r.Memory) > maxExtents {
		return fmt.Errorf("%d extents of memory, at most %d", len(r.Memory), maxExtents)
	}
	var have uint64
	for _, x := range r.Memory {
		if x.Length == 0 || x.Offset+x.Length < x.Offset || have+x.Length < have {
			return fmt.Errorf("an extent of region %d is empty or wraps around", x.Region)
		}
		have += x.Length
	}
	if have < need {
		return fmt.Errorf("%d bytes of memory, its share of the cache takes %d", have, need)
	}
	return nil
}

// Party is one side of a hand-off: an engine, and where it keeps the request.
type Party struct {
	Engine  Engine
	Holding reshard.Holding
}

// blocks is how many of an engine's blocks the party keeps.
func (p *Party) blocks() int {
	most := 0
	for _, table := range p.Holding.Tables {
		most = max(most, len(table))
	}
	return most
}

// keptBytes is about what a party takes in memory.
func (p *Party) keptBytes() int {
	bytes := len(p.Engine.Side.Geometry.Layers)*40 + (len(p.Engine.Side.Parallelism.Stages)+len(p.Engine.Side.Offsets))*8 + len(p.Engine.Ranks)*64
	for i := range p.Engine.Ranks {
		bytes += len(p.Engine.Ranks[i].Memory) * 32
	}
	return bytes + p.tableBytes()
}

const blockNumberBytes = 4

// tableBytes is what a party's block tables take of that.
func (p *Party) tableBytes() (bytes int) {
	for _, table := range p.Holding.Tables {
		bytes += len(table) * blockNumberBytes
	}
	return bytes
}

func eachMember(c fields.Codec, m *kv.Member) {
	c.Text(maxName, &m.Name)
	c.ID(&m.Incarnation)
}
