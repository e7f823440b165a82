package transceiver

import (
	"fmt"

	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// batch is as much of a flow as one request takes: the n-th byte of src goes to
// the n-th byte of dst.
type batch struct{ src, dst fabric.List }

// Limits on a batch, well within those of a fabric's list.
const (
	maxBatchRuns   = 1 << 16
	maxBatchPieces = 1 << 20
	maxBatchParts  = 512
)

// batches turns the runs of parts of a flow into lists. A run may be done at any time, so
// those between the same two extents of memory come together: a list has a part
// for each pair of extents, however often runs alternate between them.
func batches(parts []reshard.Flow, src, dst handoff.Memory) ([]batch, error) {
	b := builder{src: newMap(src), dst: newMap(dst), places: make(map[[2]int]int)}
	for _, flow := range parts {
		for run := range flow.Runs() {
			if err := b.add(run); err != nil {
				return nil, err
			}
		}
	}
	b.flush()
	return b.batches, nil
}

// oneSide is the bytes of one side of a flow: a part for each extent.
func oneSide(flow reshard.Flow, memory handoff.Memory, as handoff.Role) (list fabric.List, err error) {
	m := newMap(memory)
	parts := make([]int, len(memory)) // extent → its part, counted from one
	add := func(at uint64, r mem.Run) error {
		extent, err := m.find(at)
		if err != nil {
			return err
		}
		if parts[extent] == 0 {
			list = append(list, m.part(extent))
			parts[extent] = len(list)
		}
		r.Offset = m.offset(extent, at)
		return list[parts[extent]-1].Spans.AddRun(r)
	}
	for run := range flow.Runs() {
		at, stride := uint64(run.Src), run.SrcStride
		if as == handoff.Destination {
			at, stride = uint64(run.Dst), run.DstStride
		}
		if err := m.cut(at, stride, run, add); err != nil {
			return nil, err
		}
	}
	list.Share()
	return list, nil
}

// cut visits one side of a run in parts that lie in one extent each.
func (m *memoryMap) cut(at uint64, stride int64, run reshard.Run, add func(at uint64, r mem.Run) error) error {
	for left := run.Count; left > 0; {
		extent, err := m.find(at)
		if err != nil {
			return err
		}
		whole := min(m.pieces(extent, at, run, stride), left)
		if whole > 0 {
			if err := add(at, mem.Run{Length: uint64(run.Length), Stride: uint64(stride), Count: uint64(whole)}); err != nil {
				return err
			}
			at, left = at+uint64(whole*stride), left-whole
			continue
		}
		for done := uint64(0); done < uint64(run.Length); { // a piece across a border
			if extent, err = m.find(at + done); err != nil {
				return err
			}
			n := min(uint64(run.Length)-done, m.left(extent, at+done))
			if err := add(at+done, mem.Run{Length: n, Count: 1}); err != nil {
				return err
			}
			done += n
		}
		at, left = at+uint64(stride), left-1
	}
	return nil
}

type builder struct {
	src, dst memoryMap
	batches  []batch
	current  batch
	runs     int
	pieces   int64
	places   map[[2]int]int // pair of extents → part of the current batch
}

// add takes a run, cut wherever either side's memory goes on in another extent.
func (b *builder) add(run reshard.Run) error {
	for done := int64(0); done < run.Count; {
		from, to := uint64(run.Src+done*run.SrcStride), uint64(run.Dst+done*run.DstStride)
		src, err := b.src.find(from)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		dst, err := b.dst.find(to)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		whole := min(b.src.pieces(src, from, run, run.SrcStride), b.dst.pieces(dst, to, run, run.DstStride), run.Count-done, maxBatchPieces)
		if whole > 0 {
			r := reshard.Run{Length: run.Length, Count: whole, SrcStride: run.SrcStride, DstStride: run.DstStride}
			if err := b.put(src, dst, from, to, r); err != nil {
				return err
			}
			done += whole
			continue
		}
		if err := b.addCut(from, to, uint64(run.Length)); err != nil {
			return err
		}
		done++
	}
	return nil
}

// addCut takes one piece that lies across a border.
func (b *builder) addCut(from, to, length uint64) error {
	for length > 0 {
		src, err := b.src.find(from)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		dst, err := b.dst.find(to)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		n := min(length, b.src.left(src, from), b.dst.left(dst, to))
		if err := b.put(src, dst, from, to, reshard.Run{Length: int64(n), Count: 1}); err != nil {
			return err
		}
		from, to, length = from+n, to+n, length-n
	}
	return nil
}

// put appends a run that lies in one extent on each side.
func (b *builder) put(src, dst int, from, to uint64, r reshard.Run) error {
	part, known := b.places[[2]int{src, dst}]
	if b.runs >= maxBatchRuns || b.pieces+r.Count > maxBatchPieces || !known && len(b.places) >= maxBatchParts {
		b.flush()
		known = false
	}
	if !known {
		part = len(b.current.src)
		b.places[[2]int{src, dst}] = part
		b.current.src = append(b.current.src, b.src.part(src))
		b.current.dst = append(b.current.dst, b.dst.part(dst))
	}
	b.runs++
	b.pieces += r.Count
	length, count := uint64(r.Length), uint64(r.Count)
	err := b.current.src[part].Spans.AddRun(mem.Run{Offset: b.src.offset(src, from), Length: length, Stride: uint64(r.SrcStride), Count: count})
	if err != nil {
		return err
	}
	return b.current.dst[part].Spans.AddRun(mem.Run{Offset: b.dst.offset(dst, to), Length: length, Stride: uint64(r.DstStride), Count: count})
}

func (b *builder) flush() {
	if len(b.current.src) > 0 {
		b.current.src.Share()
		b.current.dst.Share()
		b.batches = append(b.batches, b.current)
	}
	b.current, b.runs, b.pieces = batch{}, 0, 0
	clear(b.places)
}

// memoryMap finds bytes of a rank in its extents.
type memoryMap struct {
	memory handoff.Memory
	starts []uint64
	last   int
}

func newMap(m handoff.Memory) memoryMap {
	out := memoryMap{memory: m, starts: make([]uint64, len(m)+1)}
	for i, x := range m {
		out.starts[i+1] = out.starts[i] + x.Length
	}
	return out
}

// find returns the extent that holds a byte; the last answer is tried first.
func (m *memoryMap) find(at uint64) (int, error) {
	if m.last < len(m.memory) && m.starts[m.last] <= at && at < m.starts[m.last+1] {
		return m.last, nil
	}
	low, high := 0, len(m.memory)
	for low < high {
		if middle := (low + high) / 2; m.starts[middle+1] <= at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(m.memory) {
		return 0, fmt.Errorf("%w: byte %d of a rank's memory of %d", mem.ErrBounds, at, m.starts[len(m.memory)])
	}
	m.last = low
	return low, nil
}

// pieces is how many pieces of a run, from the one at offset at on, lie wholly
// in an extent.
func (m *memoryMap) pieces(extent int, at uint64, run reshard.Run, stride int64) int64 {
	left, length := m.left(extent, at), uint64(run.Length)
	switch {
	case length > left:
		return 0
	case run.Count == 1 || stride <= 0:
		return 1
	}
	return int64((left-length)/uint64(stride)) + 1
}

func (m *memoryMap) left(extent int, at uint64) uint64 { return m.starts[extent+1] - at }

func (m *memoryMap) offset(extent int, at uint64) uint64 {
	return m.memory[extent].Offset + at - m.starts[extent]
}

func (m *memoryMap) part(extent int) fabric.Part {
	return fabric.Part{Region: m.memory[extent].Region, Epoch: m.memory[extent].Epoch}
}
