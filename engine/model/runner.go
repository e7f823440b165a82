package model

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"meridian/kv"
)

// Runner computes steps of a model on the KV memory of its ranks. Its methods
// must not be called at the same time; its memory may be read or written by
// others meanwhile, at blocks that no slice of a running step names, and read at
// those layers and tokens of them that are computed.
type Runner struct {
	// Threads is how many goroutines a step may use; 0 means one. It may change
	// between steps, and results do not depend on it.
	Threads int
	// LayerDone, if set, is called within Step when the first layers layers
	// of the KV of all its slices are in memory.
	LayerDone func(layers int)

	model  *Model
	cut    Cut
	stages []stage
	turns  turns
	buffers
}

// stage is the ranks of one pipeline stage, which share its layers.
type stage struct {
	first, end int // layers
	ranks      []rank
}

// rank owns KV heads of its stage's layers, and rows of every projection.
type rank struct {
	memory    []float32
	strides   kv.Strides
	firstHead int // of the model's KV heads
	heads     int
}

// Slice is new tokens of one text. They lie at positions Start, Start+1, …;
// everything before is in the KV memory already.
type Slice struct {
	Tokens []uint32
	Start  int
	// Blocks is the text's block table: entry i holds positions from
	// i·BlockTokens on. It covers the new tokens. No block that the new tokens
	// lie in may be in two slices of a step.
	Blocks []uint32
	// Logits, unless nil, has room for one number per token of the vocabulary,
	// and is filled with what follows the last token.
	Logits []float32
}

// NewRunner cuts a model over ranks whose KV lies in memory, one slice each, as
// kv.Parallelism numbers them. The slices stay the caller's; they must be
// MemoryBytes long, aligned for fp32, and outlive the runner.
func NewRunner(m *Model, c Cut, memory [][]byte) (*Runner, error) {
	if err := c.Validate(m.config); err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, fmt.Errorf("%w: KV is little-endian, and this machine is not", ErrCut)
	}
	if len(memory) != c.Parallelism.Ranks() {
		return nil, fmt.Errorf("%w: %d memories for %d ranks", ErrCut, len(memory), c.Parallelism.Ranks())
	}
	r := &Runner{model: m, cut: c, turns: turns{frequencies: m.config.RoPE.frequencies(m.config.HeadDim)}}
	for pp := range c.Parallelism.Stages {
		s := stage{}
		s.first, s.end = c.Parallelism.Layers(pp)
		for tp := range c.Parallelism.TP {
			index := c.Parallelism.Index(kv.Rank{PP: pp, TP: tp})
			strides, err := c.strides(m.config, index)
			if err != nil {
				return nil, err
			}
			elements, err := elementsOf(memory[index], strides.Total)
			if err != nil {
				return nil, fmt.Errorf("%w: rank %d: %w", ErrCut, index, err)
			}
			first, end := c.Parallelism.Heads(tp, m.config.KVHeads)
			s.ranks = append(s.ranks, rank{memory: elements, strides: strides, firstHead: first, heads: end - first})
		}
		r.stages = append(r.stages, s)
	}
	return r, nil
}

func elementsOf(memory []byte, count int64) ([]float32, error) {
	if want := count * 4; int64(len(memory)) != want {
		return nil, fmt.Errorf("%d bytes of KV memory, want %d", len(memory), want)
	}
	base := unsafe.Pointer(unsafe.SliceData(memory))
	if uintptr(base)%4 != 0 {
		return nil, fmt.Errorf("the KV memory is not aligned to 4 bytes")
	}
	return unsafe.Slice((*float32)(base), count), nil
}

// Step computes the slices, writes their KV, and fills the logits asked for. A
// step that cannot be computed fails with ErrBatch before anything is written.
func (r *Runner) Step(batch []Slice) error {
	for i := range batch {
		if err := r.check(&batch[i]); err != nil {
			return fmt.Errorf("%w: slice %d: %w", ErrBatch, i, err)
		}
	}
	if len(batch) > 0 {
		r.forward(batch)
	}
	return nil
}

func (r *Runner) check(s *Slice) error {
	c := &r.model.config
	if len(s.Tokens) == 0 {
		return fmt.Errorf("no tokens")
	}
	if s.Start < 0 || s.Start > c.Context-len(s.Tokens) {
		return fmt.Errorf("%d tokens from position %d on, but the context is %d", len(s.Tokens), s.Start, c.Context)
	}
	for i, token := range s.Tokens {
		if int64(token) >= int64(c.Vocab) {
			return fmt.Errorf("token %d at position %d, but the vocabulary has %d", token, s.Start+i, c.Vocab)
		}
	}
	need := (s.Start + len(s.Tokens) + r.cut.BlockTokens - 1) / r.cut.BlockTokens
	if len(s.Blocks) < need {
		return fmt.Errorf("a table of %d blocks for %d tokens in blocks of %d, want %d",
			len(s.Blocks), s.Start+len(s.Tokens), r.cut.BlockTokens, need)
	}
	for i, block := range s.Blocks[:need] {
		if int64(block) >= int64(r.cut.Blocks) {
			return fmt.Errorf("block %d at entry %d of the table, but there are %d", block, i, r.cut.Blocks)
		}
	}
	if s.Logits != nil && len(s.Logits) != c.Vocab {
		return fmt.Errorf("room for %d logits, want %d", len(s.Logits), c.Vocab)
	}
	return nil
}

// spread does units of work, on one goroutine or on several. Units write to
// different places, so their order does not matter.
func (r *Runner) spread(units int, do func(r *Runner, worker, unit int)) {
	workers := min(r.threads(), units)
	if workers <= 1 {
		for unit := range units {
			do(r, 0, unit)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for unit := int(next.Add(1)) - 1; unit < units; unit = int(next.Add(1)) - 1 {
				do(r, worker, unit)
			}
		})
	}
	all.Wait()
}

func (r *Runner) threads() int { return max(1, r.Threads) }
