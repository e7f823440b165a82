package batch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// pile is a pool as plainly as it can be said.
type pile struct {
	references []int32
	keys       []kv.BlockKey
	free       []uint32 // the last is taken first
	cached     []uint32 // the first is taken first
}

func (p *pile) find(key kv.BlockKey) (uint32, bool) {
	i := slices.Index(p.keys, key)
	return uint32(max(i, 0)), i >= 0
}

func (p *pile) take() uint32 {
	var b uint32
	if n := len(p.free); n > 0 {
		b, p.free = p.free[n-1], p.free[:n-1]
	} else {
		b, p.cached = p.cached[0], p.cached[1:]
		p.keys[b] = kv.BlockKey{}
	}
	p.references[b] = 1
	return b
}

func (p *pile) release(b uint32) {
	if p.references[b]--; p.references[b] > 0 {
		return
	}
	if p.keys[b] != (kv.BlockKey{}) {
		p.cached = append(p.cached, b)
	} else {
		p.free = append(p.free, b)
	}
}

func (p *pile) share(b uint32) {
	p.references[b]++
	p.cached = slices.DeleteFunc(p.cached, func(other uint32) bool { return other == b })
}

func TestAPoolIsAPile(t *testing.T) {
	moreOf(t, "rapid.checks", "300")
	moreOf(t, "rapid.steps", "60")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "blocks")
		pool, plain := NewPool(n), &pile{references: make([]int32, n), keys: make([]kv.BlockKey, n)}
		for b := n - 1; b >= 0; b-- {
			plain.free = append(plain.free, uint32(b))
		}
		key := func() kv.BlockKey { return kv.BlockKey{byte(rapid.IntRange(1, 6).Draw(t, "key"))} }
		block := func(can func(b int) bool) (uint32, bool) {
			var list []uint32
			for b := range n {
				if can(b) {
					list = append(list, uint32(b))
				}
			}
			if len(list) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(list).Draw(t, "block"), true
		}
		used := func(b int) bool { return plain.references[b] > 0 }
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				if pool.Total() != n || pool.Free() != len(plain.free) || pool.Cached() != len(plain.cached) || pool.Available() != len(plain.free)+len(plain.cached) {
					t.Fatalf("of %d blocks %d are free, %d cached, %d available, want %d and %d", pool.Total(), pool.Free(), pool.Cached(), pool.Available(), len(plain.free), len(plain.cached))
				}
				for b := range uint32(n) {
					if pool.Idle(b) != (plain.references[b] == 0) || pool.Named(b) != (plain.keys[b] != kv.BlockKey{}) {
						t.Fatalf("block %d: idle %v, named %v, but it has %d references and key %v", b, pool.Idle(b), pool.Named(b), plain.references[b], plain.keys[b])
					}
				}
				for i := range 6 {
					k := kv.BlockKey{byte(i + 1)}
					got, there := pool.Find(k)
					if want, exists := plain.find(k); there != exists || there && got != want {
						t.Fatalf("key %d: block %d, %v, want %d, %v", i+1, got, there, want, exists)
					}
				}
			},
			"take": func(*rapid.T) {
				count := rapid.IntRange(0, pool.Available()).Draw(t, "count")
				want := []uint32{77}
				for range count {
					want = append(want, plain.take())
				}
				if got := pool.Take([]uint32{77}, count); !slices.Equal(got, want) {
					t.Fatalf("took %v, want %v", got, want)
				}
			},
			"share": func(*rapid.T) {
				if b, can := block(func(b int) bool { return used(b) || plain.keys[b] != kv.BlockKey{} }); can {
					pool.Share(b)
					plain.share(b)
				}
			},
			"name": func(*rapid.T) {
				if b, can := block(used); can {
					k := key()
					pool.Name(b, k)
					if _, taken := plain.find(k); !taken && plain.keys[b] == (kv.BlockKey{}) {
						plain.keys[b] = k
					}
				}
			},
			"release": func(*rapid.T) {
				if b, can := block(used); can {
					pool.Release(b)
					plain.release(b)
				}
			},
			"release all": func(*rapid.T) {
				var list []uint32
				for b := range uint32(n) {
					if used(int(b)) && rapid.Bool().Draw(t, "this") {
						list = append(list, b)
					}
				}
				pool.ReleaseAll(list)
				for _, b := range slices.Backward(list) {
					plain.release(b)
				}
			},
		})
	})
}

func TestABlockIsNotReleasedTwice(t *testing.T) {
	p := NewPool(2)
	b := p.Take(nil, 1)
	p.ReleaseAll(b)
	defer func() {
		if recover() == nil {
			t.Error("a block was released twice, and the pool did not notice")
		}
	}()
	p.Release(b[0])
}
