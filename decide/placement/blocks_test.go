package placement

import (
	"testing"

	"pgregory.net/rapid"
)

func ids(n int, from uint32) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = from + uint32(i)
	}
	return tokens
}

func name(n uint64) *uint64 { return &n }

func TestBlocksFollowAnEngine(t *testing.T) {
	b := NewBlocks(100)
	prompt := ids(64, 0)
	held := func(s Scope) int { return b.Held(OfBlocks(s, prompt, 16)) }
	b.Store(NewlyStored{Names: []uint64{11, 12}, Tokens: prompt[:32]})
	if got := held(Scope{}); got != 2 {
		t.Fatalf("%d blocks are held of 2", got)
	}
	b.Store(NewlyStored{Names: []uint64{13}, Parent: name(12), Tokens: prompt[32:48], Medium: "GPU"})
	b.Store(NewlyStored{Names: []uint64{13}, Parent: name(12), Tokens: prompt[32:48], Medium: "CPU"})
	if got := held(Scope{}); got != 3 {
		t.Fatalf("%d blocks are held of 3", got)
	}
	if got := b.Held(OfBlocks(Scope{}, prompt, 32)); got != 0 {
		t.Errorf("%d blocks of another size are held", got)
	}
	for _, other := range []Scope{{Adapter: "a"}, {Salt: "a"}} {
		if got := held(other); got != 0 {
			t.Errorf("%+v finds %d blocks of another scope", other, got)
		}
	}
	b.Remove([]uint64{13}, "GPU", 0)
	if got := held(Scope{}); got != 3 {
		t.Errorf("what is in the host's memory still counts: %d of 3", got)
	}
	b.Remove([]uint64{13}, "CPU", 0)
	b.Remove([]uint64{11, 99}, "GPU", 0)
	if got := held(Scope{}); got != 0 {
		t.Errorf("%d blocks are held after the first was given up", got)
	}
	b.Store(NewlyStored{Names: []uint64{11}, Tokens: prompt[:16]})
	if got := held(Scope{}); got != 2 {
		t.Errorf("%d blocks are held when the first is back, want 2", got)
	}
	b.Clear()
	if got := held(Scope{}); got != 0 || b.Count().Known != 0 {
		t.Errorf("%d blocks are held of nothing", got)
	}
}

// Images are in no request's chain, and what stands on them is not either.
func TestBlocksOfOthers(t *testing.T) {
	b := NewBlocks(100)
	prompt := ids(48, 0)
	b.Store(NewlyStored{Names: []uint64{1, 2}, Tokens: prompt[:32], Others: [][]byte{nil, []byte("image")}})
	b.Store(NewlyStored{Names: []uint64{3}, Parent: name(2), Tokens: prompt[32:]})
	if got := b.Held(OfBlocks(Scope{}, prompt, 16)); got != 1 || b.Count().Known != 3 {
		t.Errorf("%d held, %+v", got, b.Count())
	}
}

func TestBlocksWithoutParents(t *testing.T) {
	b := NewBlocks(2)
	b.Store(NewlyStored{Names: []uint64{5, 6}, Parent: name(4), Tokens: ids(32, 0)})
	if c := b.Count(); c.Known != 0 || c.Orphans != 2 {
		t.Errorf("%+v", c)
	}
	b.Store(NewlyStored{Names: []uint64{1, 2, 3}, Tokens: ids(48, 0)})
	if c := b.Count(); c.Known != 2 || c.Overflow != 1 {
		t.Errorf("%+v", c)
	}
}

// Of several groups of layers one is followed, of those that attend to all.
func TestBlocksOfGroups(t *testing.T) {
	b := NewBlocks(100)
	prompt := ids(32, 0)
	b.Store(NewlyStored{Names: []uint64{1}, Tokens: prompt[:16], Group: 0, Partly: true})
	b.Store(NewlyStored{Names: []uint64{1, 2}, Tokens: prompt, Group: 1})
	b.Store(NewlyStored{Names: []uint64{1, 2}, Tokens: prompt, Group: 2})
	b.Remove([]uint64{1}, "GPU", 0)
	b.Remove([]uint64{2}, "GPU", 2)
	if got := b.Held(OfBlocks(Scope{}, prompt, 16)); got != 2 {
		t.Errorf("%d of 2 are held", got)
	}
}

// Parts of blocks, as engines may cache them, are not taken for blocks.
func TestPartsOfBlocks(t *testing.T) {
	b := NewBlocks(100)
	prompt := ids(37, 0)
	b.Store(NewlyStored{Names: []uint64{9}, Tokens: prompt[:5]})
	b.Store(NewlyStored{Names: []uint64{1, 2}, Tokens: prompt[:32]})
	b.Store(NewlyStored{Names: []uint64{3}, Parent: name(2), Tokens: prompt[32:]})
	if got := b.Held(OfBlocks(Scope{}, prompt, 16)); got != 2 || b.Count().Known != 2 || b.BlockTokens() != 16 {
		t.Errorf("%d held, %+v, blocks of %d", got, b.Count(), b.BlockTokens())
	}
}

// sequence is a prompt in the model of a cache: a path in a tree of blocks.
type sequence struct {
	blocks []uint32 // one number stands for the tokens of a block
}

func (s sequence) tokens(size int) []uint32 {
	var tokens []uint32
	for _, b := range s.blocks {
		tokens = append(tokens, ids(size, b*1000)...)
	}
	return tokens
}

func (s sequence) key(n int) string {
	var key []byte
	for _, b := range s.blocks[:n] {
		key = append(key, byte(b))
	}
	return string(key)
}

// Whatever an engine stores and gives up, what is held of a prompt is its
// longest beginning of which every block is there.
func TestBlocksAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 16, 32}).Draw(t, "size")
		someSequence := rapid.Custom(func(t *rapid.T) sequence {
			return sequence{rapid.SliceOfN(rapid.Uint32Range(0, 2), 1, 5).Draw(t, "blocks")}
		})
		b := NewBlocks(10_000)
		names := make(map[string]uint64) // what the engine calls the block at the end of a path
		there := make(map[string]bool)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			s := someSequence.Draw(t, "sequence")
			n := rapid.IntRange(1, len(s.blocks)).Draw(t, "n")
			key := s.key(n)
			if there[key] && rapid.Bool().Draw(t, "give up") {
				b.Remove([]uint64{names[key]}, "GPU", 0)
				delete(there, key)
				continue
			}
			parent := (*uint64)(nil)
			if n > 1 {
				if !there[s.key(n-1)] {
					continue // an engine stores nothing after what it does not have
				}
				parent = name(names[s.key(n-1)])
			}
			if names[key] == 0 {
				names[key] = uint64(len(names) + 1)
			}
			b.Store(NewlyStored{Names: []uint64{names[key]}, Parent: parent, Tokens: sequence{s.blocks[n-1 : n]}.tokens(size)})
			there[key] = true
		}
		s := someSequence.Draw(t, "prompt")
		want := 0
		for want < len(s.blocks) && there[s.key(want+1)] {
			want++
		}
		if len(there) > 0 || b.BlockTokens() != 0 {
			if got := b.Held(OfBlocks(Scope{}, s.tokens(size), size)); got != want {
				t.Fatalf("%d blocks are held of %v, want %d", got, s.blocks, want)
			}
		}
		if b.Count().Known != len(there) {
			t.Fatalf("%d blocks are known, and %d there", b.Count().Known, len(there))
		}
	})
}
