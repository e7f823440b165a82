package placement

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Blocks is what an engine's cache holds, as the engine itself tells. An engine
// names blocks as it likes; here they go by what they are of, so that a prompt
// is found in the caches of all engines by one chain of hashes. It is bounded,
// and for one goroutine at a time.
type Blocks struct {
	limit       int
	blockTokens int
	byName      map[uint64]stored
	held        map[uint64]int32 // how many names a hash has
	group       int              // the one that is followed
	hasGroup    bool
	strange     map[int]bool // groups that do not attend to everything
	orphans     uint64
	overflow    uint64
}

type stored struct {
	hash  uint64
	media uint8
}

// NewBlocks holds at most limit blocks; what comes beyond is not remembered.
func NewBlocks(limit int) *Blocks {
	b := &Blocks{limit: max(limit, 1)}
	b.Clear()
	return b
}

// Scope keeps caches of one engine apart.
type Scope struct {
	Adapter string // LoRA
	Salt    string
}

// root is what a sequence's first block stands on.
func (s Scope) root() uint64 {
	text := binary.AppendUvarint(nil, uint64(len(s.Adapter)))
	return xxh3.HashSeed(append(append(text, s.Adapter...), s.Salt...), blockRoot)
}

// OfBlocks is the chain of a prompt as an engine with blocks of that size caches
// it.
func OfBlocks(s Scope, tokens []uint32, blockTokens int) Prefix {
	p := Prefix{TokensPerHash: blockTokens}
	if blockTokens < 1 {
		return p
	}
	var buffer []byte
	for parent := s.root(); len(tokens) >= blockTokens; tokens = tokens[blockTokens:] {
		parent, buffer = chained(parent, tokens[:blockTokens], nil, buffer)
		p.Hashes = append(p.Hashes, parent)
	}
	return p
}

// chained is the hash of a block after its parent; others is what it is of
// besides tokens.
func chained(parent uint64, tokens []uint32, others, buffer []byte) (uint64, []byte) {
	buffer = buffer[:0]
	for _, id := range tokens {
		buffer = binary.LittleEndian.AppendUint32(buffer, id)
	}
	return xxh3.HashSeed(append(buffer, others...), parent), buffer
}

// NewlyStored is what an engine says of blocks that it stored, one after the
// other.
type NewlyStored struct {
	Scope  Scope // of a sequence's first block; later ones are in their parent's
	Names  []uint64
	Parent *uint64 // nil for the first of a sequence
	Tokens []uint32
	Others [][]byte // of each block, or nil
	Medium string
	Group  int
	// Partly: the group's layers do not attend to all that came before, so that
	// its blocks say little about what a prompt can be spared.
	Partly bool
}

// Store takes in what an engine says. Blocks whose parent it never spoke of
// cannot be placed, and are left out.
func (b *Blocks) Store(n NewlyStored) {
	if len(n.Names) == 0 || !b.follows(n) {
		return
	}
	size := len(n.Tokens) / len(n.Names)
	switch {
	case size > b.blockTokens: // what came before were parts of blocks
		b.forget()
		b.blockTokens = size
	case size < b.blockTokens:
		return
	}
	parent := n.Scope.root()
	if n.Parent != nil {
		p, has := b.byName[*n.Parent]
		if !has {
			b.orphans += uint64(len(n.Names))
			return
		}
		parent = p.hash
	}
	var buffer, others []byte
	for i, name := range n.Names {
		if n.Others != nil {
			others = n.Others[i]
		}
		parent, buffer = chained(parent, n.Tokens[i*size:(i+1)*size], others, buffer)
		b.put(name, parent, medium(n.Medium))
	}
}

// maxGroups bounds how many groups of layers are told apart; models have a few.
const maxGroups = 1024

// follows picks one group of layers that attend to everything, and ignores the
// others: all of them cache the same prompts.
func (b *Blocks) follows(n NewlyStored) bool {
	if n.Partly && len(b.strange) < maxGroups {
		b.strange[n.Group] = true
	}
	if n.Partly {
		return false
	}
	if b.strange[n.Group] {
		return false
	}
	if !b.hasGroup {
		b.group, b.hasGroup = n.Group, true
	}
	return n.Group == b.group
}

func (b *Blocks) put(name, hash uint64, in uint8) {
	s, has := b.byName[name]
	switch {
	case has && s.hash == hash:
		s.media |= in
	case has: // another block has taken the name
		b.drop(name, s)
		s = stored{hash, in}
		b.held[hash]++
	case len(b.byName) >= b.limit:
		b.overflow++
		return
	default:
		s = stored{hash, in}
		b.held[hash]++
	}
	b.byName[name] = s
}

func (b *Blocks) drop(name uint64, s stored) {
	delete(b.byName, name)
	if b.held[s.hash]--; b.held[s.hash] == 0 {
		delete(b.held, s.hash)
	}
}

// medium is a bit: an engine may have a block in its GPU's memory, in the host's
// and on disk at once.
func medium(name string) uint8 {
	switch name {
	case "", "GPU":
		return 1
	case "CPU":
		return 2
	}
	return 4
}

// Remove takes in that blocks were given up, in one medium.
func (b *Blocks) Remove(names []uint64, from string, group int) {
	if b.hasGroup && group != b.group {
		return
	}
	for _, name := range names {
		s, has := b.byName[name]
		if !has {
			continue
		}
		if s.media &^= medium(from); s.media != 0 {
			b.byName[name] = s
			continue
		}
		b.drop(name, s)
	}
}

// Clear takes in that nothing is left, or nothing is known.
func (b *Blocks) Clear() {
	b.forget()
	b.blockTokens, b.hasGroup, b.strange = 0, false, make(map[int]bool)
}

func (b *Blocks) forget() {
	b.byName, b.held = make(map[uint64]stored), make(map[uint64]int32)
}

// BlockTokens is how many tokens a block holds, 0 while that is not known.
func (b *Blocks) BlockTokens() int { return b.blockTokens }

// Held is how many leading hashes of p are there. A block is of use only after
// everything before it.
func (b *Blocks) Held(p Prefix) int {
	if p.TokensPerHash != b.blockTokens {
		return 0
	}
	for i, hash := range p.Hashes {
		if b.held[hash] == 0 {
			return i
		}
	}
	return len(p.Hashes)
}

// BlockCount counts an engine's blocks.
type BlockCount struct {
	Known int
	// Orphans came after a parent that was never told of, Overflow after the
	// limit was reached.
	Orphans, Overflow uint64
}

// Count is for pages and metrics.
func (b *Blocks) Count() BlockCount { return BlockCount{len(b.byName), b.orphans, b.overflow} }
