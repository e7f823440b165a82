package batch

import "meridian/kv"

// Pool is the blocks of KV memory. A block is free, cached (no sequence uses it, but
// it holds the tokens that its key names) or used, by as many as it has
// references. Cached blocks go least recently used first when others are needed.
//
//	free ──Take──► used ──Release──► free, or cached once it has a key
//	 ▲              ▲ └──Share: one more reference
//	 └─ evicted ────┴── cached ◄── Release
type Pool struct {
	references []int32
	keys       []kv.BlockKey // of blocks that byKey names
	byKey      map[kv.BlockKey]uint32
	free       []uint32
	// Cached blocks are a ring through a sentinel, the least recently used first.
	next, prev []uint32
	cached     int
}

// NewPool has so many blocks, all free.
func NewPool(blocks int) *Pool {
	p := &Pool{
		references: make([]int32, blocks), keys: make([]kv.BlockKey, blocks), byKey: make(map[kv.BlockKey]uint32),
		free: make([]uint32, blocks), next: make([]uint32, blocks+1), prev: make([]uint32, blocks+1),
	}
	for i := range p.free {
		p.free[i] = uint32(blocks - 1 - i)
	}
	p.next[blocks], p.prev[blocks] = uint32(blocks), uint32(blocks)
	return p
}

// Total is the number of blocks.
func (p *Pool) Total() int { return len(p.references) }

// Free is how many hold nothing.
func (p *Pool) Free() int { return len(p.free) }

// Cached is how many no sequence uses, but could be found again.
func (p *Pool) Cached() int { return p.cached }

// Available is how many can be taken.
func (p *Pool) Available() int { return len(p.free) + p.cached }

// Idle reports whether no sequence uses a block.
func (p *Pool) Idle(block uint32) bool { return p.references[block] == 0 }

// Take appends n blocks, if n is positive, with one reference each. There must be so
// many available.
func (p *Pool) Take(blocks []uint32, n int) []uint32 {
	for range n {
		var b uint32
		if last := len(p.free) - 1; last >= 0 {
			b, p.free = p.free[last], p.free[:last]
		} else {
			b = p.next[p.sentinel()]
			p.unlink(b)
			delete(p.byKey, p.keys[b])
			p.keys[b] = kv.BlockKey{}
		}
		p.references[b] = 1
		blocks = append(blocks, b)
	}
	return blocks
}

// Find returns the block that holds what key names.
func (p *Pool) Find(key kv.BlockKey) (uint32, bool) {
	b, found := p.byKey[key]
	return b, found
}

// Share adds a reference to a block that is used or cached.
func (p *Pool) Share(b uint32) {
	if p.references[b] == 0 {
		p.unlink(b)
	}
	p.references[b]++
}

// Name says what a used block holds from now on: it is not written any more.
// If another block holds the same, that one stays the one to be found.
func (p *Pool) Name(b uint32, key kv.BlockKey) {
	if _, taken := p.byKey[key]; !taken && p.keys[b] == (kv.BlockKey{}) {
		p.byKey[key], p.keys[b] = b, key
	}
}

// Named reports whether a block can be found by its key.
func (p *Pool) Named(b uint32) bool { return p.keys[b] != kv.BlockKey{} }

// Release gives a reference back.
func (p *Pool) Release(b uint32) {
	switch p.references[b]--; {
	case p.references[b] < 0:
		panic("batch: a block was released more often than it was taken")
	case p.references[b] > 0:
	case p.Named(b):
		last := p.prev[p.sentinel()]
		p.next[last], p.prev[b] = b, last
		p.next[b], p.prev[p.sentinel()] = p.sentinel(), b
		p.cached++
	default:
		p.free = append(p.free, b)
	}
}

// ReleaseAll gives back one reference of each, the last block first: the end of
// a text is worth less than its beginning, which others may share.
func (p *Pool) ReleaseAll(blocks []uint32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		p.Release(blocks[i])
	}
}

func (p *Pool) sentinel() uint32 { return uint32(len(p.references)) }

func (p *Pool) unlink(b uint32) {
	p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b]
	p.cached--
}
