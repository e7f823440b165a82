package tcp

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// scatter reads from the socket: into a buffer of the receiver's, or straight
// into the memory of the parts that are expected. Only readLoop reads; Expect
// and Quiet come from elsewhere.
type scatter struct {
	options *Options
	socket  *socket
	// ready is try, made once: a closure per call would allocate.
	ready func(fd uintptr) bool
	got   int           // by the last try
	err   error         // of the last try
	gpu   stagingBuffer // of GPU memory
	// staged is the GPU memory that the current chunk is for, some of it at least, and
	// held how much of the chunk is in the stage.
	staged *vram.Memory
	held   int

	mu       sync.Mutex // held around every use of a part's memory; protects the rest
	inbounds map[uint32]*link.Inbound
	vector   vector
	sum      checksum.Digest
	placing  []byte // staging for memory that is not mapped, or not wanted
	// target is the part that vector is aimed at, by aimed bytes; behind them
	// comes tail, for what follows the payload.
	target *link.Inbound
	aimed  int
	tail   []byte
	// chunk is where the current one goes, if in one piece.
	chunk fabric.Cut
}

// received is a chunk all of whose bytes have come.
type received struct {
	mrdn.Chunk
	sum uint64     // that came behind it
	at  fabric.Cut // where it goes, if in one piece, and its sums are wanted
}

func newScatter(k *socket, o *Options) *scatter {
	s := &scatter{options: o, socket: k, inbounds: make(map[uint32]*link.Inbound)}
	if s.ready = s.try; k.tls != nil {
		s.ready = s.trySealed
	}
	return s
}

// expect takes a part in. A handle in use names another part, which would be
// lost here and its memory never be quiet.
func (s *scatter) expect(p *link.Inbound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inbounds[p.Handle] != nil {
		return errInUse(p.Handle)
	}
	s.inbounds[p.Handle] = p
	return nil
}

// quiet stops every part that match selects.
func (s *scatter) quiet(match func(link.Part) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for handle, p := range s.inbounds {
		if match(p.Part) {
			p.Discard = true // for the chunk that is being placed
			p.Release()
			delete(s.inbounds, handle)
		}
	}
}

// forget gives back what will never arrive, once the GPU has placed what has.
func (s *scatter) forget() {
	s.gpu.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for handle, p := range s.inbounds {
		p.Release()
		delete(s.inbounds, handle)
	}
}

// begin finds the part of a chunk, nil if no part expects it.
func (s *scatter) begin(c mrdn.Chunk) (*link.Inbound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.inbounds[c.Handle]
	if p != nil && uint64(c.Length) > p.Walk.Left() {
		return nil, errTooLong(c, p.Walk.Left())
	}
	s.sum.Reset()
	if s.staged, s.held = nil, 0; p != nil && !p.Discard {
		s.staged = firstGPU(p.Bound)
	}
	if p != nil && p.Sums != nil {
		ahead := p.Walk
		s.chunk = ahead.Next(uint64(c.Length))
	}
	return p, nil
}

// summed are the sums of the current chunk, all of which was hashed as it was placed.
func (s *scatter) summed() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Sum()
	return s.sum.Sums()
}

// finish compares a chunk's checksum with the sums of what was placed. It reports whether
// that was the end of the part, which the stream's end has not been told of.
func (s *scatter) finish(p *link.Inbound, c received, sums []byte, placeErr error) (ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = placeErr
	if err == nil && !p.Discard && !s.options.NoChecksums {
		err = p.Verify(c.sum, checksum.OfSums(sums), c.Length)
		if at := c.at; err == nil && p.Sums != nil && at.Length == uint64(c.Length) && p.Sums.Wants(p.Bound.List[at.Part].Region, at.Offset, at.Length) {
			p.Sums.Note(at.Offset, sums)
		}
	}
	if err == nil && p.Walk.Left() > 0 {
		return false, nil
	}
	stopped := p.Discard
	p.Discard = p.Discard || err != nil
	if p.Walk.Left() == 0 {
		delete(s.inbounds, c.Handle)
	}
	p.Release()
	return !stopped, err
}

// read reads once into b, waiting for input as needed.
func (s *scatter) read(b []byte) (int, error) {
	s.mu.Lock()
	s.vector.reset()
	s.vector.add(b)
	s.mu.Unlock()
	return s.readOnce()
}

// readInto reads once into p's destination, at most left bytes, and what
// follows the last of them into tail. It returns how much of either it got.
func (s *scatter) readInto(p *link.Inbound, left int, tail []byte) (placed, tailed int, err error) {
	if s.staged != nil {
		return s.readStaged(left, tail)
	}
	s.mu.Lock()
	direct := p != nil && !p.Discard && s.aim(p, left)
	if direct {
		s.target, s.aimed, s.tail = p, s.vector.bytes, nil
		if s.aimed == left {
			s.tail = tail
			s.vector.add(tail)
		}
	} else { // no mapped destination: through a buffer, or to nowhere
		s.vector.reset()
		s.vector.add(s.stage()[:min(left, s.options.ChunkBytes)])
	}
	s.mu.Unlock()
	n, err := s.readOnce()
	s.target = nil
	switch {
	case err != nil:
		return 0, 0, err
	case !direct:
		return n, 0, s.place(p, s.placing[:n])
	}
	return min(n, s.aimed), max(0, n-s.aimed), nil
}

