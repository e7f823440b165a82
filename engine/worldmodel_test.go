package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"meridian/engine/model"
	"meridian/kv"
)

// hashModel takes the place of a model where a world has many steps: its KV of a token is a
// hash of all tokens up to it, its logits are one of the KV of all positions. Who computes
// on a block that holds something else, or on one that another writes, says something else.
type hashModel struct {
	memory  []byte
	strides kv.Strides
	cut     model.Cut
	points  [2]kv.Point // where the KV of a token is looked at, in its block
	// took is how long a step of so many tokens takes; nil: no time.
	took func(tokens int) time.Duration
}

func newHashModel(e *Engine) (*hashModel, error) {
	c := e.source.model.Config()
	all := kv.Extents{Layers: c.Layers, Blocks: e.cut.Blocks, Parts: 2, Heads: c.KVHeads, Tokens: e.cut.BlockTokens, Elements: c.HeadDim}
	strides, err := e.cut.Layout.Strides(all)
	if err != nil || len(e.arenas) != 1 {
		return nil, fmt.Errorf("%d ranks: %w", len(e.arenas), err)
	}
	return &hashModel{
		memory: e.arenas[0].Bytes(0, uint64(e.cut.MemoryBytes(c, 0))), strides: strides, cut: e.cut,
		points: [2]kv.Point{{}, {Layers: c.Layers - 1, Parts: 1, Heads: c.KVHeads - 1, Elements: c.HeadDim - 2}},
	}, nil
}

func (m *hashModel) at(blocks []uint32, position, point int) []byte {
	p := m.points[point]
	p.Blocks, p.Tokens = int(blocks[position/m.cut.BlockTokens]), position%m.cut.BlockTokens
	offset := 4 * m.strides.Offset(p)
	return m.memory[offset : offset+8]
}

// Step computes as a model does, and refuses what no model could compute.
func (m *hashModel) Step(batch []model.Slice) error {
	writes, tokens := make(map[uint32]int), 0
	for i, s := range batch {
		tokens += len(s.Tokens)
		for position := s.Start; position < s.Start+len(s.Tokens); position++ {
			b := s.Blocks[position/m.cut.BlockTokens]
			if other, written := writes[b]; written && other != i {
				return fmt.Errorf("block %d is written by two slices of a step", b)
			}
			writes[b] = i
		}
	}
	for i, s := range batch {
		for _, b := range s.Blocks[:(s.Start+len(s.Tokens)-1)/m.cut.BlockTokens] {
			if other, written := writes[b]; written && other != i {
				return fmt.Errorf("block %d is written while another slice reads it", b)
			}
		}
	}
	if m.took != nil {
		time.Sleep(m.took(tokens))
	}
	for _, s := range batch {
		m.compute(&s)
	}
	return nil
}

func (m *hashModel) compute(s *model.Slice) {
	for i, token := range s.Tokens {
		position, before := s.Start+i, uint64(1)
		if position > 0 {
			before = binary.LittleEndian.Uint64(m.at(s.Blocks, position-1, 0))
		}
		for point := range m.points {
			binary.LittleEndian.PutUint64(m.at(s.Blocks, position, point), scatter(before, uint64(token)))
		}
	}
	if s.Logits == nil {
		return
	}
	all := uint64(0)
	for position := range s.Start + len(s.Tokens) {
		for point := range m.points {
			all = scatter(all, binary.LittleEndian.Uint64(m.at(s.Blocks, position, point)))
		}
	}
	sharp := float64(all%7) / 4
	for i := range s.Logits {
		s.Logits[i] = float32(sharp * math.Sqrt(float64(scatter(all, uint64(i))%64)))
	}
}

// scatter mixes two numbers into one that looks like neither.
func scatter(a, b uint64) uint64 {
	h := (a ^ b*0x9E3779B97F4A7C15) + 0xD1B54A32D192ED03
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}
