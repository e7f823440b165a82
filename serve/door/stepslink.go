package door

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/serve/door/doorpb"
)

// stepsLink is one connection for steps. Who takes what was decided reads it himself:
// another goroutine between him and the socket would cost him as much as the way itself.
type stepsLink struct {
	conn     *Conn
	raw      syscall.RawConn
	maxBytes int
	known    bool // the engine knows that it is new; under the owner's mu

	sent atomic.Uint64 // the number of the last Step

	// Of Take.
	in    []byte // read, and not yet a whole frame
	heard uint64 // the step of the last Decision
}

func newStepsLink(conn *Conn, welcome *doorpb.Welcome) (*stepsLink, error) {
	raw, err := conn.Socket().SyscallConn()
	if err != nil {
		return nil, err
	}
	most := int(welcome.GetMaxFrameBytes())
	if most <= 0 || most > MaxFrameBytes {
		most = MaxFrameBytes
	}
	return &stepsLink{conn: conn, raw: raw, maxBytes: most}, nil
}

// maxTaken Decisions, and about MaxDecisionBytes, are read by one take: the engine's step
// waits for it. What is left comes with the next.
const maxTaken = 256

// take reads what is there, and waits for the Decision of the last Step for at most so
// long. What came before an error is returned with it.
func (l *stepsLink) take(wait time.Duration) (come []*doorpb.Decision, err error) {
	if err := l.conn.Socket().SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	come, err = l.parse(nil) // of what the last left
	read := 0
	for n := 1; n > 0 && err == nil && len(come) < maxTaken && read < MaxDecisionBytes; read += n {
		if n, err = l.fill(false); err == nil {
			come, err = l.parse(come)
		}
	}
	if wait <= 0 || err != nil || l.heard >= l.sent.Load() {
		return come, err
	}
	if err := l.conn.Socket().SetReadDeadline(time.Now().Add(wait)); err != nil {
		return come, err
	}
	for n := 1; n > 0 && err == nil && len(come) < maxTaken && read < MaxDecisionBytes && l.heard < l.sent.Load(); read += n {
		if n, err = l.fill(true); err == nil {
			come, err = l.parse(come)
		}
	}
	return come, err
}

// readBytes is how much is read at a time.
const readBytes = 64 << 10

// fill reads once, and waits for something to read if it may. It reports how many bytes
// there were.
func (l *stepsLink) fill(patient bool) (n int, err error) {
	if cap(l.in)-len(l.in) < readBytes/2 {
		l.in = append(make([]byte, 0, 2*len(l.in)+readBytes), l.in...)
	}
	room := l.in[len(l.in):cap(l.in)]
	waited := l.raw.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), room); !errors.Is(err, unix.EINTR) {
				return !patient || !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case errors.Is(waited, os.ErrDeadlineExceeded):
		return 0, nil
	case waited != nil:
		return 0, waited
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("door: reading: %w", err)
	case n == 0:
		return 0, io.EOF
	}
	l.in = l.in[:len(l.in)+n]
	return n, nil
}

// parse takes whole frames out of what was read, until there are maxTaken Decisions.
func (l *stepsLink) parse(come []*doorpb.Decision) ([]*doorpb.Decision, error) {
	rest := l.in
	for len(rest) >= headerBytes && len(come) < maxTaken {
		length := int(binary.LittleEndian.Uint32(rest))
		if length < 2 || length > MaxDecisionBytes {
			return come, fmt.Errorf("%w: a length of %d, at most %d", ErrFrame, length, MaxDecisionBytes)
		}
		if len(rest) < 4+length {
			break
		}
		f := Frame{Type: doorpb.FrameType(binary.LittleEndian.Uint16(rest[4:])), Body: rest[headerBytes : 4+length]}
		rest = rest[4+length:]
		switch f.Type {
		case doorpb.FrameType_FRAME_TYPE_DECISION:
			m := &doorpb.Decision{}
			if err := f.UnmarshalRequest(m); err != nil {
				return come, err
			}
			if len(m.GetOrder()) != len(m.GetOrderTokens()) {
				return come, fmt.Errorf("%w: columns of a decision have different lengths", ErrFrame)
			}
			l.heard = m.GetStep()
			come = append(come, m)
		case doorpb.FrameType_FRAME_TYPE_REPLY:
			var m doorpb.Reply
			if err := f.UnmarshalRequest(&m); err != nil {
				return come, err
			}
			if p := problemOf(m.GetProblem()); p != nil && m.GetRequest() == 0 {
				return come, p
			}
		default: // a newer agent's
		}
	}
	l.in = append(l.in[:0], rest...)
	return come, nil
}
