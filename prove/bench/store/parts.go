package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"meridian/internal/rounds"
	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/kv"
	"meridian/move/mem"
	"meridian/prove/bench"
)

// PartsOptions is what RunParts measures.
type PartsOptions struct {
	bench.Options
	// Objects of the arena.
	Objects int
	// Dir and OwnCommand are those of the package's Options.
	Dir        string
	OwnCommand []string
}

// What the parts of a store may take.
const (
	reserveNanoseconds = 2000 // for a producer that asks no owner
	locateMillions     = 0.2  // a second, on one core
	indexBytes         = 150  // for an object
	scanNanoseconds    = 2000 // for a header: a million in two seconds
)

// RunParts measures what a put or a get is made of, each by itself: on one core
// and with an arena full of small objects, but for what goes from one process to
// another.
func RunParts(ctx context.Context, o PartsOptions) (_ *bench.Costs, err error) {
	if o.Objects < 1000 || o.Objects > 1<<24 {
		return nil, fmt.Errorf("%w: %d objects; 1000 to %d", bench.ErrOptions, o.Objects, 1<<24)
	}
	p := &parts{objects: o.Objects}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	away, err := openOpening(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, away.Close(context.WithoutCancel(ctx))) }()
	return bench.Measure(ctx, o.Options, append(p.tasks(ctx), away.task(ctx)))
}

// parts is an arena and its owner. Every round of a task that fills it formats it
// anew.
type parts struct {
	objects int
	arena   *mem.Arena
	heap    *arena.Heap
	owner   *owner.Owner
	grew    uint64 // bytes of the owner's private memory
}

const (
	partBytes = 64
	partKey   = 16
	// partNow is the owner's clock, which nothing here makes go on.
	partNow = kv.Second
)

func (p *parts) close(ctx context.Context) error {
	if p.arena == nil {
		return nil
	}
	return p.arena.Close(ctx)
}

func partKeyOf(i int) (key [partKey]byte) {
	binary.LittleEndian.PutUint64(key[:], uint64(i))
	return key
}

// format makes an empty arena with room for every object.
func (p *parts) format(ctx context.Context) (err error) {
	if err := p.close(ctx); err != nil {
		return err
	}
	extent := arena.ExtentOf(partBytes, partKey)
	heap := uint64(p.objects) * (extent.Size + extent.Align + arena.HeaderSize)
	if p.arena, err = mem.NewArena(mem.ArenaOptions{Name: "bench-store", SizeBytes: heap + heap/8 + 1<<20, NUMANode: -1}); err != nil {
		return err
	}
	memory := p.arena.Bytes(0, p.arena.Size())
	clear(memory) // so that its pages are mapped
	if p.heap, err = arena.Format(memory, arena.Options{Headers: uint32(p.objects)}); err != nil {
		return err
	}
	p.owner, err = owner.New(p.heap, owner.Options{})
	return err
}

// filled is an arena into which the owner has taken every object, of what memory
// for its books it took.
func (p *parts) filled(ctx context.Context) (took time.Duration, err error) {
	p.owner = nil // of the round before
	before := heapInUse()
	if err := p.format(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range p.objects {
		key := partKeyOf(i)
		plan, err := p.owner.Reserve(partNow, owner.Put{Key: key[:], Bytes: partBytes})
		if err == nil {
			err = p.owner.Commit(partNow, plan, p.heap.SumPayload(plan.Offset, plan.Bytes))
		}
		if err != nil {
			return 0, fmt.Errorf("object %d: %w", i, err)
		}
	}
	took = time.Since(start)
	p.grew = heapInUse() - before
	return took, nil
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (p *parts) tasks(ctx context.Context) []rounds.Task {
	return []rounds.Task{
		{
			What: fmt.Sprintf("index, of %d objects", p.objects), Unit: "bytes an object", Bound: indexBytes,
			Score: func() float64 { return float64(p.grew) / float64(p.objects) },
			Ours: func() (rounds.Lap, error) {
				took, err := p.filled(ctx)
				return rounds.Lap{Operations: p.objects, Took: took}, err
			},
		},
		{What: "locate an object", PerSecond: true, Bound: locateMillions, Ours: p.locate},
		{What: "scan, a header that is known", Bound: scanNanoseconds, Ours: p.scanKnown},
		{What: "producer's allocation (v2)", Bound: reserveNanoseconds, Ours: func() (rounds.Lap, error) {
			took, err := p.produced(ctx, false)
			return rounds.Lap{Operations: p.objects, Took: took}, err
		}},
		{What: "scan, an object that nobody announced", Bound: scanNanoseconds, Ours: func() (rounds.Lap, error) { return p.scanUnknown(ctx) }},
	}
}

// locate asks for every object, in an order that no cache foresees.
func (p *parts) locate() (rounds.Lap, error) {
	start := time.Now()
	for i := range p.objects {
		key := partKeyOf(int(uint64(i) * 0x9E3779B1 % uint64(p.objects)))
		if _, err := p.owner.Locate(partNow, key[:]); err != nil {
			return rounds.Lap{}, err
		}
	}
	return rounds.Lap{Operations: p.objects, Took: time.Since(start)}, nil
}

func (p *parts) scanKnown() (rounds.Lap, error) {
	start := time.Now()
	for !p.owner.Scan(partNow) {
	}
	return p.scanned(start)
}

// scanned demands that a scan has left every object where it was.
func (p *parts) scanned(start time.Time) (rounds.Lap, error) {
	lap := rounds.Lap{Operations: p.objects, Took: time.Since(start)}
	if ready := p.owner.Stats().Ready; ready != uint64(p.objects) {
		return lap, fmt.Errorf("%d of %d objects are known after the scan", ready, p.objects)
	}
	return lap, nil
}

// produced is an arena in which a producer has reserved every object without
// asking, and where wanted written it, too; it announces nothing.
func (p *parts) produced(ctx context.Context, written bool) (took time.Duration, err error) {
	if err := p.format(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range p.objects {
		key := partKeyOf(i)
		r, err := p.heap.Reserve(arena.HashKey(key[:]), partBytes, partKey, arena.PageSize)
		if err != nil {
			return 0, fmt.Errorf("object %d: %w", i, err)
		}
		if written && !p.heap.Seal(&r, key[:]) {
			return 0, fmt.Errorf("object %d was taken back", i)
		}
	}
	return time.Since(start), nil
}

// scanUnknown is a scan that finds every object by itself, with its sums.
func (p *parts) scanUnknown(ctx context.Context) (rounds.Lap, error) {
	if _, err := p.produced(ctx, true); err != nil {
		return rounds.Lap{}, err
	}
	start := time.Now()
	for !p.owner.Scan(partNow) {
	}
	admit(p.owner)
	return p.scanned(start)
}
