package tcp

import (
	"crypto/tls"
	"io"
	"time"
)

// sealed is the socket of a stream with TLS. Bytes pass through buffers of its
// own, because a record is sealed and opened as a whole: so a system call never
// touches anybody's memory, and whoever wants quiet waits for a copy at most.
type sealed struct {
	conn *tls.Conn
	out  []byte
	in   []byte // opened[from:to] are bytes that nobody has taken
	from int
	to   int
}

// sealedBuffer is four records of the largest size.
const sealedBuffer = 64 << 10

func newSealed(conn *tls.Conn) *sealed {
	return &sealed{conn: conn, out: make([]byte, sealedBuffer), in: make([]byte, sealedBuffer)}
}

// writeSealed writes the whole vector.
func (s *stream) writeSealed() error {
	for {
		s.sendMu.Lock()
		n := 0
		for n < len(s.sealed.out) && s.gather.bytes > 0 {
			n += copy(s.sealed.out[n:], s.takeSent(len(s.sealed.out)-n))
		}
		s.sendMu.Unlock()
		if n == 0 {
			return nil
		}
		if _, err := s.sealed.conn.Write(s.sealed.out[:n]); err != nil {
			return err
		}
		s.spoke.Store(true)
	}
}

// readSealed reads into the vector once, waiting for input as needed.
func (s *stream) readSealed() (int, error) {
	b := s.sealed
	if b.from == b.to {
		n, err := b.conn.Read(b.in)
		if n == 0 {
			if err == nil {
				err = io.ErrNoProgress
			}
			return 0, err
		}
		b.from, b.to = 0, n
		s.lastHeard.Store(time.Now().UnixNano())
	}
	s.receiveMu.Lock()
	defer s.receiveMu.Unlock()
	if s.target != nil && s.target.Discard {
		s.divert()
	}
	placed := 0
	for s.scatter.bytes > 0 && b.from < b.to {
		n := copy(s.scatter.take(b.to-b.from), b.in[b.from:b.to])
		b.from += n
		placed += n
	}
	s.settle(placed)
	return placed, nil
}
