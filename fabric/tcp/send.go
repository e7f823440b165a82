package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/checksum"
	"meridian/fabric/link"
	"meridian/mrdn"
)

// outbound is a part whose bytes leave on a stream.
type outbound struct {
	*link.Outbound
	started bool
	// stopped parts must not leave any more.
	stopped atomic.Bool
}

// smallPart is what is copied into the control buffer and written at once by
// whoever posts it: for a few KiB a copy is cheaper than a hand-over.
const smallPart = checksum.SmallChunk

// maxQueued bounds the frames that wait for a peer which does not read; maxSmall
// is where parts begin to wait in the memory that they are in.
const (
	maxQueued = 64 << 20
	maxSmall  = 1 << 20
)

// ErrDeaf ends a link whose peer takes no frames.
var ErrDeaf = errors.New("tcp: the peer does not read what it is sent")

// Send queues a frame, and writes it at once when nobody else is writing.
func (s *stream) Send(frame []byte) {
	s.queueMu.Lock()
	if len(s.control)+len(frame) > maxQueued {
		s.queueMu.Unlock()
		s.closeFor(fmt.Errorf("%w: %d MiB of frames wait for it", ErrDeaf, maxQueued>>20))
		return
	}
	s.control = append(s.control, frame...)
	s.flushLocked()
}

// sayAlive queues a pong. One that waits already answers every ping until it
// leaves: a peer that asks and does not read must not fill memory here.
func (s *stream) sayAlive() {
	s.queueMu.Lock()
	if s.pong {
		s.queueMu.Unlock()
		return
	}
	s.pong = true
	s.control = mrdn.AppendPong(s.control)
	s.flushLocked()
}

// takeControlLocked takes all frames that wait. queueMu is held.
func (s *stream) takeControlLocked() []byte {
	taken := s.control
	s.control, s.pong = s.spare[:0], false
	return taken
}

// keepLocked keeps a buffer that was written for control to go on in, unless it
// is one that a stalled peer made grow. queueMu is held.
func (s *stream) keepLocked(written []byte) {
	if cap(written) <= 2*maxSmall {
		s.spare = written[:0]
	} else {
		s.spare = nil
	}
}

// Post queues a part. A small one is written at once.
func (s *stream) Post(p *link.Outbound) (link.Progress, error) {
	s.queueMu.Lock()
	if left := p.Walk.Left(); left == 0 || left <= smallPart && len(s.control) <= maxSmall {
		err := s.postSmallLocked(p)
		p.Release()
		return link.Sent, err
	}
	if s.closed {
		s.queueMu.Unlock()
		p.Release()
		return link.Queued, nil // the end learns of it through Lost
	}
	s.parts = append(s.parts, &outbound{Outbound: p})
	idle := !s.writing
	s.writing = true
	s.queueMu.Unlock()
	if idle {
		s.nudge()
	}
	return link.Queued, nil
}

// postSmallLocked puts a whole part into the control buffer. It unlocks queueMu.
func (s *stream) postSmallLocked(p *link.Outbound) error {
	before := len(s.control)
	s.control = append(s.control, p.Begin...)
	if size := int(p.Walk.Left()); size > 0 {
		start := len(s.control)
		whole := mrdn.ChunkHeaderSize + size + mrdn.ChunkTrailerSize
		s.control = slices.Grow(s.control, whole)[:start+whole]
		payload := s.control[start+mrdn.ChunkHeaderSize:][:size]
		if err := copyOut(p, payload); err != nil {
			s.control = s.control[:before]
			s.queueMu.Unlock()
			return err
		}
		mrdn.Chunk{Handle: p.Handle, Length: uint32(size)}.Put(s.control[start:])
		var sum uint64
		if !s.options.NoChecksums {
			sum = checksum.Of(payload)
		}
		binary.LittleEndian.PutUint64(s.control[start+mrdn.ChunkHeaderSize+size:], sum)
	}
	s.flushLocked()
	return nil
}

