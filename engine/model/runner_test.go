package model

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/kv"
)

func TestStepRefuses(t *testing.T) {
	m := builtin(t, "tiny")
	e := newEngine(t, m, wholeCut(t, m))
	e.feed(textTokens("before"), nil)
	before := bytes.Clone(e.memory[0])
	good := e.slice([]uint32{65}, nil)
	for name, c := range map[string]struct {
		change func(s *Slice)
		want   string
	}{
		"no tokens":         {func(s *Slice) { s.Tokens = nil }, "no tokens"},
		"unknown token":     {func(s *Slice) { s.Tokens = []uint32{65, 9999} }, "token 9999 at position 8, but the vocabulary has 272"},
		"negative start":    {func(s *Slice) { s.Start = -1 }, "position -1"},
		"beyond context":    {func(s *Slice) { s.Start = 2048 }, "the context is 2048"},
		"short table":       {func(s *Slice) { s.Blocks = nil }, "want 1"},
		"table ends early":  {func(s *Slice) { s.Tokens = make([]uint32, 20); s.Blocks = s.Blocks[:1] }, "want 2"},
		"unknown block":     {func(s *Slice) { s.Blocks = []uint32{16} }, "block 16 at entry 0"},
		"room for logits":   {func(s *Slice) { s.Logits = make([]float32, 5) }, "room for 5 logits, want 272"},
		"start would wrap":  {func(s *Slice) { s.Start = int(^uint(0) >> 1) }, "the context is 2048"},
		"room for no logit": {func(s *Slice) { s.Logits = []float32{} }, "room for 0 logits"},
	} {
		bad := good
		c.change(&bad)
		err := e.runner.Step([]Slice{good, bad})
		if !errors.Is(err, ErrBatch) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "slice 1") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if !bytes.Equal(e.memory[0], before) {
		t.Error("a step that was refused has written")
	}
	if err := e.runner.Step(nil); err != nil {
		t.Errorf("an empty step: %v", err)
	}
}

func TestNewRunnerRefuses(t *testing.T) {
	m := builtin(t, "tiny")
	for name, c := range map[string]struct {
		change func(c *Cut, memory *[][]byte)
		want   string
	}{
		"TP that divides nothing": {func(c *Cut, _ *[][]byte) { c.Parallelism.TP = 3 }, "TP 3 does not divide 4 KV heads"},
		"TP beyond heads":         {func(c *Cut, _ *[][]byte) { c.Parallelism.TP = 8 }, "TP 8 does not divide 4 KV heads"},
		"context parallelism":     {func(c *Cut, _ *[][]byte) { c.Parallelism.CP = 2 }, "context parallelism 2"},
		"layers of another model": {func(c *Cut, _ *[][]byte) { c.Parallelism.Stages = []int{2, 3} }, "hold 5 layers"},
		"no layout":               {func(c *Cut, _ *[][]byte) { c.Layout = kv.Layout{} }, "no layout"},
		"empty blocks":            {func(c *Cut, _ *[][]byte) { c.BlockTokens = 0 }, "0 tokens in a block"},
		"no blocks":               {func(c *Cut, _ *[][]byte) { c.Blocks = 0 }, "0 blocks"},
		"a rank without memory":   {func(_ *Cut, memory *[][]byte) { *memory = nil }, "0 memories for 1 ranks"},
		"too little memory":       {func(_ *Cut, memory *[][]byte) { (*memory)[0] = (*memory)[0][4:] }, "bytes of KV memory, want"},
		"no alignment": {func(_ *Cut, memory *[][]byte) {
			(*memory)[0] = append((*memory)[0], 0, 0)[1:]
			(*memory)[0] = (*memory)[0][:len((*memory)[0])-1]
		}, "not aligned"},
	} {
		cut := wholeCut(t, m)
		memory := [][]byte{make([]byte, cut.MemoryBytes(m.config, 0))}
		c.change(&cut, &memory)
		if _, err := NewRunner(m, cut, memory); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if got := (Cut{}).MemoryBytes(m.config, 0); got != 0 {
		t.Errorf("an impossible cut takes %d bytes", got)
	}
	huge := wholeCut(t, m)
	huge.Blocks, huge.BlockTokens = maxBlocks, maxBlockTokens
	if _, err := NewRunner(m, huge, [][]byte{nil}); err == nil {
		t.Error("a cut beyond any memory is accepted")
	}
}

// TestLayerDone: when a layer is said to be done, its KV has its final bytes.
func TestLayerDone(t *testing.T) {
	m := builtin(t, "tiny")
	cut := wholeCut(t, m)
	cut.Parallelism = kv.Split(m.config.Layers, 2, 2)
	e := newEngine(t, m, cut)
	var calls []int
	var seen [][]byte // all ranks' memory at each call
	e.runner.LayerDone = func(layers int) {
		calls = append(calls, layers)
		seen = append(seen, slices.Concat(e.memory...))
	}
	e.feed(textTokens(someText), nil)
	if !slices.Equal(calls, []int{1, 2, 3, 4}) {
		t.Fatalf("layers done: %v", calls)
	}
	if !bytes.Equal(seen[3], slices.Concat(e.memory...)) {
		t.Error("KV was written after the last layer was done")
	}
	// Both ranks of a stage keep two layers, one after the other.
	half := len(e.memory[0]) / 2
	for i, last := range [][]byte{e.memory[0][:half], e.memory[0][half:], e.memory[2][:half], e.memory[2][half:]} {
		rank := i / 2 * 2
		at := rank*len(e.memory[0]) + i%2*half
		if !bytes.Equal(seen[i][at:at+half], last) {
			t.Errorf("layer %d changed after it was done", i)
		}
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	m := builtin(t, "tiny")
	for _, name := range []string{"LBHNC", "DNHFBL"} {
		cut := wholeCut(t, m)
		cut.Layout = layout(t, name)
		e := newEngine(t, m, cut)
		batch := []Slice{
			{Tokens: []uint32{1, 2, 3}, Blocks: e.blocks[:8], Logits: make([]float32, m.config.Vocab)},
			{Tokens: []uint32{4}, Blocks: e.blocks[8:], Logits: make([]float32, m.config.Vocab)},
		}
		if err := e.runner.Step(batch); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(20, func() {
			if err := e.runner.Step(batch); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: a step makes %v allocations", name, n)
		}
	}
}
