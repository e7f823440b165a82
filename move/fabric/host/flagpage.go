package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
)

// flagPage is a page of cells that this agent alone writes and its peers look
// at. A flag that flies says that a part of a transfer may still be taken. Before
// them are the pins: what each copier of this agent is taking from a peer right
// now.
type flagPage struct {
	arena   *mem.Arena
	cells   []atomic.Uint64
	copiers int

	mu   sync.Mutex // protects free, turn
	free []uint32
	turn uint64
}

const (
	pageCells  = 1 << 16
	maxCopiers = 1 << 10
)

func newFlagPage(copiers int) (*flagPage, error) {
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "flags", SizeBytes: 8 * pageCells, NUMANode: -1})
	if err != nil {
		return nil, err
	}
	// Peers tell pins apart by their turns alone, so that those of two agents
	// must differ.
	p := &flagPage{arena: arena, cells: cellsOf(arena.Section), copiers: copiers, turn: rand.Uint64() | 1}
	for cell := uint32(pageCells - 1); cell >= uint32(copiers); cell-- {
		p.free = append(p.free, cell)
	}
	return p, nil
}

func cellsOf(s *mem.Section) []atomic.Uint64 {
	first := unsafe.Pointer(unsafe.SliceData(s.Bytes(0, s.Size())))
	return unsafe.Slice((*atomic.Uint64)(first), s.Size()/8)
}

func (p *flagPage) raise() (link.Flag, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return link.Flag{}, fmt.Errorf("%w: %d parts are lent at a time", fabric.ErrBusy, pageCells)
	}
	f := link.Flag{Cell: p.free[len(p.free)-1], Turn: p.turn}
	p.free = p.free[:len(p.free)-1]
	if p.turn++; p.turn == 0 {
		p.turn++ // zero is a flag that is down
	}
	p.cells[f.Cell].Store(f.Turn)
	return f, nil
}

// lower takes a flag down; what a peer takes from now on it will not call done.
func (p *flagPage) lower(f link.Flag) {
	p.cells[f.Cell].Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, f.Cell)
}

// copier is what a worker, or a reader that does a worker's job, holds while it
// copies: the cell in which it pins the flag under which it takes.
type copier struct {
	pin  *atomic.Uint64
	cuts *[maxCuts]cut
	gpu  *scratch // of a copier that launches kernels
}

func (p *flagPage) copier(i int) copier {
	return copier{pin: &p.cells[i], cuts: new([maxCuts]cut), gpu: new(scratch)}
}

func (p *flagPage) close() error { return p.arena.Close(context.Background()) }

// peerPage is a peer's flag page, to look at.
type peerPage struct {
	arena   *mem.Arena
	cells   []atomic.Uint64
	copiers int
}

func newPeerPage(fd int, copiers uint32) (*peerPage, error) {
	arena, err := mem.MapArena(fd, false)
	if err != nil {
		return nil, err
	}
	p := &peerPage{arena: arena, cells: cellsOf(arena.Section), copiers: int(copiers)}
	if copiers > maxCopiers || p.copiers > len(p.cells) {
		_ = p.close()
		return nil, fmt.Errorf("%w: a flag page of %d cells for %d copiers", fabric.ErrRefused, len(p.cells), copiers)
	}
	return p, nil
}

// fits reports whether f can be a flag of this page.
func (p *peerPage) fits(f link.Flag) bool {
	return uint64(f.Cell) < uint64(len(p.cells)) && f.Turn != 0
}

func (p *peerPage) flies(f link.Flag) bool { return p.cells[f.Cell].Load() == f.Turn }

// takes reports whether a copier of the peer has pinned a flag of ours.
func (p *peerPage) takes(f link.Flag) bool {
	for i := range p.copiers {
		if p.cells[i].Load() == f.Turn {
			return true
		}
	}
	return false
}

func (p *peerPage) close() error { return p.arena.Close(context.Background()) }
