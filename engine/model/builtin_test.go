package model

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"meridian/kv"
)

func textTokens(text string) []uint32 {
	tokens := []uint32{bosToken}
	for _, b := range []byte(text) {
		tokens = append(tokens, uint32(b))
	}
	return tokens
}

const someText = "A hand-off moves the cache of a prompt to another machine, which goes on as if it had been there from the beginning."

func wholeCut(t testing.TB, m *Model) Cut {
	return Cut{Parallelism: kv.Split(m.config.Layers, 1, 1), Layout: layout(t, "LBHNC"), BlockTokens: 16, Blocks: 16}
}

// TestBuiltinBits pins weights and arithmetic: another value on any machine, or
// after any change, means that texts are not the same any more.
func TestBuiltinBits(t *testing.T) {
	for name, want := range map[string]string{"tiny": "e05e3aad4133045b", "small": "1cac9ef496f01cc0"} {
		m := builtin(t, name)
		e := newEngine(t, m, wholeCut(t, m))
		logits := make([]float32, m.config.Vocab)
		e.feed(textTokens(someText), logits)
		h := fnv.New64a()
		for _, v := range logits {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		if got := fmt.Sprintf("%016x", h.Sum64()); got != want {
			t.Errorf("%s: logits hash to %s, want %s", name, got, want)
		}
	}
}

func TestBuiltinShapes(t *testing.T) {
	for name, parameters := range map[string][2]int64{"tiny": {100_000, 300_000}, "small": {9_500_000, 10_500_000}} {
		m := builtin(t, name)
		if n := parametersOf(m.config); n < parameters[0] || n > parameters[1] {
			t.Errorf("%s has %d parameters", name, n)
		}
		if m.config.Layers < 4 || m.MaxContext() < 2048 {
			t.Errorf("%s: %+v", name, m.config)
		}
		if bos := m.config.BOS; bos != 256 || !slices.Equal(m.EOS(), []uint32{257}) {
			t.Errorf("%s: BOS %d, EOS %v", name, bos, m.EOS())
		}
		allowed := m.config.Vocab - len(m.Suppressed())
		if allowed != 95+1+1 || slices.Contains(m.Suppressed(), 'A') || !slices.Contains(m.Suppressed(), thinkToken) {
			t.Errorf("%s: %d tokens allowed", name, allowed)
		}
	}
	if _, err := Builtin("huge", 1); err == nil {
		t.Error("there is a model called huge")
	}
}

// TestSeedsDiffer: another seed, another text.
func TestSeedsDiffer(t *testing.T) {
	texts := make(map[string]bool)
	for seed := range uint64(4) {
		m, err := Builtin("tiny", seed)
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(t, m, wholeCut(t, m))
		logits := make([]float32, m.config.Vocab)
		e.feed(textTokens(someText), logits)
		texts[fmt.Sprint(e.greedy(logits, 16))] = true
	}
	if len(texts) != 4 {
		t.Errorf("4 seeds, %d texts", len(texts))
	}
}

// TestTextDependsOnEveryBlock: a sequence that loses a block, or gets another's, gets
// another text, soon. Without that, parity of texts would prove little. (It cannot
// show blocks in the wrong order: a key carries its position with it, and
// attention does not care where it lies.)
func TestTextDependsOnEveryBlock(t *testing.T) {
	for _, name := range []string{"tiny", "small"} {
		m := builtin(t, name)
		prompt := textTokens(someText)
		last := len(prompt) - 1
		generate := func(damage func(e *engine)) []uint32 {
			e := newEngine(t, m, wholeCut(t, m))
			e.feed(prompt[:last], nil)
			damage(e)
			return e.greedy(e.next(prompt[last]), 24)
		}
		want := generate(func(*engine) {})
		distinct := slices.Compact(slices.Sorted(slices.Values(want)))
		if len(distinct) < 8 {
			t.Errorf("%s: %v has only %d different tokens", name, want, len(distinct))
		}
		for block := range last / 16 {
			if slices.Equal(generate(func(e *engine) { e.zero(block) }), want) {
				t.Errorf("%s: without block %d the text is the same", name, block)
			}
			stranger := func(e *engine) {
				e.length = block * 16
				e.feed(textTokens(strings.Repeat("stranger", 2))[1:], nil)
				e.length = last
			}
			if slices.Equal(generate(stranger), want) {
				t.Errorf("%s: with a stranger's block %d the text is the same", name, block)
			}
		}
	}
}

// zero wipes the i-th block of the text in all layers.
func (e *engine) zero(i int) {
	for s := range e.runner.stages {
		stage := &e.runner.stages[s]
		for r := range stage.ranks {
			owner := &stage.ranks[r]
			for layer := range stage.end - stage.first {
				at := int64(layer)*owner.strides.Layer + int64(e.blocks[i])*owner.strides.Block
				clear(owner.memory[at:][:owner.strides.Block])
			}
		}
	}
}

// parametersOf is how many numbers a model has learned, or rolled.
func parametersOf(c Config) int64 {
	hidden, width, kvWidth := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	layer := 2*hidden*width + 2*hidden*kvWidth + 3*hidden*int64(c.Intermediate) + 2*hidden
	if c.HeadNorms {
		layer += 2 * int64(c.HeadDim)
	}
	embeddings := int64(c.Vocab) * hidden
	if !c.Tied {
		embeddings *= 2
	}
	return int64(c.Layers)*layer + embeddings + hidden
}
