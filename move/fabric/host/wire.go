package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// wire is the socket of a link: frames, and descriptors that go with them.
type wire struct {
	owner     frameHandler
	conn      *net.UnixConn
	raw       syscall.RawConn
	keepAlive time.Duration
	silence   link.KeepAlive
	server    *link.Server  // nil at the posting side
	drained   chan struct{} // has room for one word that answers were read
	got       []int         // descriptors that came and were not claimed; the reader's own
	in        input         // …so is this

	mu      sync.Mutex // protects the rest
	out     []byte     // to be sent, in order
	gifts   []attachedFD
	waiting bool // the socket is full, and writeLoop waits for room
	pong    bool // one is in out: it answers every ping until it leaves
	broken  error
	closed  bool
	wake    chan struct{}
	timer   *time.Timer
	now     []byte        // what sendNow sends
	tryNow  func(uintptr) // is try, made once: a closure per call would allocate
}

// attachedFD is a descriptor that goes with the byte of out at which it stands.
type attachedFD struct {
	at   int
	file *os.File
}

// frameHandler is who a wire works for. Calls come from the wire's reader.
type frameHandler interface {
	// frame handles everything but pings; body is valid during the call.
	frame(f mrdn.LinkFrame, body []byte) error
	// lost: the wire is broken.
	lost(err error)
}

func newWire(conn *net.UnixConn, keepAlive time.Duration, o frameHandler) (*wire, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &wire{owner: o, conn: conn, raw: raw, keepAlive: keepAlive, wake: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
	w.tryNow, w.in.ready = w.try, w.in.try
	w.silence.Received()
	return w, nil
}

// maxQueued bounds the frames that wait for a peer which does not read.
const maxQueued = 64 << 20

// ErrDeaf ends a link whose peer takes no frames.
var ErrDeaf = errors.New("host: the peer does not read what it is sent")

// send queues frames and sends what the socket takes at once. It never waits. It
// takes the descriptors over; each stands at the first byte of its frame.
func (w *wire) send(f frames) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		closeAttached(f.gifts)
		return
	}
	if len(w.out)+len(f.bytes) > maxQueued {
		closeAttached(f.gifts)
		w.broken = fmt.Errorf("%w: %d MiB of frames wait for it", ErrDeaf, maxQueued>>20)
		_ = w.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // which ends the reader
		return
	}
	if !w.waiting && len(w.out) == 0 && len(f.gifts) == 0 {
		f.bytes = w.sendNow(f.bytes)
	}
	for _, g := range f.gifts {
		w.gifts = append(w.gifts, attachedFD{len(w.out) + g.at, g.file})
	}
	w.out = append(w.out, f.bytes...)
	if w.waiting || len(w.out) == 0 {
		return
	}
	_ = w.raw.Control(w.flushLocked) // a broken socket shows in the reader
	if len(w.out) > 0 {
		w.waiting = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// sendNow sends frames from where they are, and returns what the socket did not take: a
// copy of a long one costs more than the call does. mu is held, and nothing waits.
func (w *wire) sendNow(frames []byte) (rest []byte) {
	w.now = frames
	_ = w.raw.Control(w.tryNow)
	rest, w.now = w.now, nil
	return rest
}

func (w *wire) try(fd uintptr) {
	for len(w.now) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.now))), uintptr(len(w.now)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			w.now = w.now[n:]
		case errno != unix.EINTR:
			return
		}
	}
}

func closeAttached(gifts []attachedFD) {
	for _, g := range gifts {
		g.file.Close()
	}
}

// flushLocked sends until nothing is left or the socket is full.
func (w *wire) flushLocked(fd uintptr) {
	sent := 0
	for sent < len(w.out) {
		end := len(w.out)
		var rights []byte
		if len(w.gifts) > 0 && w.gifts[0].at == sent {
			rights = unix.UnixRights(int(w.gifts[0].file.Fd()))
			if len(w.gifts) > 1 {
				end = w.gifts[1].at
			}
		} else if len(w.gifts) > 0 {
			end = w.gifts[0].at
		}
		n, err := unix.SendmsgN(int(fd), w.out[sent:end], rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		if rights != nil {
			w.gifts[0].file.Close()
			w.gifts = w.gifts[1:]
		}
		sent += n
	}
	w.out = append(w.out[:0], w.out[sent:]...)
	w.pong = w.pong && len(w.out) > 0
	for i := range w.gifts {
		w.gifts[i].at -= sent
	}
}

// writeLoop sends what the socket did not take at once.
func (w *wire) writeLoop() {
	for range w.wake {
		err := w.raw.Write(func(fd uintptr) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.closed {
				w.flushLocked(fd)
			}
			w.waiting = !w.closed && len(w.out) > 0
			w.noteDrained()
			return !w.waiting
		})
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if err != nil || closed {
			return
		}
	}
}

// run serves the wire until it breaks, and returns when nothing of it runs.
func (w *wire) run() {
	var writer sync.WaitGroup
	writer.Go(w.writeLoop)
	w.tick()
	err := w.readLoop()
	w.mu.Lock()
	if w.broken != nil {
		err = w.broken
	}
	w.mu.Unlock()
	w.owner.lost(err)
	w.close()
	writer.Wait()
	for _, fd := range w.got {
		unix.Close(fd)
	}
}

// close breaks the wire. The socket is closed without the lock, because that
// waits for writeLoop to leave it.
func (w *wire) close() {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	closeAttached(w.gifts)
	w.gifts, w.out = nil, nil
	if w.timer != nil {
		w.timer.Stop()
	}
	if !again {
		close(w.wake)
	}
	w.noteDrained()
	w.mu.Unlock()
	if !again {
		w.conn.Close()
	}
}

