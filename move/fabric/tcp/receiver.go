package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// receiver takes apart what arrives on a stream: frames into its buffer and to
// the end, chunks to where they belong. All of it runs on readLoop's goroutine,
// but for Expect.
type receiver struct {
	stream  *stream
	scatter *scatter
	buffer  []byte // buffered input is buffer[start:end]
	start   int
	bound   int
	limits  *peerLimits // nil at the posting side
}

// peerLimits is what a serving stream must bear in mind of its peer.
type peerLimits struct {
	// server counts what the peer sends to no purpose, and says how long to wait
	// before its next frame.
	server *link.Server
	// large is the right to read a large frame, which one stream of a link has at a
	// time: a peer with many streams and half a frame on each would else hold as
	// much on each. With it goes the room that the link keeps for them, or nil.
	large chan []byte
}

const (
	inputBuffer = 16 << 10
	// largeFrame is what a stream buffers without asking.
	largeFrame = 64 << 10
	// keptRoom is for frames as large as messages with an object are: they come one
	// after the other, and new memory for each costs more than its bytes do.
	keptRoom = 320 << 10
)

func newReceiver(s *stream) *receiver {
	return &receiver{stream: s, scatter: newScatter(s.socket, s.options), buffer: make([]byte, inputBuffer)}
}

// Expect makes the stream ready for the chunks of a part.
func (r *receiver) Expect(p *link.Inbound) error { return r.scatter.expect(p) }

// readLoop takes frames apart until the stream ends.
func (r *receiver) readLoop() error {
	defer r.scatter.forget()
	defer r.limits.leave()
	for {
		if err := r.fill(mrdn.PrefixSize); err != nil {
			if errors.Is(err, io.EOF) && r.start == r.bound {
				return nil
			}
			return err
		}
		frame, length, err := mrdn.ParsePrefix(r.buffer[r.start:r.bound])
		if err != nil {
			return err
		}
		if err := r.readFrame(frame, mrdn.PrefixSize+int(length)); err != nil {
			return err
		}
		if r.limits != nil {
			// The posting side never waits so, or both could wait for each other.
			r.stream.awaitDrain(maxUnread)
		}
	}
}

// readFrame reads a frame of so many bytes; a large one into the buffer that the
// link has for it.
func (r *receiver) readFrame(frame mrdn.LinkFrame, size int) error {
	if r.limits != nil && size > largeFrame {
		giveBack, err := r.borrowRoom(size)
		if err != nil {
			return err
		}
		defer giveBack()
	}
	if err := r.fill(size); err != nil {
		return err
	}
	whole := r.buffer[r.start : r.start+size]
	if err := mrdn.CheckFrame(whole, whole[mrdn.PrefixSize:]); err != nil {
		return err
	}
	r.start += size
	return r.handle(frame, whole[mrdn.PrefixSize:])
}

// borrowRoom goes on in a buffer of so many bytes until the frame is read. It is
// mapped and not made, so that what a peer makes an agent hold is what it has
// sent, to the page, and is free as soon as the frame is, or the link where it is
// small: on the heap it would grow by copies, and the remains of links that ended
// would wait for a collector.
func (r *receiver) borrowRoom(size int) (giveBack func(), err error) {
	kept, err := r.awaitLarge()
	if err != nil {
		return nil, err
	}
	room := kept
	if size > keptRoom {
		room, err = mapRoom(size)
	} else if kept == nil {
		kept, err = mapRoom(keptRoom)
		room = kept
	}
	if err != nil {
		r.limits.large <- kept
		return nil, fmt.Errorf("tcp: no memory for a frame of %d bytes: %w", size, err)
	}
	small := r.buffer
	r.start, r.bound, r.buffer = 0, copy(room, small[r.start:r.bound]), room
	return func() {
		r.buffer, r.start, r.bound = small, 0, 0 // there is nothing behind the frame
		if size > keptRoom {
			_ = unix.Munmap(room)
		}
		r.limits.large <- kept
	}, nil
}

// awaitLarge waits for the right to read a large frame. Meanwhile the stream is not
// read, which is not the peer's silence.
func (r *receiver) awaitLarge() (kept []byte, err error) {
	select {
	case kept = <-r.limits.large:
		return kept, nil
	default:
	}
	r.stream.socket.silence.Paused(true)
	defer r.stream.socket.silence.Paused(false)
	select {
	case kept = <-r.limits.large:
		return kept, nil
	case <-r.stream.gone:
		return nil, io.ErrClosedPipe
	}
}

