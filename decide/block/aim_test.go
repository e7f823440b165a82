package block_test

import (
	"container/list"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"meridian/decide/block"
	"meridian/internal/rounds"
	"meridian/kv"
)

// blocksOfRequest is how many blocks a request holds: a context of some thousand
// tokens in blocks of 16.
const blocksOfRequest = 256

// aims are what holds, releases and victims may take, in a table full of requests.
func aims(blocks int) ([]rounds.Task, error) {
	w, err := newFullTable(blocks)
	if err != nil {
		return nil, err
	}
	plain := newPlainBlocks(blocks)
	return []rounds.Task{
		{What: "hold+release", Bound: 200, Ours: w.churn, Beside: "maps", Theirs: plain.churn},
		{What: "victims+evict", Bound: 300, Ours: w.evict, Beside: "maps", Theirs: plain.evict},
		{What: "pause+run, a block of a request", Ours: w.pause},
	}, nil
}

// BenchmarkAim is a table of a million blocks, beside one of maps and lists that knows tiers
// and nothing else.
func BenchmarkAim(b *testing.B) {
	tasks, err := aims(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	rounds.RunAll(b, tasks)
}

// What is measured allocates nothing, at any size.
func TestAimsAllocateNothing(t *testing.T) {
	tasks, err := aims(1 << 13)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if allocations, err := rounds.Once(task); err != nil || allocations > 0.01 {
			t.Errorf("%s allocates %v times, %v", task.What, allocations, err)
		}
	}
}

