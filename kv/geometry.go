package kv

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrShape is wrapped by every error about a geometry, layout or parallelism
// that cannot exist or does not fit in 63 bits.
var ErrShape = errors.New("kv: impossible shape")

// Attention is the kind of attention a layer's cache serves.
type Attention uint8

const (
	// KeyValue attention keeps a K and a V vector per KV head (MHA, GQA, MQA).
	KeyValue Attention = iota
	// Latent attention (MLA) keeps one compressed vector for all heads.
	Latent
)

var attentionNames = [...]string{KeyValue: "key_value", Latent: "latent"}

func (a Attention) String() string {
	if int(a) >= len(attentionNames) {
		return fmt.Sprintf("attention(%d)", uint8(a))
	}
	return attentionNames[a]
}

// Layer is the cache of one transformer layer for the whole model, before any
// cut over ranks. It is comparable: layers that are equal form a group.
type Layer struct {
	Attention Attention
	// KVHeads is the number of K/V heads; a Latent layer has exactly one.
	KVHeads int
	// HeadDim is the number of elements of one K (or V, or latent) vector. For
	// MLA this is the latent rank plus the shared rotary part, e.g. 512+64.
	HeadDim int
	// WindowTokens is how far back a sliding-window layer attends; 0 means all.
	WindowTokens int
	// IndexBytes is the size of the vector that a sparse-attention indexer keeps
	// of each token beside the layer's cache, in a type of its own; 0 means none.
	IndexBytes int
}

// Factor is the number of vectors a head keeps per token: 2 for K and V, 1 for
// an MLA latent.
func (l Layer) Factor() int {
	if l.Attention == Latent {
		return 1
	}
	return 2
}

// bytesPerToken has no overflow check: Geometry.Validate bounds the factors.
func (l Layer) bytesPerToken(dtype DType) int64 {
	return int64(l.Factor())*int64(l.KVHeads)*int64(l.HeadDim)*int64(dtype.Bytes()) + int64(l.IndexBytes)
}

// LiveTokens returns the positions a decoder still needs at a context of
// contextTokens: all of them, or the tail that the sliding window can see.
func (l Layer) LiveTokens(contextTokens int) TokenRange {
	if l.WindowTokens == 0 || contextTokens <= l.WindowTokens {
		return TokenRange{Start: 0, End: contextTokens}
	}
	return TokenRange{Start: contextTokens - l.WindowTokens, End: contextTokens}
}

// Geometry is what one token's KV cache is made of.
type Geometry struct {
	DType  DType
	Layers []Layer
}

// Uniform returns a geometry of count equal layers, as most models have.
func Uniform(count int, layer Layer, dtype DType) Geometry {
	layers := make([]Layer, max(0, count))
	for i := range layers {
		layers[i] = layer
	}
	return Geometry{DType: dtype, Layers: layers}
}

// Group is the layers of a geometry that have the same shape. Engines keep one
// block pool per group.
type Group struct {
	Layer
	Indices []int
}

// Groups returns the groups in order of their first layer.
func (g Geometry) Groups() []Group {
	var groups []Group
	at := make(map[Layer]int)
	k := 0
	for i, layer := range g.Layers {
		if i == 0 || layer != g.Layers[i-1] { // most layers are like the one before
			var seen bool
			if k, seen = at[layer]; !seen {
				k = len(groups)
				at[layer] = k
				groups = append(groups, Group{Layer: layer})
			}
		}
		groups[k].Indices = append(groups[k].Indices, i)
	}
	return groups
}

// Limits that no real model reaches. They keep a token's bytes at about 2^51, so
// that only a product with a caller's token count needs an overflow check.
const (
	maxLayers     = 1 << 14
	maxKVHeads    = 1 << 14
	maxHeadDim    = 1 << 20
	maxIndexBytes = 1 << 20
)

// Validate says what is impossible about g.
func (g Geometry) Validate() error {
	if g.DType.Bytes() == 0 {
		return fmt.Errorf("%w: dtype %v has no size", ErrShape, g.DType)
	}
	if len(g.Layers) == 0 || len(g.Layers) > maxLayers {
		return fmt.Errorf("%w: %d layers, must be 1…%d", ErrShape, len(g.Layers), maxLayers)
	}
	for i, l := range g.Layers {
		switch {
		case l.Attention > Latent:
			return fmt.Errorf("%w: layer %d: unknown attention kind %d", ErrShape, i, l.Attention)
		case l.KVHeads < 1 || l.KVHeads > maxKVHeads:
			return fmt.Errorf("%w: layer %d: %d KV heads, must be 1…%d", ErrShape, i, l.KVHeads, maxKVHeads)
		case l.Attention == Latent && l.KVHeads != 1:
			return fmt.Errorf("%w: layer %d: an MLA layer has one latent, not %d heads", ErrShape, i, l.KVHeads)
		case l.HeadDim < 1 || l.HeadDim > maxHeadDim:
			return fmt.Errorf("%w: layer %d: head dim %d, must be 1…%d", ErrShape, i, l.HeadDim, maxHeadDim)
		case l.WindowTokens < 0:
			return fmt.Errorf("%w: layer %d: window of %d tokens", ErrShape, i, l.WindowTokens)
		case l.IndexBytes < 0 || l.IndexBytes > maxIndexBytes:
			return fmt.Errorf("%w: layer %d: indexer of %d bytes a token, must be 0…%d", ErrShape, i, l.IndexBytes, maxIndexBytes)
		}
	}
	return nil
}

// BytesPerToken is the size of one token's cache over all layers and heads. g
// must be valid.
func (g Geometry) BytesPerToken() int64 {
	var total int64
	for _, l := range g.Layers {
		total += l.bytesPerToken(g.DType)
	}
	return total
}

// BytesPerBlock is the size of a block of blockTokens tokens over all layers.
func (g Geometry) BytesPerBlock(blockTokens int) (int64, error) {
	return g.bytesFor(blockTokens, g.BytesPerToken())
}

// BytesForContext is the least memory a request of contextTokens tokens needs:
// sliding-window layers keep only what they can still see.
func (g Geometry) BytesForContext(contextTokens int) (int64, error) {
	var total int64
	for _, l := range g.Layers {
		part, err := g.bytesFor(l.LiveTokens(contextTokens).Len(), l.bytesPerToken(g.DType))
		if err != nil {
			return 0, err
		}
		if total > math.MaxInt64-part {
			return 0, fmt.Errorf("%w: %d tokens need more than 2^63 bytes", ErrShape, contextTokens)
		}
		total += part
	}
	return total, nil
}

func (g Geometry) bytesFor(tokens int, bytesPerToken int64) (int64, error) {
	if tokens < 0 {
		return 0, fmt.Errorf("%w: %d tokens", ErrShape, tokens)
	}
	product, ok := multiply(int64(tokens), bytesPerToken)
	if !ok {
		return 0, fmt.Errorf("%w: %d tokens of %d bytes overflow 63 bits", ErrShape, tokens, bytesPerToken)
	}
	return product, nil
}

// multiply returns a×b for non-negative factors, or false on overflow.
func multiply(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	return int64(lo), true
}