// stagingBuffer is a buffer of a chunk's size.
func (s *scatter) stage() []byte {
	if s.placing == nil {
		s.placing = make([]byte, s.options.ChunkBytes)
	}
	return s.placing
}

// aim fills the vector with the next destination pieces of p. It is false when
// one of them is not mapped. The walk moves on in settle, by what arrived.
func (s *scatter) aim(p *link.Inbound, left int) bool {
	s.vector.reset()
	ahead := p.Walk
	for taken := 0; taken < left && len(s.vector.pieces) < maxPieces; {
		cut := ahead.Next(uint64(left - taken))
		section := p.Bound.Section(cut.Part)
		if !section.Mapped() {
			return false
		}
		s.vector.add(section.Bytes(cut.Offset, cut.Length))
		taken += int(cut.Length)
	}
	return true
}

// place copies b to the next bytes of p's destination and hashes it.
func (s *scatter) place(p *link.Inbound, b []byte) error {
	if s.staged != nil {
		s.held += copy(s.gpu.own().bytes[s.held:], b)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		return nil
	}
	if p.Discard {
		p.Walk.Skip(uint64(len(b)))
		return nil
	}
	for len(b) > 0 {
		cut := p.Walk.Next(uint64(len(b)))
		section, placed := p.Bound.Section(cut.Part), b[:cut.Length]
		if err := section.WriteAt(placed, cut.Offset); err != nil {
			p.Walk.Skip(uint64(len(b)) - cut.Length)
			return fmt.Errorf("%w: %w", errPlacing, err)
		}
		if section.Mapped() {
			placed = section.Bytes(cut.Offset, cut.Length) // what lies there, not what was meant to
		}
		if !s.options.NoChecksums {
			s.sum.Add(placed)
		}
		b = b[cut.Length:]
	}
	return nil
}

// readOnce reads once into the vector, waiting for input as needed.
func (s *scatter) readOnce() (int, error) {
	s.got, s.err = 0, nil
	if err := s.socket.raw.Read(s.ready); err != nil {
		return 0, err
	}
	if s.err == nil {
		s.socket.silence.Received()
	}
	return s.got, s.err
}

// try is called whenever input may be there. It takes mu around the system call
// and everything that touches the destination, so that quiet can come before or
// after, never between.
func (s *scatter) try(fd uintptr) (done bool) {
	for {
		s.mu.Lock()
		s.avoid()
		n, err := s.vector.transfer(unix.SYS_READV, fd)
		if err == nil && n > 0 {
			s.got = n
			s.settle(n)
		}
		s.mu.Unlock()
		switch {
		case err == nil && n == 0:
			s.err = io.EOF
			return true
		case err == nil:
			return true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.err = fmt.Errorf("tcp: read: %w", err)
			return true
		}
	}
}

// avoid turns a vector that is aimed at memory that a fence or a cancel wants quiet into one
// that throws away as much. mu is held.
func (s *scatter) avoid() {
	if s.target == nil || !s.target.Discard {
		return
	}
	s.vector.reset()
	for bytes := s.aimed; bytes > 0; {
		n := min(bytes, len(s.stage()))
		s.vector.add(s.placing[:n])
		bytes -= n
	}
	s.vector.add(s.tail)
}

// settle moves the target's walk over what was just placed, and hashes it while
// it is in the cache. mu is held.
func (s *scatter) settle(n int) {
	p := s.target
	if p == nil {
		return
	}
	placed := uint64(min(n, s.aimed))
	if p.Discard {
		p.Walk.Skip(placed)
		return
	}
	for placed > 0 {
		cut := p.Walk.Next(placed)
		if !s.options.NoChecksums {
			s.sum.Add(p.Bound.Section(cut.Part).Bytes(cut.Offset, cut.Length))
		}
		placed -= cut.Length
	}
}

// trySealed is try through TLS.
func (s *scatter) trySealed(fd uintptr) (done bool) {
	s.socket.sealed.in = fd
	s.got, s.err = s.openRecords()
	if s.got > 0 {
		s.err = nil // it comes again
	}
	return !isDry(s.err)
}

// openRecords opens records that are there into the vector, and never waits.
func (s *scatter) openRecords() (placed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.avoid()
	for s.vector.bytes > 0 && err == nil {
		var n int
		n, err = s.socket.tls.Read(s.vector.piece())
		if n > 0 {
			s.vector.take(n)
			placed += n
		}
	}
	s.settle(placed)
	return placed, err
}
