package model

import (
	"errors"
	"fmt"
	"math"

	"meridian/kv"
)

// The room's errors, each wrapped with what was wrong, where, and what to do.
var (
	// ErrConfig is about a model that this room cannot compute.
	ErrConfig = errors.New("model: unsupported configuration")
	// ErrFile is about a file of a model that is missing, damaged or not what
	// the configuration says.
	ErrFile = errors.New("model: bad model file")
	// ErrCut is about ranks and memory that do not fit the model.
	ErrCut = errors.New("model: the cut does not fit")
	// ErrBatch is about a step that cannot be computed. Nothing of it was.
	ErrBatch = errors.New("model: impossible step")
)

// Config is the shape of a model, and what its tokens mean.
type Config struct {
	Vocab, Hidden, Intermediate, Layers int
	Heads, KVHeads, HeadDim             int
	NormEpsilon                         float32
	// HeadNorms: queries and keys are normalised head by head, as Qwen3 does.
	HeadNorms bool
	// Tied: the embedding is the output projection, too.
	Tied    bool
	Context int
	RoPE    RoPE
	// BOS is the token a text begins with, or -1.
	BOS        int
	EOS        []uint32
	Suppressed []uint32
}

// Limits that keep sizes within what can be multiplied and allocated.
const (
	maxVocab   = 1 << 22
	maxWidth   = 1 << 20
	maxLayers  = 1 << 12
	maxContext = 1 << 24
)

// Validate says what is impossible about c.
func (c Config) Validate() error {
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"vocabulary", c.Vocab, maxVocab},
		{"hidden size", c.Hidden, maxWidth},
		{"intermediate size", c.Intermediate, maxWidth},
		{"number of layers", c.Layers, maxLayers},
		{"number of heads", c.Heads, maxWidth},
		{"number of KV heads", c.KVHeads, maxWidth},
		{"head dimension", c.HeadDim, maxWidth},
		{"context", c.Context, maxContext},
	} {
		if f.value < 1 || f.value > f.most {
			return fmt.Errorf("%w: %s is %d, must be 1…%d", ErrConfig, f.name, f.value, f.most)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%w: %d heads cannot share %d KV heads evenly", ErrConfig, c.Heads, c.KVHeads)
	case c.Heads*c.HeadDim > maxWidth:
		return fmt.Errorf("%w: %d heads of %d elements, at most %d in all", ErrConfig, c.Heads, c.HeadDim, maxWidth)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("%w: head dimension %d is odd, and rotary embeddings turn pairs", ErrConfig, c.HeadDim)
	case !(c.NormEpsilon >= 0) || math.IsInf(float64(c.NormEpsilon), 0):
		return fmt.Errorf("%w: norm epsilon %v", ErrConfig, c.NormEpsilon)
	case c.BOS >= c.Vocab:
		return fmt.Errorf("%w: BOS token %d of a vocabulary of %d", ErrConfig, c.BOS, c.Vocab)
	}
	for _, id := range c.EOS {
		if int64(id) >= int64(c.Vocab) {
			return fmt.Errorf("%w: EOS token %d of a vocabulary of %d", ErrConfig, id, c.Vocab)
		}
	}
	return c.RoPE.validate()
}

// Geometry is what a token's KV cache is made of.
func (c Config) Geometry() kv.Geometry {
	return kv.Uniform(c.Layers, kv.Layer{KVHeads: c.KVHeads, HeadDim: c.HeadDim}, kv.Float32)
}