// copyOut copies a part's bytes into b.
func copyOut(p *link.Outbound, b []byte) error {
	for len(b) > 0 {
		cut := p.Walk.Next(uint64(len(b)))
		if err := p.Bound.Section(cut.Part).ReadAt(b[:cut.Length], cut.Offset); err != nil {
			return err
		}
		b = b[cut.Length:]
	}
	return nil
}

// flushLocked writes the control buffer now if nobody is writing; what the
// socket does not take is left to writeLoop. It unlocks queueMu.
func (s *stream) flushLocked() {
	if s.writing || s.closed {
		s.queueMu.Unlock()
		return
	}
	s.writing = true
	if s.sealed != nil { // a sealed socket may make us wait
		s.queueMu.Unlock()
		s.nudge()
		return
	}
	buffer := s.takeControlLocked()
	s.queueMu.Unlock()

	s.inline = buffer
	_ = s.raw.Write(s.inlineReady)
	rest := s.inline

	s.queueMu.Lock()
	if len(rest) > 0 {
		s.control = append(append([]byte(nil), rest...), s.control...)
	}
	s.keepLocked(buffer)
	again := len(s.control) > 0 || len(s.parts) > 0
	s.writing = again
	s.queueMu.Unlock()
	if again {
		s.nudge()
	}
}

// tryInline writes once; whatever the socket does not take is left to
// writeLoop, which may wait.
func (s *stream) tryInline(fd uintptr) (done bool) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(s.inline))), uintptr(len(s.inline)))
	if errno == 0 {
		s.spoke.Store(true)
		s.inline = s.inline[n:]
	}
	return true
}

// writeLoop writes whatever is queued, frames first, then a chunk of each part
// in turn, so that no transfer waits behind another.
func (s *stream) writeLoop() error {
	for range s.wake {
		for {
			s.queueMu.Lock()
			if s.closed {
				s.dropLocked()
				s.queueMu.Unlock()
				return nil
			}
			var control []byte
			var p *outbound
			switch {
			case len(s.control) > 0, len(s.parts) == 0 && s.owesTrailer:
				control = s.takeControlLocked()
			case len(s.parts) > 0:
				p, s.parts = s.parts[0], s.parts[1:]
				s.active = p
			default:
				s.writing = false
			}
			idle := !s.writing
			s.queueMu.Unlock()
			if idle {
				break
			}
			var err error
			if p == nil {
				err = s.writeControl(control)
				s.queueMu.Lock()
				s.keepLocked(control)
				s.queueMu.Unlock()
				s.noteDrained()
			} else {
				err = s.writePart(p)
			}
			if err != nil {
				s.queueMu.Lock()
				s.closed = true
				s.dropLocked()
				s.queueMu.Unlock()
				return err
			}
		}
	}
	return nil
}

// dropLocked gives back what will never be sent.
func (s *stream) dropLocked() {
	for _, p := range s.parts {
		p.Release()
	}
	s.parts = nil
}

func (s *stream) writeControl(buffer []byte) error {
	s.sendMu.Lock()
	s.beginGather()
	s.gather.add(buffer)
	s.plain += len(buffer)
	s.sendMu.Unlock()
	return s.writeGathered()
}

// writePart writes one chunk of p and queues the rest behind the others.
func (s *stream) writePart(p *outbound) error {
	if !p.started {
		p.started = true
		if !s.end.Leaving(p.Outbound) {
			s.retire(p, false)
			return nil
		}
		if len(p.Begin) > 0 {
			if err := s.writeControl(p.Begin); err != nil {
				s.retire(p, false)
				return err
			}
		}
	}
	s.sendMu.Lock()
	if p.stopped.Load() {
		s.sendMu.Unlock()
		s.retire(p, false)
		return nil
	}
	s.sending = p
	readErr := s.gatherChunk(p)
	s.sendMu.Unlock()
	var err error
	if readErr == nil {
		err = s.writeGathered()
	}
	s.sendMu.Lock()
	s.sending = nil
	if readErr == nil {
		binary.LittleEndian.PutUint64(s.trailer[:], s.sent.Sum())
		s.owesTrailer = true
	}
	s.sendMu.Unlock()
	more := err == nil && readErr == nil && p.Walk.Left() > 0
	// A broken socket is the end's to hear of through Lost, for all parts.
	if stopped := s.retire(p, more); !more && !stopped && err == nil {
		s.end.Left(p.Outbound, readErr)
	}
	return err
}

