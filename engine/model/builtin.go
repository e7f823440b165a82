package model

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// Tokens of the built-in models: the 256 bytes, then these. The vocabulary is
// padded with tokens that mean nothing and are suppressed.
const (
	bosToken uint32 = 256 + iota
	eosToken
	imStartToken
	imEndToken
	thinkToken
	endThinkToken

	builtinVocab = 272
)

// builtins are untrained models. Their text is gibberish, but every
// letter of it depends on every token before: what a test of caches wants.
var builtins = map[string]Config{
	"tiny": {
		Hidden: 64, Intermediate: 128, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 16, Context: 2048,
	},
	"small": {
		Hidden: 256, Intermediate: 1088, Layers: 8, Heads: 16, KVHeads: 8, HeadDim: 32, Context: 4096,
	},
}

// Builtin returns the model "tiny" or "small" with weights rolled from seed.
// Equal seeds give equal weights on every machine.
func Builtin(name string, seed uint64) (*Model, error) {
	c, known := builtins[name]
	if !known {
		return nil, fmt.Errorf("%w: no built-in model is called %q: there are tiny and small", ErrConfig, name)
	}
	c.Vocab, c.NormEpsilon, c.RoPE = builtinVocab, 1e-5, RoPE{Theta: 10000}
	c.BOS, c.EOS = int(bosToken), []uint32{eosToken}
	for token := range uint32(builtinVocab) {
		if printable := token >= ' ' && token <= '~'; !printable && token != '\n' && token != eosToken {
			c.Suppressed = append(c.Suppressed, token)
		}
	}
	return assemble(c, dice{seed})
}

// dice rolls weights. A weight is a function of the seed, its tensor's name and
// its place, so that nothing depends on the order in which tensors are made.
type dice struct{ seed uint64 }

// spread is by how much the weights of a projection make a vector of unit
// elements grow. Queries and keys are large, so that attention looks at few
// positions sharply; the embedding is small beside what the layers add, so
// that the next token depends on the whole text more than on the last one.
func spread(name string) float64 {
	switch {
	case name == embedName:
		return 0.3
	case name == headName:
		return 4
	case strings.Contains(name, "q_proj"), strings.Contains(name, "k_proj"):
		return 2
	case strings.Contains(name, "o_proj"):
		return 2
	}
	return 1
}

func (d dice) matrix(name string, rows, columns int) (matrix, error) {
	m := newMatrix(rows, columns)
	// Uniform on [-limit, limit) has a deviation of limit/√3.
	deviation := spread(name)
	if name != embedName {
		deviation /= math.Sqrt(float64(columns))
	}
	limit := float32(deviation * math.Sqrt(3))
	stream := d.stream(name)
	for r := range rows {
		for i, row := 0, m.Row(r, columns); i < columns; i++ {
			row[i] = roll(stream, uint64(r*columns+i)) * limit
		}
	}
	return m, nil
}

func (d dice) vector(_ string, n int) ([]float32, error) {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v, nil
}

func (d dice) stream(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.FormatUint(d.seed, 16) + "/" + name))
	return h.Sum64()
}

// roll returns the number of a place in a stream, uniform on [-1, 1): the mixer
// of SplitMix64, of which 24 bits fill a float32 exactly.
func roll(stream, place uint64) float32 {
	z := stream + (place+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	return float32(int32(z>>40)-1<<23) / (1 << 23)
}
