package model

import (
	"math"
	"testing"

	"meridian/kv"
)

// engine is one text on a runner with memory of its own.
type engine struct {
	t      testing.TB
	runner *Runner
	memory [][]byte
	blocks []uint32
	length int
}

func layout(t testing.TB, name string) kv.Layout {
	t.Helper()
	l, err := kv.ParseLayout(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newEngine gives a text all blocks, from the last to the first. Memory begins
// as NaN, so that a read of what was not written is noticed.
func newEngine(t testing.TB, m *Model, c Cut) *engine {
	t.Helper()
	e := &engine{t: t}
	for rank := range c.Parallelism.Ranks() {
		memory := make([]byte, c.MemoryBytes(m.config, rank))
		for i := range memory {
			memory[i] = 0xFF
		}
		e.memory = append(e.memory, memory)
	}
	var err error
	if e.runner, err = NewRunner(m, c, e.memory); err != nil {
		t.Fatal(err)
	}
	for i := range c.Blocks {
		e.blocks = append(e.blocks, uint32(c.Blocks-1-i))
	}
	return e
}

func (e *engine) slice(tokens []uint32, logits []float32) Slice {
	return Slice{Tokens: tokens, Start: e.length, Blocks: e.blocks, Logits: logits}
}

func (e *engine) feed(tokens []uint32, logits []float32) {
	e.t.Helper()
	if err := e.runner.Step([]Slice{e.slice(tokens, logits)}); err != nil {
		e.t.Fatal(err)
	}
	e.length += len(tokens)
}

func (e *engine) next(token uint32) []float32 {
	e.t.Helper()
	logits := make([]float32, e.runner.model.config.Vocab)
	e.feed([]uint32{token}, logits)
	return logits
}

// greedy goes on with the most likely tokens that are not suppressed.
func (e *engine) greedy(logits []float32, count int) []uint32 {
	e.t.Helper()
	var tokens []uint32
	for range count {
		for _, token := range e.runner.model.config.Suppressed {
			logits[token] = minusInfinity
		}
		token := mostLikely(logits)
		tokens = append(tokens, token)
		logits = e.next(token)
	}
	return tokens
}

// sameBits reports the first place at which two vectors differ, or -1.
func sameBits(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

func builtin(t testing.TB, name string) *Model {
	t.Helper()
	m, err := Builtin(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
