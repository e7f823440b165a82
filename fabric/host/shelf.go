package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/mem"
	"meridian/mrdn"
)

// shelf holds what one peer has lent on one connection: its board, and regions
// mapped to be read.
type shelf struct {
	mu       sync.Mutex // protects the rest
	board    *view
	open     bool
	loans    map[uint64]*loan // by region
	users    int              // of the board
	closed   bool
	hopeless bool // the peer stopped in the middle of a piece
}

// loan is a region of the peer's.
type loan struct {
	part     fabric.Part // its name, without spans
	flag     flag
	board    *view
	arena    *mem.Arena
	users    int // protected by shelf.mu
	returned bool
}

func (l *loan) flies() bool { return l.board.flies(l.flag) }

func (s *shelf) putBoard(b mrdn.Board, fd int) error {
	v, err := newView(fd, b.Hands)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.board != nil || s.closed {
		_ = v.close()
		return fmt.Errorf("%w: a second board", mrdn.ErrLinkFrame)
	}
	s.board, s.loans, s.open = v, make(map[uint64]*loan), !b.Guarded
	return nil
}

// isOpen: the peer is known to let anybody read what it lends.
func (s *shelf) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// put maps a region that was lent, in place of an older loan of it.
func (s *shelf) put(m mrdn.Lend, fd int) error {
	arena, err := mem.MapArena(fd, false)
	if err != nil {
		return fmt.Errorf("%w: region %d was lent badly: %w", fabric.ErrRefused, m.Region, err)
	}
	l := &loan{part: fabric.Part{Region: m.Region, Epoch: m.Epoch}, flag: flag{m.Cell, m.Turn}, arena: arena}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.board == nil || !s.board.fits(l.flag) {
		_ = arena.Close(context.Background())
		return fmt.Errorf("%w: a loan without a flag", mrdn.ErrLinkFrame)
	}
	l.board = s.board
	if old := s.loans[m.Region]; old != nil {
		s.giveBackLocked(old)
	}
	s.loans[m.Region] = l
	return nil
}

// take finds the loan of every part of a list, for use until release. A part
// without one that still holds is in missing, and then nothing is taken.
func (s *shelf) take(l fabric.List) (loans []*loan, missing []fabric.Part, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range l {
		name := fabric.Part{Region: l[i].Region, Epoch: l[i].Epoch}
		held := s.loans[name.Region]
		if held == nil || held.part.Epoch != name.Epoch || !held.flies() {
			missing = append(missing, name)
			continue
		}
		if err := l[i].Spans.Check(held.arena.Size()); err != nil {
			return nil, nil, fmt.Errorf("region %d: %w", name.Region, err)
		}
		loans = append(loans, held)
	}
	if len(missing) > 0 {
		return nil, missing, nil
	}
	for _, held := range loans {
		held.users++
	}
	s.users++
	return loans, nil, nil
}

func (s *shelf) release(loans []*loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range loans {
		if l.users--; l.users == 0 && l.returned {
			_ = l.arena.Close(context.Background())
		}
	}
	s.unuseLocked()
}

func (s *shelf) unuseLocked() {
	if s.users--; s.users == 0 && s.closed {
		_ = s.board.close()
	}
}

// giveBackLocked unmaps a loan, once nobody uses it.
func (s *shelf) giveBackLocked(l *loan) {
	delete(s.loans, l.part.Region)
	l.returned = true
	if l.users == 0 {
		_ = l.arena.Close(context.Background())
	}
}

// recall gives a region back.
func (s *shelf) recall(m mrdn.Recall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.loans[m.Region]; l != nil && l.flag.turn == m.Turn {
		s.giveBackLocked(l)
	}
}

// stoppedPeer is how long settle waits for a peer that does not run.
const stoppedPeer = 500 * time.Millisecond

// settle waits until the peer has ended the piece that it was taking under f, a
// flag of ours that is down. That is some microseconds, and nothing rests on it
// but what an InDoubt destination holds; so a peer that was stopped at just that
// moment is waited for once, and not for long.
func (s *shelf) settle(f flag) {
	s.mu.Lock()
	board := s.board
	if board == nil || s.closed || s.hopeless {
		s.mu.Unlock()
		return
	}
	s.users++
	s.mu.Unlock()
	hopeless := false
	for start := time.Now(); board.taking(f) && !hopeless; time.Sleep(10 * time.Microsecond) {
		hopeless = time.Since(start) > stoppedPeer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hopeless = s.hopeless || hopeless
	s.unuseLocked()
}

// close gives everything back, as soon as nobody uses it.
func (s *shelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, l := range s.loans {
		s.giveBackLocked(l)
	}
	if s.board != nil && s.users == 0 {
		_ = s.board.close()
	}
}
