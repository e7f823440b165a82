package model

import (
	"fmt"

	"meridian/kv"
)

// Cut is how a model is divided over ranks, and how each rank's KV lies in its
// memory: one dense grid of fp32 elements, little-endian, in the order that
// Layout names, over the rank's layers and KV heads.
type Cut struct {
	Parallelism kv.Parallelism
	Layout      kv.Layout
	BlockTokens int
	Blocks      int
}

const (
	maxBlockTokens = 1 << 20
	maxBlocks      = 1 << 32
)

// Validate says why c cannot cut a model.
func (c Cut) Validate(model Config) error {
	if err := c.Parallelism.Validate(model.Layers); err != nil {
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	switch p := c.Parallelism; {
	case p.CP != 1 || p.DP != 1:
		return fmt.Errorf("%w: context parallelism %d and attention DP %d, but this engine has tensor and pipeline parallelism only", ErrCut, p.CP, p.DP)
	case model.KVHeads%p.TP != 0:
		return fmt.Errorf("%w: TP %d does not divide %d KV heads: use one of their divisors", ErrCut, p.TP, model.KVHeads)
	case !c.Layout.Valid():
		return fmt.Errorf("%w: no layout given", ErrCut)
	case c.BlockTokens < 1 || c.BlockTokens > maxBlockTokens:
		return fmt.Errorf("%w: %d tokens in a block, must be 1…%d", ErrCut, c.BlockTokens, maxBlockTokens)
	case c.Blocks < 1 || c.Blocks > maxBlocks:
		return fmt.Errorf("%w: %d blocks, must be 1…%d", ErrCut, c.Blocks, maxBlocks)
	}
	return nil
}

// strides returns how a rank's memory lies, in elements.
func (c Cut) strides(model Config, rank int) (kv.Strides, error) {
	if err := c.Validate(model); err != nil {
		return kv.Strides{}, err
	}
	if rank < 0 || rank >= c.Parallelism.Ranks() {
		return kv.Strides{}, fmt.Errorf("%w: rank %d of %d", ErrCut, rank, c.Parallelism.Ranks())
	}
	r := c.Parallelism.Rank(rank)
	firstHead, endHead := c.Parallelism.Heads(r.TP, model.KVHeads)
	strides, err := c.Layout.Strides(kv.Extents{
		Layers: c.Parallelism.Stages[r.PP], Blocks: c.Blocks, Parts: 2,
		Heads: endHead - firstHead, Tokens: c.BlockTokens, Elements: model.HeadDim,
	})
	if err == nil && strides.Total > 1<<60 {
		err = fmt.Errorf("%w: %d blocks of %d tokens are more than any memory", ErrCut, c.Blocks, c.BlockTokens)
	}
	return strides, err
}

// MemoryBytes is the size of a rank's KV memory, or 0 for a cut that Validate
// refuses.
func (c Cut) MemoryBytes(model Config, rank int) int64 {
	strides, err := c.strides(model, rank)
	if err != nil {
		return 0
	}
	return strides.Total * int64(kv.Float32.Bytes())
}
