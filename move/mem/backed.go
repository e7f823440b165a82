package mem

import "fmt"

// BackedOptions describes memory of a kind that this room cannot reach by itself.
type BackedOptions struct {
	// Kind is VRAM: the other kinds have ways of their own to be opened.
	Kind Kind
	// Device keeps addresses apart: two sections of one device must not overlap.
	Device uint32
	// Address and SizeBytes are the stretch, as its owner sees it.
	Address, SizeBytes uint64
	ReadOnly           bool
	Backing            Backing
}

// OpenBacked makes a section of memory that its caller knows how to reach. It
// takes the backing over, unless it fails.
func OpenBacked(o BackedOptions) (*Section, error) {
	switch {
	case o.Kind != VRAM:
		return nil, fmt.Errorf("mem: memory of kind %v is not opened by a backing of its own", o.Kind)
	case o.SizeBytes == 0 || o.Address+o.SizeBytes < o.Address:
		return nil, fmt.Errorf("%w: %v [%#x,+%d)", ErrBounds, o.Kind, o.Address, o.SizeBytes)
	case o.Backing == nil:
		return nil, fmt.Errorf("mem: %v memory without a backing", o.Kind)
	}
	s := newSection(o.Kind, o.Address, o.SizeBytes, nil, o.Backing)
	s.device, s.readOnly = o.Device, o.ReadOnly
	return s, nil
}

// Backing is what OpenBacked was given, and nil for sections that were opened
// otherwise. The caller holds a reference while it uses it.
func (s *Section) Backing() Backing {
	if s.kind != VRAM {
		return nil
	}
	return s.backing
}