// tick asks a silent peer whether it runs, and gives it up when it does not.
func (w *wire) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.timer = time.AfterFunc(w.keepAlive, func() {
		switch ask, over := w.silence.Check(); {
		case over:
			w.owner.lost(fmt.Errorf("no answer for %v", 3*w.keepAlive))
			return
		case ask:
			w.send(frames{bytes: mrdn.AppendPing(nil)})
		}
		w.tick()
	})
}

// hungUp asks the system whether the peer's end is closed, which the reader may
// not have heard yet.
func (w *wire) hungUp() bool {
	over := true
	_ = w.raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		over = err == nil && n > 0 && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return over
}

// readLoop takes frames apart until the wire ends, and says why.
func (w *wire) readLoop() error {
	buffer := make([]byte, 16<<10)
	start, end := 0, 0
	for {
		need := mrdn.PrefixSize
		for end-start >= need {
			frame, length, err := mrdn.ParsePrefix(buffer[start:end])
			if err != nil {
				return err
			}
			if need = mrdn.PrefixSize + int(length); end-start < need {
				break
			}
			body := buffer[start+mrdn.PrefixSize : start+need]
			if err := mrdn.CheckFrame(buffer[start:], body); err != nil {
				return err
			}
			start, need = start+need, mrdn.PrefixSize
			if err := w.handle(frame, body); err != nil {
				return err
			}
		}
		if start == end {
			start, end = 0, 0
		}
		if start+need > len(buffer) {
			grown := buffer
			if need > len(buffer) {
				grown = make([]byte, need) // checked against MaxLinkFrame
			}
			end = copy(grown, buffer[start:end])
			buffer, start = grown, 0
		}
		n, err := w.read(buffer[end:])
		if err != nil {
			return err
		}
		end += n
	}
}

// maxUnclaimed bounds the descriptors that a peer can make us hold; a wire's
// owner claims each with its frame.
const maxUnclaimed = 64

func (w *wire) read(into []byte) (int, error) {
	in := &w.in
	in.vector.Base = unsafe.SliceData(into)
	in.vector.SetLen(len(into))
	if err := w.raw.Read(in.ready); err != nil {
		return 0, err
	}
	if in.errno != 0 {
		return 0, fmt.Errorf("host: read: %w", in.errno)
	}
	if in.header.Controllen > 0 {
		messages, err := unix.ParseSocketControlMessage(in.control[:in.header.Controllen])
		if err != nil {
			return 0, err
		}
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				w.got = append(w.got, fds...)
			}
		}
	}
	switch {
	case in.n == 0:
		return 0, io.EOF
	case in.header.Flags&unix.MSG_CTRUNC != 0 || len(w.got) > maxUnclaimed:
		return 0, fmt.Errorf("%w: too many descriptors", mrdn.ErrLinkFrame)
	}
	w.silence.Received()
	return in.n, nil
}

// input is what a read needs, made once: with it a read allocates nothing.
type input struct {
	vector  unix.Iovec
	header  unix.Msghdr
	control [128]byte
	ready   func(fd uintptr) bool // is try
	n       int
	errno   unix.Errno
}

// try reads what is there, and reports whether that was more than nothing.
func (in *input) try(fd uintptr) (done bool) {
	for {
		in.header = unix.Msghdr{Iov: &in.vector, Control: &in.control[0]}
		in.header.SetIovlen(1)
		in.header.SetControllen(len(in.control))
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&in.header)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if in.n, in.errno = int(n), errno; errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}

// claim is the descriptor that came with the frame being handled.
func (w *wire) claim() (int, error) {
	if len(w.got) == 0 {
		return -1, fmt.Errorf("%w: it came without its descriptor", mrdn.ErrLinkFrame)
	}
	fd := w.got[0]
	w.got = w.got[1:]
	return fd, nil
}

func (w *wire) handle(f mrdn.LinkFrame, body []byte) error {
	switch f {
	case mrdn.PingFrame, mrdn.PongFrame:
		if f == mrdn.PingFrame {
			w.sayAlive()
		}
		if w.server != nil {
			w.server.Wasted()
		}
	default:
		if err := w.owner.frame(f, body); err != nil {
			return err
		}
	}
	if w.server != nil {
		time.Sleep(w.server.ThrottleDelay())
		return w.awaitReader()
	}
	return nil
}

// sayAlive answers a ping, unless an answer waits already: a peer that asks and
// does not read must not fill memory here.
func (w *wire) sayAlive() {
	w.mu.Lock()
	waits := w.pong
	w.pong = true
	w.mu.Unlock()
	if !waits {
		w.send(frames{bytes: mrdn.AppendPong(nil)})
	}
}

// maxUnread bounds the answers that wait for a peer which does not read them.
const maxUnread = 64 << 10

// awaitReader holds a serving wire's reader back until the peer has read its
// answers. The posting side never waits so, or both could wait for each other.
func (w *wire) awaitReader() error {
	for {
		w.mu.Lock()
		wait, closed := len(w.out) > maxUnread, w.closed
		w.mu.Unlock()
		switch {
		case closed: // what was read before is of no use, and might be much
			return net.ErrClosed
		case !wait:
			return nil
		}
		<-w.drained
	}
}

func (w *wire) noteDrained() {
	select {
	case w.drained <- struct{}{}:
	default:
	}
}
