package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"

	"meridian/fabric"
	"meridian/mem"
)

// board is a page of cells that this agent alone writes and its peers look at.
// A flag that flies says that a region, or a write, still holds. Behind them are
// the pins: what each hand of this agent is taking from a peer right now.
type board struct {
	arena *mem.Arena
	cells []atomic.Uint64
	hands int

	mu   sync.Mutex // protects free, turn
	free []uint32
	turn uint64
}

// flag is one use of a cell. Turns never come again, so that a cell can.
type flag struct {
	cell uint32
	turn uint64
}

const (
	boardCells = 1 << 16
	pinsEach   = 2 // of a hand: the region, and the write
	maxHands   = 1 << 10
)

func newBoard(hands int) (*board, error) {
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "board", SizeBytes: 8 * boardCells, NUMANode: -1})
	if err != nil {
		return nil, err
	}
	// Peers tell pins apart by their turns alone, so that those of two agents
	// must differ.
	b := &board{arena: arena, cells: cellsOf(arena.Section), hands: hands, turn: rand.Uint64() | 1}
	for cell := uint32(boardCells - 1); cell >= uint32(pinsEach*hands); cell-- {
		b.free = append(b.free, cell)
	}
	return b, nil
}

func cellsOf(s *mem.Section) []atomic.Uint64 {
	first := unsafe.Pointer(unsafe.SliceData(s.Bytes(0, s.Size())))
	return unsafe.Slice((*atomic.Uint64)(first), s.Size()/8)
}

func (b *board) raise() (flag, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) == 0 {
		return flag{}, fmt.Errorf("%w: %d regions and writes at a time", fabric.ErrBusy, boardCells)
	}
	f := flag{cell: b.free[len(b.free)-1], turn: b.turn}
	b.free = b.free[:len(b.free)-1]
	if b.turn++; b.turn == 0 {
		b.turn++ // zero is a flag that is down
	}
	b.cells[f.cell].Store(f.turn)
	return f, nil
}

// lower takes a flag down; what a peer takes from now on it will not place.
func (b *board) lower(f flag) {
	if f.turn == 0 {
		return
	}
	b.cells[f.cell].Store(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, f.cell)
}

// hand is what a worker, or whoever does a worker's job, holds while it copies.
type hand struct {
	region, write *atomic.Uint64
}

func (b *board) hand(i int) hand { return hand{&b.cells[pinsEach*i], &b.cells[pinsEach*i+1]} }

func (h hand) unpin() {
	h.region.Store(0)
	h.write.Store(0)
}

func (b *board) close() error { return b.arena.Close(context.Background()) }

// view is a peer's board, to look at.
type view struct {
	arena *mem.Arena
	cells []atomic.Uint64
	hands int
}

func newView(fd int, hands uint32) (*view, error) {
	arena, err := mem.MapArena(fd, false)
	if err != nil {
		return nil, err
	}
	v := &view{arena: arena, cells: cellsOf(arena.Section), hands: int(hands)}
	if hands > maxHands || pinsEach*v.hands > len(v.cells) {
		_ = v.close()
		return nil, fmt.Errorf("%w: a board of %d cells for %d hands", fabric.ErrRefused, len(v.cells), hands)
	}
	return v, nil
}

// fits reports whether f can be a flag of this board.
func (v *view) fits(f flag) bool { return uint64(f.cell) < uint64(len(v.cells)) && f.turn != 0 }

func (v *view) flies(f flag) bool { return v.cells[f.cell].Load() == f.turn }

// taking reports whether a hand of the peer has pinned a flag of ours.
func (v *view) taking(f flag) bool {
	for i := range pinsEach * v.hands {
		if v.cells[i].Load() == f.turn {
			return true
		}
	}
	return false
}

func (v *view) close() error { return v.arena.Close(context.Background()) }
