package handoff

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/reshard"
)

// Member is one start of an agent that has ranks of an engine.
type Member struct {
	Name        string
	Incarnation kv.ID
}

func (m Member) String() string { return fmt.Sprintf("%s (%.8s)", m.Name, m.Incarnation) }

// Compare orders members.
func (m Member) Compare(other Member) int {
	return cmp.Or(cmp.Compare(m.Name, other.Name), m.Incarnation.Compare(other.Incarnation))
}

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
	Agent  Member
	Memory Memory
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
	maxBlocks  = 1 << 22
)

// Validate says what is impossible about e.
func (e *Engine) Validate() error {
	if e.ID == "" || len(e.ID) > maxName {
		return fmt.Errorf("%w: an engine has an id of 1 to %d bytes", ErrTerms, maxName)
	}
	if err := e.Side.Validate(); err != nil {
		return err
	}
	if want := e.Side.Parallelism.Ranks(); len(e.Ranks) != want {
		return fmt.Errorf("%w: engine %s has %d ranks, %v has %d", ErrTerms, e.ID, len(e.Ranks), e.Side.Parallelism, want)
	}
	sizes := make(map[[2]int]int64) // ranks of one stage and tensor rank are alike
	for number, rank := range e.Ranks {
		at := e.Side.Parallelism.Rank(number)
		need, known := sizes[[2]int{at.PP, at.TP}]
		if !known {
			var err error
			if need, err = e.Side.MemoryBytes(number); err != nil {
				return err
			}
			sizes[[2]int{at.PP, at.TP}] = need
		}
		if err := rank.validate(uint64(need)); err != nil {
			return fmt.Errorf("%w: rank %d of engine %s: %w", ErrTerms, number, e.ID, err)
		}
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

// Members lists the agents that have ranks of e, in order.
func (e *Engine) Members() []Member {
	all := make([]Member, 0, len(e.Ranks))
	for i := range e.Ranks {
		all = append(all, e.Ranks[i].Agent)
	}
	slices.SortFunc(all, Member.Compare)
	return slices.Compact(all)
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

func (m Member) append(w *writer) {
	w.text(m.Name)
	w.id(m.Incarnation)
}

func (m *Member) parse(r *reader) { m.Name, m.Incarnation = r.text(maxName), r.id() }
