package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"meridian/checksum"
	"meridian/fabric/link"
	"meridian/mrdn"
)

// stream is one TCP connection of a link.
type stream struct {
	end     link.End
	options *Options
	conn    *net.TCPConn
	raw     syscall.RawConn
	sealed  *sealed // nil without TLS
	// lastHeard is when bytes last came, in nanoseconds; see keepAlive.
	lastHeard atomic.Int64
	// spoke: bytes have left since keepAlive looked last.
	spoke atomic.Bool

	queueMu sync.Mutex // protects control, pong, parts, active, writing, spare, closed, cause
	control []byte     // frames to write, in order
	pong    bool       // one of them answers a ping
	parts   []*outbound
	active  *outbound // taken from parts by writeLoop
	spare   []byte    // a buffer for control to go on in
	writing bool      // somebody is writing: the poster inline, or writeLoop
	closed  bool
	cause   error // why this side closed, where the socket would not say
	wake    chan struct{}
	// serving streams do not read on while their answers are not read.
	serving bool
	// slow, where given, is how long to wait before the next frame.
	slow    func() time.Duration
	drained chan struct{}

	sendMu  sync.Mutex // held around every use of a sender's memory; protects sending, gather
	sending *outbound
	gather  vector
	sent    checksum.Digest
	// plain counts the bytes at the front of gather that are not payload.
	plain   int
	header  [mrdn.ChunkHeaderSize]byte
	trailer [mrdn.ChunkTrailerSize]byte
	// owesTrailer: the last chunk's checksum goes out with whatever is next.
	owesTrailer bool
	staging     []byte
	inline      []byte // what is being written outside writeLoop

	receiveMu sync.Mutex // held around every use of a receiver's memory; protects inbounds
	inbounds  map[uint32]*link.Inbound
	scatter   vector
	in        []byte // buffered input is in[inStart:inEnd]
	inStart   int
	inEnd     int
	received  checksum.Digest
	placing   []byte // staging for memory that is not mapped, or not wanted
	// target is the part that scatter is aimed at, by aimed bytes; behind them
	// comes room for the next header when tail is set.
	target *link.Inbound
	aimed  int
	tail   bool

	// The callbacks of RawConn, made once: a closure per call would allocate.
	writeReady, inlineReady, readReady func(fd uintptr) bool
	writeErr, readErr                  error
	readCount                          int
}

const inputBuffer = 16 << 10

func newStream(secured net.Conn, o *Options, e link.End) (*stream, error) {
	var seal *sealed
	if over, is := secured.(*tls.Conn); is {
		seal, secured = newSealed(over), over.NetConn()
	}
	conn := secured.(*net.TCPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	_ = conn.SetNoDelay(true)
	s := &stream{
		end: e, options: o, conn: conn, raw: raw, sealed: seal, wake: make(chan struct{}, 1), drained: make(chan struct{}, 1),
		inbounds: make(map[uint32]*link.Inbound), in: make([]byte, inputBuffer),
	}
	s.writeReady, s.inlineReady, s.readReady = s.tryWrite, s.tryInline, s.tryRead
	s.lastHeard.Store(time.Now().UnixNano())
	return s, nil
}

// run serves the stream until it breaks, and returns when both directions have
// stopped.
func (s *stream) run() {
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := s.writeLoop(); err != nil {
			s.end.Lost(s.causeOf(err))
		}
	})
	err := s.readLoop()
	if err == nil {
		err = io.EOF
	}
	s.end.Lost(s.causeOf(err))
	s.Close()
	writer.Wait()
}

// causeOf is why the stream ended, where err is what the socket said.
func (s *stream) causeOf(err error) error {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	return err
}

// Close breaks the stream; whoever waits on it wakes up.
func (s *stream) Close() { s.closeFor(nil) }

func (s *stream) closeFor(cause error) {
	s.queueMu.Lock()
	if !s.closed {
		s.closed, s.cause = true, cause
	}
	s.queueMu.Unlock()
	s.conn.Close()
	s.nudge()
	s.noteDrained()
}

// maxUnread bounds the answers that wait for a peer which does not read them.
const maxUnread = 64 << 10

// awaitReader holds a serving stream's reader back until the peer has read its
// answers. The posting side never waits so, or both could wait for each other.
func (s *stream) awaitReader() {
	if !s.serving {
		return
	}
	for {
		s.queueMu.Lock()
		wait := len(s.control) > maxUnread && !s.closed
		s.queueMu.Unlock()
		if !wait {
			return
		}
		<-s.drained
	}
}

func (s *stream) noteDrained() {
	select {
	case s.drained <- struct{}{}:
	default:
	}
}

func (s *stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Quiet stops every part that match selects, in both directions. When it
// returns the stream does not touch their memory any more.
func (s *stream) Quiet(match func(link.Part) bool) {
	s.queueMu.Lock()
	kept := s.parts[:0]
	for _, p := range s.parts {
		if match(p.Part) {
			p.Release()
		} else {
			kept = append(kept, p)
		}
	}
	clear(s.parts[len(kept):])
	s.parts = kept
	// A part that writeLoop has in hand is stopped before sendMu is taken: it
	// either sees that, or is already sending and is detached here.
	active := s.active
	if active != nil && match(active.Part) {
		active.stopped.Store(true)
	} else {
		active = nil
	}
	s.queueMu.Unlock()

	if active != nil {
		s.sendMu.Lock()
		if s.sending == active {
			s.gather.detach()
		}
		active.Release()
		s.sendMu.Unlock()
	}

	s.receiveMu.Lock()
	for handle, p := range s.inbounds {
		if match(p.Part) {
			p.Discard = true // for the chunk that is being placed
			p.Release()
			delete(s.inbounds, handle)
		}
	}
	s.receiveMu.Unlock()
}

// keepAlive is called once in a keep-alive. It tells the peer that this side
// lives, unless something has left since the last time, and reports whether the
// peer has been silent for too long.
//
// A side does not wait to be asked: the question may be behind bytes that a slow
// network takes longer than that to deliver. Those bytes are a sign of life to
// the side that they reach, and this is the one to the side that sends them. It
// asks all the same, for peers that speak only when they are asked.
func (s *stream) keepAlive(now time.Time) (dead bool) {
	if !s.spoke.Swap(false) {
		s.sayAlive()
		s.spoke.Store(false)
	}
	silent := now.Sub(time.Unix(0, s.lastHeard.Load()))
	switch {
	case silent > 3*s.options.KeepAlive:
		return true
	case silent > s.options.KeepAlive:
		s.Send(mrdn.AppendPing(nil))
	}
	return false
}
