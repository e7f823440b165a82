package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sealed is the TCP connection below a TLS one. Once it is open, neither
// tls.Read nor tls.Write ever waits for the peer: what the socket has not got
// is an error that passes, what it does not take is kept for flush. So both may
// touch a part's memory under the lock that protects it: bytes are sealed from
// where they lie, and opened to where they belong.
//
//	gather ─ tls.Write ─ record ─► socket ═══════ socket ─► record ─ tls.Read ─► scatter
//	                       └─ what is left: flush
//
// A record's tag proves its bytes on the wire, which makes the checksum of a
// chunk superfluous there, but only there: the checksum is taken over the
// source's memory before the seal and over the destination's after the copy out
// of the opened record, so it stays.
type sealed struct {
	*net.TCPConn
	open bool    // set once, before it is used as a stream
	in   uintptr // descriptor, valid while scatter reads

	mu   sync.Mutex // protects the rest; tls.Read may have to answer a request for new keys
	out  []byte     // records that the socket has not taken
	fd   uintptr    // descriptor, valid while gather writes; else 0
	more bool       // another record follows at once
}

const (
	// maxRecord is what one record of TLS holds.
	maxRecord = 16 << 10
	// maxSealed bounds the records that wait, whatever the peer asks for.
	maxSealed = 1 << 20
)

// dry says that tls.Read needs what has not come yet. It is temporary, so that
// crypto/tls goes on where it was.
type dry struct{}

func (dry) Error() string   { return "tcp: nothing more is there yet" }
func (dry) Timeout() bool   { return true }
func (dry) Temporary() bool { return true }

var errDry net.Error = dry{}

// Read hands out what has come.
func (c *sealed) Read(b []byte) (int, error) {
	if !c.open {
		return c.TCPConn.Read(b)
	}
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, c.in, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch {
		case errno == 0 && n == 0:
			return 0, io.EOF
		case errno == 0:
			return int(n), nil
		case errno == unix.EAGAIN:
			return 0, errDry
		case errno != unix.EINTR:
			return 0, fmt.Errorf("tcp: read: %w", errno)
		}
	}
}

// Write sends a record, or keeps it for flush.
func (c *sealed) Write(b []byte) (int, error) {
	if !c.open {
		return c.TCPConn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(b)
	if len(c.out) == 0 && c.fd != 0 {
		var err error
		if b, err = c.send(b); err != nil {
			return 0, err
		}
	}
	if len(c.out)+len(b) > maxSealed {
		return 0, fmt.Errorf("%w: %d bytes of records wait for it", ErrDeaf, len(c.out))
	}
	c.out = append(c.out, b...)
	return size, nil
}

// send returns what the socket does not take. mu is held.
func (c *sealed) send(b []byte) (rest []byte, err error) {
	flags := unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if c.more {
		flags |= unix.MSG_MORE // the socket waits for it with the last bytes
	}
	for len(b) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, c.fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(flags), 0, 0)
		switch {
		case errno == 0:
			b = b[n:]
		case errno == unix.EAGAIN:
			return b, nil
		case errno != unix.EINTR:
			return nil, fmt.Errorf("tcp: write: %w", errno)
		}
	}
	return nil, nil
}

// flush sends what was kept, as far as the socket takes it.
func (c *sealed) flush(fd uintptr, more bool) (dry bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd, c.more = fd, more
	if len(c.out) == 0 {
		return true, nil
	}
	rest, err := c.send(c.out)
	c.out = append(c.out[:0], rest...)
	return len(c.out) == 0, err
}

// rest ends gather's use of the descriptor.
func (c *sealed) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd = 0
}

func isDry(err error) bool { return errors.Is(err, errDry) }