func mapRoom(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// leave gives back the room that the link keeps. Streams end together: one that has
// it now leaves, too.
func (g *peerLimits) leave() {
	if g == nil {
		return
	}
	select {
	case kept := <-g.large:
		if kept != nil {
			_ = unix.Munmap(kept)
		}
		g.large <- nil
	default:
	}
}

func (r *receiver) handle(frame mrdn.LinkFrame, body []byte) error {
	switch frame {
	case mrdn.ChunkFrame:
		c, err := mrdn.ParseChunk(body)
		if err != nil {
			return err
		}
		return r.receiveChunk(c)
	case mrdn.PingFrame:
		r.stream.sayAlive()
		r.limits.wasted()
	case mrdn.PongFrame:
		r.limits.wasted()
	default:
		if err := r.stream.end.Frame(r.stream, frame, body); err != nil {
			return err
		}
	}
	return r.awaitThrottle()
}

// wasted counts a frame that led to nothing.
func (g *peerLimits) wasted() {
	if g != nil {
		g.server.Wasted()
	}
}

// awaitThrottle lets a peer wait whose frames lead to nothing.
func (r *receiver) awaitThrottle() error {
	if r.limits == nil {
		return nil
	}
	time.Sleep(r.limits.server.ThrottleDelay())
	select {
	case <-r.stream.gone: // what was read before is of no use, and might be much
		return io.ErrClosedPipe
	default:
		return nil
	}
}

// fill buffers at least n bytes of input.
func (r *receiver) fill(n int) error {
	if r.bound-r.start >= n {
		return nil
	}
	if r.start == r.bound {
		r.start, r.bound = 0, 0
	}
	if r.start+n > len(r.buffer) {
		r.makeRoom(n)
	}
	for r.bound-r.start < n {
		if r.bound == len(r.buffer) {
			r.makeRoom(n)
		}
		room := r.buffer[r.bound:]
		if n > inputBuffer { // no more than the frame: its buffer is soon let go of
			room = r.buffer[r.bound:min(len(r.buffer), r.start+n)]
		}
		got, err := r.scatter.read(room)
		if err != nil {
			return err
		}
		r.bound += got
	}
	return nil
}

// makeRoom moves what is buffered to the front, of a larger buffer if need be.
// It grows with what has come, not with what was promised.
func (r *receiver) makeRoom(n int) {
	into := r.buffer
	if have := r.bound - r.start; r.start == 0 || n > len(r.buffer) {
		into = make([]byte, max(len(r.buffer), min(n, 2*have+inputBuffer)))
	}
	r.bound = copy(into, r.buffer[r.start:r.bound])
	r.buffer, r.start = into, 0
}

// receiveChunk places the payload that follows a chunk's header, straight into
// its destination, and verifies it there.
func (r *receiver) receiveChunk(c mrdn.Chunk) error {
	p, err := r.scatter.begin(c)
	if err != nil {
		return err
	}
	r.scatter.prepare()
	left, placeErr := int(c.Length), error(nil)
	for left > 0 {
		n, err := r.placeSome(p, left)
		if errors.Is(err, errPlacing) {
			placeErr, err = err, nil
		}
		if err != nil {
			return err
		}
		left -= n
	}
	if err := r.fill(mrdn.ChunkTrailerSize); err != nil {
		return err
	}
	sum := binary.LittleEndian.Uint64(r.buffer[r.start:])
	r.start += mrdn.ChunkTrailerSize
	if p == nil { // cancelled before it came
		r.limits.wasted()
		return r.awaitThrottle()
	}
	whole := received{c, sum, r.scatter.chunk}
	if r.scatter.staged != nil {
		r.land(p, whole)
	} else {
		r.finish(p, whole, r.scatter.summed(), placeErr)
	}
	return nil
}

// finish ends a chunk, and tells the end when it has ended its part.
func (r *receiver) finish(p *link.Inbound, c received, sums []byte, placeErr error) {
	if ended, err := r.scatter.finish(p, c, sums, placeErr); ended {
		r.stream.end.Arrived(p, err)
	}
}

// tailRoom is for what follows a payload: its checksum and the next header.
const tailRoom = mrdn.ChunkTrailerSize + mrdn.ChunkHeaderSize

// placeSome moves at most left payload bytes to their destination: first what
// is buffered, then straight from the socket.
func (r *receiver) placeSome(p *link.Inbound, left int) (int, error) {
	if buffered := r.bound - r.start; buffered > 0 {
		n := min(buffered, left)
		err := r.scatter.place(p, r.buffer[r.start:r.start+n])
		r.start += n
		return n, err
	}
	r.start, r.bound = 0, 0
	placed, tail, err := r.scatter.readInto(p, left, r.buffer[:tailRoom])
	r.bound = tail
	return placed, err
}

var errPlacing = errors.New("tcp: memory cannot be written")

func errInUse(handle uint32) error {
	return fmt.Errorf("%w: handle %d is in use", mrdn.ErrLinkFrame, handle)
}

func errTooLong(c mrdn.Chunk, due uint64) error {
	return fmt.Errorf("%w: a chunk of %d bytes where %d are due", mrdn.ErrLinkFrame, c.Length, due)
}
