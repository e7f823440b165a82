package kv

import (
	"fmt"
	"slices"
	"strings"
)

// Packing says in which pieces a rank's memory must stay whole. Where an engine
// keeps its elements as the plain grid that the layout names, any cut is
// possible. Where it packs them in an order of its own, for the instructions
// its kernels use, only whole pieces can move, and only to the same packing.
type Packing struct {
	// Unit is the smallest piece that can move.
	Unit PackedUnit
	// Name is what the engine calls the order within a piece. Equal names mean
	// interchangeable bytes; a plain grid has none.
	Name string
}

// PackedUnit is a piece of memory that must stay whole.
type PackedUnit uint8

const (
	// Element: nothing is packed.
	Element PackedUnit = iota
	// HeadOfBlock: all tokens of one block, one head and one layer, K and V
	// together. vLLM on CPU packs so.
	HeadOfBlock
	// WholeBlock: all heads that a rank holds of one block and one layer.
	WholeBlock
)

var unitNames = [...]string{Element: "plain", HeadOfBlock: "head", WholeBlock: "block"}

func (u PackedUnit) String() string {
	if int(u) >= len(unitNames) {
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
	return unitNames[u]
}

// innermost is the axes that lie within one unit.
var innermost = [...]string{Element: "", HeadOfBlock: "DFN", WholeBlock: "DFHN"}

// Plain reports whether any cut is possible.
func (p Packing) Plain() bool { return p.Unit == Element }

// Validate checks p against the layout it is declared with: a unit must be one
// contiguous piece of it.
func (p Packing) Validate(l Layout) error {
	switch {
	case int(p.Unit) >= len(unitNames):
		return fmt.Errorf("%w: unknown packed unit %d", ErrShape, uint8(p.Unit))
	case p.Plain() != (p.Name == ""):
		return fmt.Errorf("%w: packing %q of unit %v: a packing has a name, a plain grid has none", ErrShape, p.Name, p.Unit)
	case len(p.Name) > maxPackingName:
		return fmt.Errorf("%w: the name of a packing has %d bytes, at most %d", ErrShape, len(p.Name), maxPackingName)
	}
	axes := l.Axes()
	within := []byte(axes[len(axes)-len(innermost[p.Unit]):])
	slices.Sort(within)
	if string(within) != innermost[p.Unit] {
		return fmt.Errorf("%w: packing %v needs the axes %s innermost, layout %v has %s", ErrShape, p, innermost[p.Unit], l, axes)
	}
	return nil
}

const maxPackingName = 64

// String writes what ParsePacking reads, e.g. "head:vllm_cpu_fp32".
func (p Packing) String() string {
	if p.Plain() {
		return unitNames[Element]
	}
	return p.Unit.String() + ":" + p.Name
}

// ParsePacking reads "plain", "head:NAME" or "block:NAME".
func ParsePacking(text string) (Packing, error) {
	unit, name, _ := strings.Cut(text, ":")
	at := slices.Index(unitNames[:], unit)
	if at < 0 || (PackedUnit(at) == Element) != (name == "") || len(name) > maxPackingName {
		return Packing{}, fmt.Errorf("%w: unknown packing %q: use plain, head:NAME or block:NAME", ErrShape, text)
	}
	return Packing{Unit: PackedUnit(at), Name: name}, nil
}
