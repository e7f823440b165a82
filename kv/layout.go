package kv

import (
	"fmt"
	"strings"
)

// Axis is one dimension of a KV cache in memory.
type Axis byte

// The six axes. A layout is an order of them, slowest first. Where vLLM writes
// C for "the K then the V of one token and head", the axes are Part and
// Element side by side.
const (
	LayerAxis   Axis = 'L'
	BlockAxis   Axis = 'B'
	PartAxis    Axis = 'F' // K or V; an MLA latent has one part
	HeadAxis    Axis = 'H'
	TokenAxis   Axis = 'N' // token within its block
	ElementAxis Axis = 'D'
)

const allAxes = "LBFHND"

// Layout is the order of the axes in memory, slowest first.
type Layout struct {
	order [len(allAxes)]Axis
}

// layoutNames maps the names engines use to the order of axes. The first name
// of an order is the one String writes.
var layoutNames = []struct{ name, order string }{
	// vLLM: logical [L,B,H,N,C] with C = K then V (vllm/v1/kv_cache_layout.py).
	{"LBHNC", "LBHNFD"},
	{"LBNHC", "LBNHFD"},
	{"LHBNC", "LHBNFD"},
	{"BLHNC", "BLHNFD"},
	{"BLNHC", "BLNHFD"},
	{"BHLNC", "BHLNFD"},
	{"HND", "LBHNFD"}, // vLLM's older names
	{"NHD", "LBNHFD"},
	// TensorRT-LLM: one pool of blocks, each [layer][kv][head][token][element].
	{"TRTLLM_HND", "BLFHND"},
	// SGLang: one K and one V buffer per layer, tokens outermost.
	{"SGLANG", "FLBNHD"},
}

// ParseLayout reads a name engines use (LBHNC, NHD, TRTLLM_HND, SGLANG, …) or
// any order of the six axes L, B, F, H, N, D.
func ParseLayout(name string) (Layout, error) {
	order := strings.ToUpper(name)
	for _, known := range layoutNames {
		if known.name == order {
			order = known.order
			break
		}
	}
	order = strings.Replace(order, "C", "FD", 1)
	var l Layout
	if len(order) != len(l.order) {
		return Layout{}, unknownLayout(name)
	}
	for i, axis := range []byte(order) {
		if !strings.ContainsRune(allAxes, rune(axis)) || strings.IndexByte(order, axis) != i {
			return Layout{}, unknownLayout(name)
		}
		l.order[i] = Axis(axis)
	}
	return l, nil
}

func unknownLayout(name string) error {
	return fmt.Errorf("%w: unknown layout %q: use LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, BHLNC, HND, NHD, TRTLLM_HND, SGLANG, or an order of the axes %s",
		ErrShape, name, allAxes)
}

// Valid reports whether l came from ParseLayout; the zero Layout is not one.
func (l Layout) Valid() bool { return l.order[0] != 0 }

// Axes returns the order of the axes, e.g. "LBHNFD".
func (l Layout) Axes() string {
	var b strings.Builder
	for _, axis := range l.order {
		b.WriteByte(byte(axis))
	}
	return b.String()
}

func (l Layout) String() string {
	if !l.Valid() {
		return "layout(none)"
	}
	axes := l.Axes()
	for _, known := range layoutNames {
		if known.order == axes {
			return known.name
		}
	}
	return axes
}

// Innermost returns l with one axis moved to the end.
func (l Layout) Innermost(axis Axis) Layout {
	var moved Layout
	at := 0
	for _, a := range l.order {
		if a != axis {
			moved.order[at] = a
			at++
		}
	}
	if at < len(l.order) {
		moved.order[at] = axis
	}
	return moved
}

// Extents is the size of each axis of one rank's memory of one group of layers.
type Extents struct {
	Layers, Blocks, Parts, Heads, Tokens, Elements int
}

// Point is the index of one element on each axis.
type Point Extents

// Strides is the distance, in elements, between neighbours on each axis, and
// the number of elements in all.
type Strides struct {
	Layer, Block, Part, Head, Token, Element int64
	Total                                    int64
}

// Strides returns the strides of a dense array of extents e in layout l.
func (l Layout) Strides(e Extents) (Strides, error) {
	if !l.Valid() {
		return Strides{}, fmt.Errorf("%w: no layout given", ErrShape)
	}
	var s Strides
	stride := int64(1)
	for i := len(l.order) - 1; i >= 0; i-- {
		extent, field := 0, (*int64)(nil)
		switch l.order[i] {
		case LayerAxis:
			extent, field = e.Layers, &s.Layer
		case BlockAxis:
			extent, field = e.Blocks, &s.Block
		case PartAxis:
			extent, field = e.Parts, &s.Part
		case HeadAxis:
			extent, field = e.Heads, &s.Head
		case TokenAxis:
			extent, field = e.Tokens, &s.Token
		case ElementAxis:
			extent, field = e.Elements, &s.Element
		}
		if extent < 1 {
			return Strides{}, fmt.Errorf("%w: axis %c has extent %d", ErrShape, l.order[i], extent)
		}
		*field = stride
		var ok bool
		if stride, ok = multiply(stride, int64(extent)); !ok {
			return Strides{}, fmt.Errorf("%w: %+v holds more than 2^63 elements", ErrShape, e)
		}
	}
	s.Total = stride
	return s, nil
}

// Offset returns the element offset of p. p must lie within the extents the
// strides were made for.
func (s Strides) Offset(p Point) int64 {
	return int64(p.Layers)*s.Layer + int64(p.Blocks)*s.Block + int64(p.Parts)*s.Part +
		int64(p.Heads)*s.Head + int64(p.Tokens)*s.Token + int64(p.Elements)*s.Element
}
