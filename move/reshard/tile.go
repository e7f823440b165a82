package reshard

import (
	"cmp"

	"meridian/kv"
)

// loop is count steps, so many bytes wide in the source and in the destination.
type loop struct{ count, src, dst int64 }

// tile is the layers and heads of one need as they lie in both memories. Tokens
// and blocks come with the request, so they are strides alone.
type tile struct {
	// Where layer and head begin, in block 0 at token 0: in the source within the
	// component's grid, which owners of the same heads may keep at different places.
	src, dst       int64
	elementBytes   int64
	vector         [3]loop // elements, parts, heads
	layer          loop
	token, block   loop
	bytesEachToken int64 // of one layer
}

func newTile(c component, from, to grid, layers, held interval) tile {
	t := tile{elementBytes: c.elementBytes}
	t.src = int64(layers.first-from.layers.first)*from.strides.Layer + int64(held.first-from.heads.first)*from.strides.Head
	t.dst = to.base + int64(layers.first-to.layers.first)*to.strides.Layer + int64(held.first-to.heads.first)*to.strides.Head
	heads := int64(held.len())
	if c.unit == kv.WholeBlock {
		heads = 1 // all of them, in one lump
	}
	t.vector = [3]loop{
		{to.elements, from.strides.Element, to.strides.Element},
		{to.parts, from.strides.Part, to.strides.Part},
		{heads, from.strides.Head, to.strides.Head},
	}
	t.layer = loop{int64(layers.len()), from.strides.Layer, to.strides.Layer}
	t.token = loop{1, from.strides.Token, to.strides.Token}
	t.block = loop{1, from.strides.Block, to.strides.Block}
	t.bytesEachToken = c.elementBytes * to.elements * to.parts * heads
	return t
}

// loops returns the whole nest of a block run, elements first.
func (t *tile) loops(layers int64, tokens uint32, s blockRun) [6]loop {
	return [6]loop{
		t.vector[0], t.vector[1], t.vector[2],
		{int64(tokens), t.token.src, t.token.dst},
		{layers, t.layer.src, t.layer.dst},
		{s.count, s.srcStep * t.block.src, s.dstStep * t.block.dst},
	}
}

// nest is a set of pieces: length bytes each, the loops outermost first. The
// last loop becomes the count and strides of a run.
type nest struct {
	length int64
	loops  [6]loop
	depth  int
}

// fold makes pieces as long and loops as few as they can be.
func fold(elementBytes int64, loops [6]loop) nest {
	n := nest{length: elementBytes}
	for _, l := range loops {
		if l.count > 1 {
			n.loops[n.depth] = l
			n.depth++
		}
	}
	for n.lengthen() {
	}
	for n.join() {
	}
	n.order()
	return n
}

func (n *nest) remove(i int) {
	n.depth--
	copy(n.loops[i:], n.loops[i+1:n.depth+1])
}

// lengthen takes a loop whose steps touch into the pieces.
func (n *nest) lengthen() bool {
	for i, l := range n.loops[:n.depth] {
		if l.src == n.length && l.dst == n.length {
			n.length *= l.count
			n.remove(i)
			return true
		}
	}
	return false
}

// join makes one loop of two when the outer goes on where the inner ends.
func (n *nest) join() bool {
	for i, inner := range n.loops[:n.depth] {
		for k, outer := range n.loops[:n.depth] {
			if outer.src == inner.src*inner.count && outer.dst == inner.dst*inner.count {
				n.loops[i].count *= outer.count
				n.remove(k)
				return true
			}
		}
	}
	return false
}

// order puts the longest loop last, so that runs are few, and the others by
// their steps in the destination, widest first.
func (n *nest) order() {
	for i := 1; i < n.depth; i++ {
		for k := i; k > 0 && wider(n.loops[k], n.loops[k-1]) > 0; k-- {
			n.loops[k], n.loops[k-1] = n.loops[k-1], n.loops[k]
		}
	}
	longest := 0
	for i, l := range n.loops[:n.depth] {
		if l.count >= n.loops[longest].count {
			longest = i
		}
	}
	for ; longest < n.depth-1; longest++ {
		n.loops[longest], n.loops[longest+1] = n.loops[longest+1], n.loops[longest]
	}
}

func wider(a, b loop) int {
	return cmp.Or(cmp.Compare(a.dst, b.dst), cmp.Compare(a.src, b.src))
}

// runs is how many runs the nest makes.
func (n *nest) runs() int64 {
	runs := int64(1)
	for _, l := range n.loops[:max(0, n.depth-1)] {
		runs *= l.count
	}
	return runs
}

// each yields the runs from two offsets on.
func (n *nest) each(level int, src, dst int64, yield func(Run) bool) bool {
	switch {
	case n.depth == 0:
		return yield(Run{Src: src, Dst: dst, Length: n.length, Count: 1})
	case level == n.depth-1:
		l := n.loops[level]
		return yield(Run{Src: src, Dst: dst, Length: n.length, Count: l.count, SrcStride: l.src, DstStride: l.dst})
	}
	l := n.loops[level]
	for i := range l.count {
		if !n.each(level+1, src+i*l.src, dst+i*l.dst, yield) {
			return false
		}
	}
	return true
}
