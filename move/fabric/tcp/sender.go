package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/move/checksum"
	"meridian/move/fabric/link"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// sender is the queue of a stream: frames that wait to be written, and behind
// them parts, of which each gets a chunk in turn.
type sender struct {
	end     link.End
	options *Options
	socket  *socket
	gather  *gather // what is being written by writeLoop
	fetcher fetcher // of writeLoop
	wake    chan struct{}
	drained chan struct{} // hears when frames have left
	gone    chan struct{} // closed with the stream, by shut
	shut    sync.Once

	mu      sync.Mutex // protects the rest
	control []byte     // frames, in order
	pong    bool       // one of them answers a ping
	spare   []byte     // a buffer for control to go on in
	parts   []*outbound
	active  *outbound // taken from parts by writeLoop
	writing bool      // being written: by the poster inline, or by writeLoop
	closed  bool
	cause   error // why this side closed, where the socket would not say

	inline inlineWrite // of the caller that has set writing, outside writeLoop
}

// outbound is a part whose bytes leave on a stream.
type outbound struct {
	*link.Outbound
	gpu     *vram.Memory // some of its memory is of this GPU; nil for none
	started bool
	// stopped parts must not leave any more.
	stopped atomic.Bool
}

func newSender(k *socket, o *Options, e link.End) *sender {
	s := &sender{
		end: e, options: o, socket: k, gather: newGather(k, o),
		wake: make(chan struct{}, 1), drained: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	s.inline.ready = s.inline.try
	return s
}

// smallPart is what is copied into the control buffer and written at once by
// the poster: for a few KiB a copy is cheaper than a hand-over.
const smallPart = checksum.SmallChunk

const (
	// maxQueued bounds the frames that wait for a peer which does not read.
	maxQueued = 64 << 20
	// maxSmall is where small parts begin to wait in the memory that they are in.
	maxSmall = 1 << 20
	// maxUnread is how many bytes of answers may wait before a serving stream
	// reads no further requests.
	maxUnread = 64 << 10
)

// ErrDeaf ends a link whose peer takes no frames.
var ErrDeaf = errors.New("tcp: the peer does not read what it is sent")

// Send queues frames, and writes them at once when no other is writing: from where
// they are, when nothing waits before them.
func (s *sender) Send(frame []byte) {
	s.mu.Lock()
	if len(s.control) == 0 && !s.writing && !s.closed && s.socket.tls == nil {
		s.writing = true
		s.mu.Unlock()
		rest := s.inline.write(s.socket, frame)
		s.mu.Lock()
		s.wroteLocked(rest)
		return
	}
	if len(s.control)+len(frame) > maxQueued {
		s.mu.Unlock()
		s.closeFor(fmt.Errorf("%w: %d MiB of frames wait for it", ErrDeaf, maxQueued>>20))
		return
	}
	s.control = append(s.control, frame...)
	s.flushLocked()
}

// sayAlive queues a pong. One that waits already answers every ping until it
// leaves: a peer that asks and does not read must not fill memory here.
func (s *sender) sayAlive() {
	s.mu.Lock()
	if s.pong {
		s.mu.Unlock()
		return
	}
	s.pong = true
	s.control = mrdn.AppendPong(s.control)
	s.flushLocked()
}

// Post queues a part. A small one is written at once.
func (s *sender) Post(p *link.Outbound) (link.Progress, error) {
	s.mu.Lock()
	gpu := firstGPU(p.Bound)
	if left := p.Walk.Left(); left == 0 || left <= smallPart && len(s.control) <= maxSmall && gpu == nil {
		err := s.postSmallLocked(p)
		p.Release()
		return link.Sent, err
	}
	if s.closed {
		s.mu.Unlock()
		p.Release()
		return link.Queued, nil // the end learns of it through Lost
	}
	s.parts = append(s.parts, &outbound{Outbound: p, gpu: gpu})
	idle := !s.writing
	s.writing = true
	s.mu.Unlock()
	if idle {
		s.nudge()
	}
	return link.Queued, nil
}

// postSmallLocked puts a whole part into the control buffer. It unlocks mu.
func (s *sender) postSmallLocked(p *link.Outbound) error {
	before := len(s.control)
	s.control = append(s.control, p.Begin...)
	if size := int(p.Walk.Left()); size > 0 {
		start := len(s.control)
		whole := mrdn.ChunkHeaderSize + size + mrdn.ChunkTrailerSize
		s.control = slices.Grow(s.control, whole)[:start+whole]
		payload := s.control[start+mrdn.ChunkHeaderSize:][:size]
		if err := copyOut(p, payload); err != nil {
			s.control = s.control[:before]
			s.mu.Unlock()
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

// takeControlLocked takes all frames that wait. mu is held.
func (s *sender) takeControlLocked() []byte {
	taken := s.control
	s.control, s.pong = s.spare[:0], false
	return taken
}

// keepLocked keeps a buffer that was written for control to go on in, unless it
// is one that a stalled peer made grow. mu is held.
func (s *sender) keepLocked(written []byte) {
	if cap(written) <= 2*maxSmall {
		s.spare = written[:0]
	} else {
		s.spare = nil
	}
}

// flushLocked writes the control buffer now if no call is writing; what the
// socket does not take is left to writeLoop. It unlocks mu.
func (s *sender) flushLocked() {
	if s.writing || s.closed {
		s.mu.Unlock()
		return
	}
	s.writing = true
	if s.socket.tls != nil { // a sealed socket may make us wait
		s.mu.Unlock()
		s.nudge()
		return
	}
	buffer := s.takeControlLocked()
	s.mu.Unlock()
	rest := s.inline.write(s.socket, buffer)
	s.mu.Lock()
	s.keepLocked(buffer)
	s.wroteLocked(rest)
}

// wroteLocked ends an inline write, of which the socket did not take the rest. It
// unlocks mu.
func (s *sender) wroteLocked(rest []byte) {
	if len(rest) > 0 {
		s.control = slices.Concat(rest, s.control)
	}
	again := len(s.control) > 0 || len(s.parts) > 0
	s.writing = again
	s.mu.Unlock()
	if again {
		s.nudge()
	}
}

// inlineWrite writes once and does not wait.
type inlineWrite struct {
	left []byte
	// ready is try, made once: a closure per call would allocate.
	ready func(fd uintptr) bool
}

// write returns what the socket did not take.
func (w *inlineWrite) write(k *socket, b []byte) (rest []byte) {
	w.left = b
	_ = k.raw.Write(w.ready)
	if rest, w.left = w.left, nil; len(rest) < len(b) {
		k.spoke.Store(true)
	}
	return rest
}

func (w *inlineWrite) try(fd uintptr) (done bool) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.left))), uintptr(len(w.left)))
	if errno == 0 {
		w.left = w.left[n:]
	}
	return true
}

// awaitDrain waits until the peer has read all but so many bytes of frames, or
// the stream is closed.
func (s *sender) awaitDrain(most int) {
	for {
		s.mu.Lock()
		wait := len(s.control) > most && !s.closed
		s.mu.Unlock()
		if !wait {
			return
		}
		select {
		case <-s.drained:
		case <-s.gone:
		}
	}
}

// closeFor breaks the stream for a cause, nil where the socket's own word will
// do.
func (s *sender) closeFor(cause error) {
	s.mu.Lock()
	if !s.closed {
		s.closed, s.cause = true, cause
	}
	s.mu.Unlock()
	s.shut.Do(func() { close(s.gone) })
	s.socket.conn.Close()
	s.nudge()
}

// causeOf is why the stream ended, where err is what the socket said.
func (s *sender) causeOf(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	return err
}

func (s *sender) noteDrained() {
	select {
	case s.drained <- struct{}{}:
	default:
	}
}

func (s *sender) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