// retire ends p's turn: back into the queue when there is more of it, else its
// memory is given back. It reports whether p was stopped.
func (s *stream) retire(p *outbound, more bool) (stopped bool) {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	s.active = nil
	stopped = p.stopped.Load()
	if more && !stopped && !s.closed {
		s.parts = append(s.parts, p)
		return false
	}
	p.Release()
	return stopped
}

// beginGather empties the vector but for the trailer of the chunk before.
func (s *stream) beginGather() {
	s.gather.reset()
	s.plain = 0
	if s.owesTrailer {
		s.gather.add(s.trailer[:])
		s.plain = len(s.trailer)
		s.owesTrailer = false
	}
}

// gatherChunk fills the vector with a header and the next bytes of p.
func (s *stream) gatherChunk(p *outbound) error {
	s.beginGather()
	s.gather.add(s.header[:])
	s.plain += len(s.header)
	size := min(uint64(s.options.ChunkBytes), p.Walk.Left())
	s.sent.Reset()
	taken := uint64(0)
	staged := 0
	for taken < size && len(s.gather.pieces) < maxPieces {
		cut := p.Walk.Next(size - taken)
		section := p.Bound.Section(cut.Part)
		var piece []byte
		if section.Mapped() {
			piece = section.Bytes(cut.Offset, cut.Length)
		} else {
			if s.staging == nil {
				s.staging = make([]byte, s.options.ChunkBytes)
			}
			piece = s.staging[staged : staged+int(cut.Length)]
			if err := section.ReadAt(piece, cut.Offset); err != nil {
				return err
			}
			staged += int(cut.Length)
		}
		s.gather.add(piece)
		taken += cut.Length
	}
	mrdn.Chunk{Handle: p.Handle, Length: uint32(taken)}.Put(s.header[:])
	return nil
}

// writeGathered writes the whole vector, waiting for the socket as needed.
func (s *stream) writeGathered() error {
	if s.sealed != nil {
		return s.writeSealed()
	}
	s.writeErr = nil
	if err := s.raw.Write(s.writeReady); err != nil {
		return err
	}
	return s.writeErr
}

// tryWrite is called whenever the socket may take bytes. It takes sendMu for
// each system call only, so that quiet can come between two of them.
func (s *stream) tryWrite(fd uintptr) (done bool) {
	for {
		s.sendMu.Lock()
		if s.gather.bytes == 0 {
			s.sendMu.Unlock()
			return true
		}
		n, err := s.gather.transfer(unix.SYS_WRITEV, fd)
		if err == nil {
			s.spoke.Store(true)
			s.settleSent(n)
		}
		s.sendMu.Unlock()
		switch {
		case err == nil && n == 0:
			s.writeErr = io.ErrShortWrite
			return true
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.writeErr = fmt.Errorf("tcp: write: %w", err)
			return true
		}
	}
}

// settleSent uses up n bytes of the vector and hashes the payload among them,
// which the kernel has just copied and so is in the cache. A part that was
// stopped meanwhile left a copy of its bytes, so that the sum stays right.
func (s *stream) settleSent(n int) {
	for n > 0 {
		n -= len(s.takeSent(n))
	}
}

// takeSent uses up at most n bytes of the vector, and hashes what is payload.
func (s *stream) takeSent(n int) []byte {
	b := s.gather.take(n)
	plain := min(s.plain, len(b))
	s.plain -= plain
	if !s.options.NoChecksums {
		s.sent.Add(b[plain:])
	}
	return b
}