// A table too small for requests that begin together measures nothing, and says so.
func TestAimOfOneBlock(t *testing.T) {
	tasks, err := aims(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rounds.Once(tasks[0]); !errors.Is(err, rounds.ErrNothing) {
		t.Error(err)
	}
}

// together is how many requests end, and begin, at about the same time.
const together = 16

// fullTable is a table full of requests. Requests that begin together grow together, a block
// each in turn, as in service: neighbours in memory belong to different ones.
type fullTable struct {
	table    *block.Table
	requests []block.Request
	dice     *rand.Rand
	victims  []block.ID
}

func newFullTable(blocks int) (*fullTable, error) {
	t, err := block.New(block.Options{Blocks: blocks})
	if err != nil {
		return nil, err
	}
	w := &fullTable{table: t, dice: rand.New(rand.NewPCG(1, 2))}
	for range blocks / blocksOfRequest / together * together {
		w.requests = append(w.requests, t.Admit())
	}
	return w, w.fill()
}

// fill holds blocks for requests that have none, and mixes whose they are.
func (w *fullTable) fill() error {
	for at := 0; at < len(w.requests); at += together {
		if err := w.grow(w.requests[at : at+together]); err != nil {
			return err
		}
	}
	_, err := w.churn()
	return err
}

func (w *fullTable) grow(requests []block.Request) error {
	for range blocksOfRequest {
		for _, r := range requests {
			if err := w.hold(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *fullTable) hold(r block.Request) error {
	b, found := w.table.Next()
	if !found {
		return fmt.Errorf("no vacant block among %d", w.table.Counters().Blocks)
	}
	tier := kv.ThinkActive
	if r%2 == 0 {
		tier = kv.OutputCritical
	}
	return w.table.Hold(r, b, tier)
}

// churn ends requests here and there, and begins others in their place.
func (w *fullTable) churn() (rounds.Lap, error) {
	start := time.Now()
	for range len(w.requests) / together {
		for i := range together {
			// From the front to a random place, so that those which begin together lie together.
			at := i + w.dice.IntN(len(w.requests)-i)
			w.requests[i], w.requests[at] = w.requests[at], w.requests[i]
			if err := w.table.End(w.requests[i]); err != nil {
				return rounds.Lap{}, err
			}
			w.requests[i] = w.table.Admit()
		}
		if err := w.grow(w.requests[:together]); err != nil {
			return rounds.Lap{}, err
		}
	}
	return rounds.Lap{Operations: len(w.requests) * blocksOfRequest, Took: time.Since(start)}, nil
}

// evict takes half of the memory from paused requests, and gives it back.
func (w *fullTable) evict() (rounds.Lap, error) {
	for _, r := range w.requests {
		if err := w.table.SetState(r, block.Forgone); err != nil {
			return rounds.Lap{}, err
		}
	}
	n := len(w.requests) * blocksOfRequest / 2
	start := time.Now()
	for left := n; left > 0; left -= len(w.victims) {
		w.victims = w.table.Victims(w.victims[:0], min(left, 64))
		for _, b := range w.victims {
			if err := w.table.Evict(b); err != nil {
				return rounds.Lap{}, err
			}
		}
	}
	lap := rounds.Lap{Operations: n, Took: time.Since(start)}
	return lap, w.refill()
}

func (w *fullTable) refill() error {
	for i, r := range w.requests {
		if err := w.table.End(r); err != nil {
			return err
		}
		w.requests[i] = w.table.Admit()
	}
	return w.fill()
}

// pause pauses requests and lets them run again.
func (w *fullTable) pause() (rounds.Lap, error) {
	start := time.Now()
	for range w.requests {
		r := w.requests[w.dice.IntN(len(w.requests))]
		for _, state := range []block.State{block.Forgone, block.Running} {
			if err := w.table.SetState(r, state); err != nil {
				return rounds.Lap{}, err
			}
		}
	}
	return rounds.Lap{Operations: len(w.requests) * blocksOfRequest, Took: time.Since(start)}, nil
}

// plainBlocks is the least that a table of tiers takes when it is made of maps
// and lists: no shared blocks, no states, no copies.
type plainBlocks struct {
	blocks   map[uint32]*list.Element
	tiers    [3]*list.List
	requests [][]uint32
	free     []uint32
	dice     *rand.Rand
}

type plainBlock struct {
	id   uint32
	tier kv.Tier
}

func newPlainBlocks(blocks int) *plainBlocks {
	p := &plainBlocks{blocks: make(map[uint32]*list.Element, blocks), dice: rand.New(rand.NewPCG(1, 2))}
	for i := range p.tiers {
		p.tiers[i] = list.New()
	}
	for b := range blocks {
		p.free = append(p.free, uint32(b))
	}
	p.requests = make([][]uint32, blocks/blocksOfRequest/together*together)
	p.fill()
	return p
}

func (p *plainBlocks) fill() {
	for at := 0; at < len(p.requests); at += together {
		p.grow(at)
	}
	_, _ = p.churn()
}

// grow holds blocks for requests that lie together.
func (p *plainBlocks) grow(at int) {
	for range blocksOfRequest {
		for i := range together {
			p.hold(at + i)
		}
	}
}

func (p *plainBlocks) hold(request int) {
	last := len(p.free) - 1
	b := p.free[last]
	p.free = p.free[:last]
	tier := kv.ThinkActive + kv.Tier(request%2)
	p.blocks[b] = p.tiers[tier].PushBack(plainBlock{b, tier})
	p.requests[request] = append(p.requests[request], b)
}

func (p *plainBlocks) release(b uint32) {
	e := p.blocks[b]
	p.tiers[e.Value.(plainBlock).tier].Remove(e)
	delete(p.blocks, b)
	p.free = append(p.free, b)
}

func (p *plainBlocks) churn() (rounds.Lap, error) {
	start := time.Now()
	for range len(p.requests) / together {
		for i := range together {
			at := i + p.dice.IntN(len(p.requests)-i)
			p.requests[i], p.requests[at] = p.requests[at], p.requests[i]
			for _, b := range p.requests[i] {
				p.release(b)
			}
			p.requests[i] = p.requests[i][:0]
		}
		p.grow(0)
	}
	return rounds.Lap{Operations: len(p.requests) * blocksOfRequest, Took: time.Since(start)}, nil
}

func (p *plainBlocks) evict() (rounds.Lap, error) {
	n := len(p.requests) * blocksOfRequest / 2
	start := time.Now()
	for range n {
		for _, tier := range p.tiers {
			if e := tier.Front(); e != nil {
				p.release(e.Value.(plainBlock).id)
				break
			}
		}
	}
	lap := rounds.Lap{Operations: n, Took: time.Since(start)}
	for i, held := range p.requests {
		for _, b := range held {
			if p.blocks[b] != nil {
				p.release(b)
			}
		}
		p.requests[i] = held[:0]
	}
	p.fill()
	return lap, nil
}
