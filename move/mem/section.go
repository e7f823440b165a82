// Package mem owns memory that transfers touch: where it is, how it is reached,
// and who still uses it.
//
//	Section   one stretch of memory: an arena of our own (DRAM), another
//	          process's (BORROWED), a file (FILE), a GPU's (VRAM)
//	Spans     which bytes of a section, kept as strided runs
//	Cursor    walks Spans piece by piece, cut wherever the caller needs a cut
//
// A section is counted: who touches its bytes holds a reference, and Close
// waits until all are given back. Offsets and lengths that come from outside are
// checked for overflow and bounds before anything is dereferenced.
package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Kind is what memory is made of.
type Kind uint8

// The kinds. VRAM is opened by who brings its backing; Object is named so that
// records can carry it, and cannot be opened yet.
const (
	DRAM Kind = iota + 1
	Borrowed
	File
	VRAM
	Object
)

var kindNames = [...]string{DRAM: "dram", Borrowed: "borrowed", File: "file", VRAM: "vram", Object: "object"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

var (
	// ErrBounds means that a span does not lie within its section.
	ErrBounds = errors.New("mem: out of bounds")
	// ErrClosed means that the section is closing or closed.
	ErrClosed = errors.New("mem: section is closed")
	// ErrGone means that the process that lent the memory has ended.
	ErrGone = errors.New("mem: the lending process is gone")
	// ErrReadOnly means that the section can be read and not written.
	ErrReadOnly = errors.New("mem: section is read-only")
)

// Backing is how memory is reached that is not in this process. Offsets have been
// checked, and a caller that reads or writes holds a reference.
type Backing interface {
	ReadAt(p []byte, offset uint64) error
	WriteAt(p []byte, offset uint64) error
	// Close lets the memory go. It is called once, when no caller holds a reference.
	Close() error
}

// Section is one stretch of memory. Its methods may be called from several
// goroutines; the bytes themselves are not guarded.
type Section struct {
	kind    Kind
	device  uint32
	base    uint64
	size    uint64
	mapped  []byte // the bytes themselves, where they are in this process
	backing Backing
	// readOnly memory is mapped without the right to write: a store would be a
	// SIGSEGV, not an error.
	readOnly bool

	mu      sync.Mutex
	refs    int
	closing bool
	idle    chan struct{} // closed when closing and refs is 0
}

func newSection(kind Kind, base, size uint64, mapped []byte, b Backing) *Section {
	return &Section{kind: kind, base: base, size: size, mapped: mapped, backing: b, idle: make(chan struct{})}
}

// Kind returns what the section is made of.
func (s *Section) Kind() Kind { return s.kind }

// Device is the GPU, NUMA node or disk the section is on.
func (s *Section) Device() uint32 { return s.device }

// Base is the address of the first byte as its owner sees it. Descriptors are
// addresses; Base turns them into offsets.
func (s *Section) Base() uint64 { return s.base }

// Size is the number of bytes.
func (s *Section) Size() uint64 { return s.size }

// Mapped reports whether Bytes works: the memory is in this process.
func (s *Section) Mapped() bool { return s.mapped != nil }

// Writable reports whether the section may be a destination.
func (s *Section) Writable() bool { return !s.readOnly }

// Check reports whether [offset, offset+length) lies within the section.
func (s *Section) Check(offset, length uint64) error {
	if offset > s.size || length > s.size-offset {
		return fmt.Errorf("%w: [%d,+%d) in a section of %d bytes", ErrBounds, offset, length, s.size)
	}
	return nil
}

// Bytes returns the memory itself. The caller holds a reference for as long as
// it uses the slice, has checked the span, and writes only what is Writable.
func (s *Section) Bytes(offset, length uint64) []byte {
	return s.mapped[offset : offset+length : offset+length]
}

// ReadAt copies out of the section, whatever its kind. The caller holds a
// reference.
func (s *Section) ReadAt(p []byte, offset uint64) error {
	if err := s.Check(offset, uint64(len(p))); err != nil {
		return err
	}
	if s.mapped != nil {
		copy(p, s.mapped[offset:])
		return nil
	}
	return s.backing.ReadAt(p, offset)
}

// WriteAt copies into the section, whatever its kind. The caller holds a
// reference.
func (s *Section) WriteAt(p []byte, offset uint64) error {
	if err := s.Check(offset, uint64(len(p))); err != nil {
		return err
	}
	if s.readOnly {
		return ErrReadOnly
	}
	if s.mapped != nil {
		copy(s.mapped[offset:], p)
		return nil
	}
	return s.backing.WriteAt(p, offset)
}

// Acquire takes a reference, or fails once Close has begun.
func (s *Section) Acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	s.refs++
	return nil
}

// Release gives a reference back.
func (s *Section) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs == 0 {
		panic("mem: Release without Acquire")
	}
	if s.refs--; s.refs == 0 && s.closing {
		close(s.idle)
	}
}

// References returns how many there are; tests look for leaks with it.
func (s *Section) References() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refs
}

// Close refuses new references, waits for the old ones, and lets the memory go.
// When ctx ends first the memory stays, still closing, and Close may be called
// again: bytes in use are never pulled from under their user.
func (s *Section) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		if s.refs == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		if left := s.References(); left > 0 {
			return fmt.Errorf("mem: close: %d references left: %w", left, ctx.Err())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backing == nil {
		return nil
	}
	err := s.backing.Close()
	s.backing, s.mapped = nil, nil
	return err
}
