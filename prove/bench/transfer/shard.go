package transfer

import (
	"encoding/binary"
	"fmt"

	"meridian/kv"
)

// vector is the K, the V or the latent of one token in one head and layer.
type vector struct{ request, layer, part, head, token int }

// word is what belongs at one word of a vector. It depends on where in the model
// the vector belongs, not on where in memory it lies.
func (v vector) word(i int) uint64 {
	h := uint64(v.request)
	for _, place := range [...]int{v.layer, v.part, v.head, v.token, i} {
		h = (h ^ uint64(place)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h | 1 // never what a cleared destination holds
}

// each visits every vector of every request in all ranks, also those behind the
// last token of a request's last block. It places them by the layout alone,
// apart from the planner: a direct shard of the whole cache.
func (e *engine) each(visit func(v vector, at []byte) error) error {
	s := &e.side
	layer, size := s.Geometry.Layers[0], s.Geometry.DType.Bytes()
	for number, arena := range e.ranks {
		rank := s.Parallelism.Rank(number)
		first, end := s.Parallelism.Layers(rank.PP)
		firstHead, endHead := s.Parallelism.Heads(rank.TP, layer.KVHeads)
		strides, err := s.Layout.Strides(kv.Extents{
			Layers: end - first, Blocks: s.Blocks, Parts: layer.Factor(), Heads: endHead - firstHead,
			Tokens: s.BlockTokens, Elements: layer.HeadDim,
		})
		if err != nil {
			return err
		}
		bytes := arena.Bytes(0, arena.Size())
		place := func(v vector) error {
			at := size * int(strides.Offset(kv.Point{
				Layers: v.layer - first, Blocks: int(e.tables[v.request][v.token/s.BlockTokens]), Parts: v.part, Heads: v.head - firstHead,
				Tokens: v.token % s.BlockTokens,
			}))
			return visit(v, bytes[at:at+size*layer.HeadDim])
		}
		for request, table := range e.tables {
			for i := first; i < end; i++ {
				if err := eachOf(layer.Factor(), firstHead, endHead, len(table)*s.BlockTokens, func(part, head, token int) error {
					return place(vector{request, i, part, head, token})
				}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func eachOf(parts, firstHead, endHead, tokens int, visit func(part, head, token int) error) error {
	for token := range tokens {
		for head := firstHead; head < endHead; head++ {
			for part := range parts {
				if err := visit(part, head, token); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fill writes what belongs into an engine.
func (e *engine) fill() error {
	return e.each(func(v vector, at []byte) error {
		for i := 0; i < len(at); i += wordBytes {
			binary.LittleEndian.PutUint64(at[i:], v.word(i))
		}
		return nil
	})
}

// clear leaves nothing in the blocks of requests.
func (e *engine) clear() error {
	return e.each(func(_ vector, at []byte) error {
		clear(at)
		return nil
	})
}

// check compares all there is with what belongs there; behind the last token is
// nothing.
func (e *engine) check() error {
	return e.each(func(v vector, at []byte) error {
		for i := 0; i < len(at); i += wordBytes {
			want := v.word(i)
			if v.token >= e.errand.Tokens {
				want = 0
			}
			if got := binary.LittleEndian.Uint64(at[i:]); got != want {
				return fmt.Errorf("%w: request %d, layer %d, part %d, head %d, token %d, byte %d: found %#x, want %#x",
					ErrContents, v.request, v.layer, v.part, v.head, v.token, i, got, want)
			}
		}
		return nil
	})
}
