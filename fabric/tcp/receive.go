package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"meridian/fabric/link"
	"meridian/mrdn"
)

// Expect makes the stream ready for the chunks of a part. A handle in use names
// another part, which would be lost here and its memory never be quiet.
func (s *stream) Expect(p *link.Inbound) error {
	s.receiveMu.Lock()
	defer s.receiveMu.Unlock()
	if s.inbounds[p.Handle] != nil {
		return fmt.Errorf("%w: handle %d is in use", mrdn.ErrLinkFrame, p.Handle)
	}
	s.inbounds[p.Handle] = p
	return nil
}

// readLoop takes frames apart until the stream ends.
func (s *stream) readLoop() error {
	defer s.forget()
	for {
		if err := s.fill(mrdn.PrefixSize); err != nil {
			if errors.Is(err, io.EOF) && s.inStart == s.inEnd {
				return nil
			}
			return err
		}
		frame, length, err := mrdn.ParsePrefix(s.in[s.inStart:s.inEnd])
		if err != nil {
			return err
		}
		if err := s.fill(mrdn.PrefixSize + int(length)); err != nil {
			return err
		}
		body := s.in[s.inStart+mrdn.PrefixSize : s.inStart+mrdn.PrefixSize+int(length)]
		if err := mrdn.CheckFrame(s.in[s.inStart:], body); err != nil {
			return err
		}
		s.inStart += mrdn.PrefixSize + int(length)
		switch frame {
		case mrdn.ChunkFrame:
			c, err := mrdn.ParseChunk(body)
			if err != nil {
				return err
			}
			if err := s.receiveChunk(c); err != nil {
				return err
			}
		case mrdn.PingFrame:
			s.sayAlive()
		case mrdn.PongFrame:
		default:
			if err := s.end.Frame(s, frame, body); err != nil {
				return err
			}
			if s.slow != nil {
				time.Sleep(s.slow())
			}
		}
		s.awaitReader()
	}
}

// forget gives back what will never arrive.
func (s *stream) forget() {
	s.receiveMu.Lock()
	defer s.receiveMu.Unlock()
	for handle, p := range s.inbounds {
		p.Release()
		delete(s.inbounds, handle)
	}
}

// fill buffers at least n bytes of input.
func (s *stream) fill(n int) error {
	if s.inEnd-s.inStart >= n {
		return nil
	}
	if s.inStart == s.inEnd {
		s.inStart, s.inEnd = 0, 0
	}
	if s.inStart+n > len(s.in) {
		s.makeRoom(n)
	}
	for s.inEnd-s.inStart < n {
		if s.inEnd == len(s.in) {
			s.makeRoom(n)
		}
		s.receiveMu.Lock()
		s.scatter.reset()
		s.scatter.add(s.in[s.inEnd:])
		s.receiveMu.Unlock()
		got, err := s.readSome()
		if err != nil {
			return err
		}
		s.inEnd += got
	}
	return nil
}

// makeRoom moves what is buffered to the front, of a larger buffer if need be.
// It grows with what has come, not with what was promised.
func (s *stream) makeRoom(n int) {
	into := s.in
	if have := s.inEnd - s.inStart; s.inStart == 0 || n > len(s.in) {
		into = make([]byte, max(len(s.in), min(n, 2*have+inputBuffer)))
	}
	s.inEnd = copy(into, s.in[s.inStart:s.inEnd])
	s.in, s.inStart = into, 0
}

// receiveChunk places the payload that follows a chunk's header, straight into
// its destination, and verifies it there.
func (s *stream) receiveChunk(c mrdn.Chunk) error {
	s.receiveMu.Lock()
	p := s.inbounds[c.Handle]
	if p != nil && uint64(c.Length) > p.Walk.Left() {
		s.receiveMu.Unlock()
		return fmt.Errorf("%w: a chunk of %d bytes where %d are due", mrdn.ErrLinkFrame, c.Length, p.Walk.Left())
	}
	s.received.Reset()
	s.receiveMu.Unlock()

	left, placeErr := int(c.Length), error(nil)
	for left > 0 {
		n, err := s.placeSome(p, left)
		if errors.Is(err, errPlacing) {
			placeErr, err = err, nil
		}
		if err != nil {
			return err
		}
		left -= n
	}
	if err := s.fill(mrdn.ChunkTrailerSize); err != nil {
		return err
	}
	sum := binary.LittleEndian.Uint64(s.in[s.inStart:])
	s.inStart += mrdn.ChunkTrailerSize
	return s.endChunk(p, c, sum, placeErr)
}

// endChunk compares the checksum and reports a part that is complete or broken.
func (s *stream) endChunk(p *link.Inbound, c mrdn.Chunk, sum uint64, placeErr error) error {
	if p == nil {
		return nil // cancelled before it came
	}
	s.receiveMu.Lock()
	err := placeErr
	if err == nil && !p.Discard && !s.options.NoChecksums {
		err = p.Verify(sum, s.received.Sum(), c.Length)
	}
	ended := err != nil || p.Walk.Left() == 0
	stopped := p.Discard
	if ended {
		p.Discard = p.Discard || err != nil
		if p.Walk.Left() == 0 {
			delete(s.inbounds, c.Handle)
		}
		p.Release()
	}
	s.receiveMu.Unlock()
	if ended && !stopped {
		s.end.Arrived(p, err)
	}
	return nil
}

var errPlacing = errors.New("tcp: memory cannot be written")

// placeSome moves at most left payload bytes to their destination: first what
// is buffered, then straight from the socket.
func (s *stream) placeSome(p *link.Inbound, left int) (int, error) {
	if buffered := s.inEnd - s.inStart; buffered > 0 {
		n := min(buffered, left)
		err := s.place(p, s.in[s.inStart:s.inStart+n])
		s.inStart += n
		return n, err
	}
	s.inStart, s.inEnd = 0, 0
	s.receiveMu.Lock()
	direct := p != nil && !p.Discard && s.aim(p, left)
	if !direct {
		// No mapped destination: through a buffer, or to nowhere.
		s.scatter.reset()
		if s.placing == nil {
			s.placing = make([]byte, s.options.ChunkBytes)
		}
		s.scatter.add(s.placing[:min(left, len(s.placing))])
	}
	if direct {
		s.target, s.aimed = p, s.scatter.bytes
		if s.tail = s.aimed == left; s.tail {
			s.scatter.add(s.in[:tailRoom])
		}
	}
	s.receiveMu.Unlock()
	n, err := s.readSome()
	s.target = nil
	switch {
	case err != nil:
		return 0, err
	case !direct:
		return n, s.place(p, s.placing[:n])
	case n > s.aimed: // the rest is the start of the next frame
		s.inEnd = n - s.aimed
		return s.aimed, nil
	}
	return n, nil
}

// tailRoom is for what follows a payload: its checksum and the next header.
const tailRoom = mrdn.ChunkTrailerSize + mrdn.ChunkHeaderSize

// aim fills the vector with the next destination pieces of p. It is false when
// one of them is not mapped. The walk moves on in settle, by what arrived.
func (s *stream) aim(p *link.Inbound, left int) bool {
	s.scatter.reset()
	ahead := p.Walk
	for taken := 0; taken < left && len(s.scatter.pieces) < maxPieces; {
		cut := ahead.Next(uint64(left - taken))
		section := p.Bound.Section(cut.Part)
		if !section.Mapped() {
			return false
		}
		s.scatter.add(section.Bytes(cut.Offset, cut.Length))
		taken += int(cut.Length)
	}
	return true
}

// place copies b to the next bytes of p's destination and hashes it.
func (s *stream) place(p *link.Inbound, b []byte) error {
	s.receiveMu.Lock()
	defer s.receiveMu.Unlock()
	if p == nil {
		return nil
	}
	if p.Discard {
		p.Walk.Skip(uint64(len(b)))
		return nil
	}
	if !s.options.NoChecksums {
		s.received.Add(b)
	}
	for len(b) > 0 {
		cut := p.Walk.Next(uint64(len(b)))
		if err := p.Bound.Section(cut.Part).WriteAt(b[:cut.Length], cut.Offset); err != nil {
			p.Walk.Skip(uint64(len(b)) - cut.Length)
			return fmt.Errorf("%w: %w", errPlacing, err)
		}
		b = b[cut.Length:]
	}
	return nil
}

// readSome reads once into the vector, waiting for input as needed.
func (s *stream) readSome() (int, error) {
	if s.sealed != nil {
		return s.readSealed()
	}
	s.readCount, s.readErr = 0, nil
	if err := s.raw.Read(s.readReady); err != nil {
		return 0, err
	}
	if s.readErr == nil {
		s.lastHeard.Store(time.Now().UnixNano())
	}
	return s.readCount, s.readErr
}

// tryRead is called whenever input may be there. It takes receiveMu around the
// system call and everything that touches the destination, so that quiet can
// come before or after, never between.
func (s *stream) tryRead(fd uintptr) (done bool) {
	for {
		s.receiveMu.Lock()
		if s.target != nil && s.target.Discard {
			s.divert()
		}
		n, err := s.scatter.transfer(unix.SYS_READV, fd)
		if err == nil && n > 0 {
			s.readCount = n
			s.settle(n)
		}
		s.receiveMu.Unlock()
		switch {
		case err == nil && n == 0:
			s.readErr = io.EOF
			return true
		case err == nil:
			return true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.readErr = fmt.Errorf("tcp: read: %w", err)
			return true
		}
	}
}

// divert turns a vector that was aimed at memory somebody wants quiet into one
// that throws away as much.
func (s *stream) divert() {
	s.scatter.reset()
	if s.placing == nil {
		s.placing = make([]byte, s.options.ChunkBytes)
	}
	for bytes := s.aimed; bytes > 0; {
		n := min(bytes, len(s.placing))
		s.scatter.add(s.placing[:n])
		bytes -= n
	}
	if s.tail {
		s.scatter.add(s.in[:tailRoom])
	}
}

// settle moves the target's walk over what was just placed, and hashes it while
// it is in the cache.
func (s *stream) settle(n int) {
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
			s.received.Add(p.Bound.Section(cut.Part).Bytes(cut.Offset, cut.Length))
		}
		placed -= cut.Length
	}
}
