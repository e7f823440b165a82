package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrProtocol means that the other end does not speak ZMTP as it should.
var ErrProtocol = errors.New("kvevents: not ZMTP")

// Bounds on what a publisher can make us hold.
const (
	maxMessageBytes = 64 << 20
	maxFrames       = 8
	maxCommandBytes = 4 << 10
	readStep        = 64 << 10 // memory is taken as bytes come, not as they are announced
)

// socketType is what an end says it is.
type socketType string

const (
	subscriber socketType = "SUB"
	dealer     socketType = "DEALER"
)

// peers are whom a type may talk to.
var peers = map[socketType][]string{
	subscriber: {"PUB", "XPUB"},
	dealer:     {"ROUTER", "REP", "DEALER"},
}

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// wire is one ZMTP 3.0 connection without security, which is what vLLM has.
type wire struct {
	in     *bufio.Reader
	out    io.Writer
	most   int // bytes of a message
	buffer []byte
	bounds [maxFrames]int
}

func newWire(rw io.ReadWriter) *wire {
	return &wire{in: bufio.NewReaderSize(rw, readStep), out: rw, most: maxMessageBytes}
}

// greeting announces version 3.0: in it a subscription is a message, which
// libzmq of every age takes.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[8], g[9] = 0xff, 1, 0x7f
	g[10] = 3
	copy(g[12:], "NULL")
	return g
}

// shake makes the two ends known to one another.
func (w *wire) shake(as socketType) error {
	if _, err := w.out.Write(greeting()); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(w.in, theirs[:]); err != nil {
		return fmt.Errorf("%w: no greeting: %w", ErrProtocol, err)
	}
	switch {
	case theirs[0] != 0xff || theirs[9]&1 == 0:
		return fmt.Errorf("%w: the greeting starts with % x", ErrProtocol, theirs[:10])
	case theirs[10] < 3:
		return fmt.Errorf("%w: the peer speaks version %d, older than 3", ErrProtocol, theirs[10])
	}
	if mechanism := string(bytes.TrimRight(theirs[12:32], "\x00")); mechanism != "NULL" {
		return fmt.Errorf("%w: the peer wants the security mechanism %q; only NULL is spoken here", ErrProtocol, mechanism)
	}
	ready := property(property([]byte("\x05READY"), "Socket-Type", string(as)), "Identity", "")
	if err := w.write(flagCommand, ready); err != nil {
		return err
	}
	return w.readReady(as)
}

func property(to []byte, name, value string) []byte {
	to = append(append(to, byte(len(name))), name...)
	to = binary.BigEndian.AppendUint32(to, uint32(len(value)))
	return append(to, value...)
}

func (w *wire) readReady(as socketType) error {
	h, err := w.header()
	if err != nil {
		return err
	}
	if h.flags&flagCommand == 0 {
		return fmt.Errorf("%w: a message before the handshake", ErrProtocol)
	}
	name, body, err := w.command(h)
	if err != nil {
		return err
	}
	if name != "READY" {
		return fmt.Errorf("%w: the handshake ended with %s %q", ErrProtocol, name, body)
	}
	theirs := propertyOf(body, "socket-type")
	for _, wanted := range peers[as] {
		if theirs == wanted {
			return nil
		}
	}
	return fmt.Errorf("%w: the peer is a %s socket, which a %s socket cannot use", ErrProtocol, theirs, as)
}

// propertyOf finds a value among a handshake's properties; names have no case.
func propertyOf(body []byte, name string) string {
	for len(body) > 0 {
		n := int(body[0])
		if len(body) < 1+n+4 {
			return ""
		}
		key := body[1 : 1+n]
		size := int64(binary.BigEndian.Uint32(body[1+n:]))
		body = body[1+n+4:]
		if size > int64(len(body)) {
			return ""
		}
		if string(bytes.ToLower(key)) == name {
			return string(body[:size])
		}
		body = body[size:]
	}
	return ""
}

// frame is the head of what comes next.
type frame struct {
	flags byte
	size  uint64
}

func (w *wire) header() (frame, error) {
	flags, err := w.in.ReadByte()
	if err != nil {
		return frame{}, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return frame{}, fmt.Errorf("%w: a frame has the flags %#x", ErrProtocol, flags)
	}
	var size [8]byte
	if flags&flagLong == 0 {
		size[7], err = w.in.ReadByte()
	} else {
		_, err = io.ReadFull(w.in, size[:])
	}
	return frame{flags, binary.BigEndian.Uint64(size[:])}, cutShort(err)
}

// cutShort: an end within a frame is no end.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (w *wire) command(h frame) (name string, body []byte, err error) {
	if h.size > maxCommandBytes {
		return "", nil, fmt.Errorf("%w: a command of %d bytes", ErrProtocol, h.size)
	}
	data := make([]byte, h.size)
	if _, err := io.ReadFull(w.in, data); err != nil {
		return "", nil, cutShort(err)
	}
	if len(data) == 0 || int(data[0]) > len(data)-1 {
		return "", nil, fmt.Errorf("%w: a command without a name", ErrProtocol)
	}
	return string(data[1 : 1+data[0]]), data[1+data[0]:], nil
}

// receive returns the frames of the next message, which are good until the next
// call. Commands between messages are seen to.
func (w *wire) receive() ([][]byte, error) {
	w.buffer = w.buffer[:0]
	for count := 0; ; {
		h, err := w.header()
		if err != nil {
			if count > 0 {
				err = cutShort(err)
			}
			return nil, err
		}
		if h.flags&flagCommand != 0 {
			if err := w.obey(h); err != nil {
				return nil, err
			}
			continue
		}
		if count == maxFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", ErrProtocol, maxFrames)
		}
		if h.size > uint64(w.most-len(w.buffer)) {
			return nil, fmt.Errorf("%w: a message of more than %d bytes", ErrProtocol, w.most)
		}
		if err := w.fill(int(h.size)); err != nil {
			return nil, err
		}
		w.bounds[count] = len(w.buffer)
		count++
		if h.flags&flagMore == 0 {
			return w.frames(count), nil
		}
	}
}

func (w *wire) fill(size int) error {
	for size > 0 {
		at, step := len(w.buffer), min(size, readStep)
		w.buffer = append(w.buffer, make([]byte, step)...)
		if _, err := io.ReadFull(w.in, w.buffer[at:]); err != nil {
			return cutShort(err)
		}
		size -= step
	}
	return nil
}

func (w *wire) frames(count int) [][]byte {
	frames := make([][]byte, count)
	start := 0
	for i := range frames {
		frames[i] = w.buffer[start:w.bounds[i]]
		start = w.bounds[i]
	}
	return frames
}

// obey answers a PING, and passes over what it does not know.
func (w *wire) obey(h frame) error {
	name, body, err := w.command(h)
	if err != nil || name != "PING" {
		return err
	}
	if len(body) < 2 {
		return fmt.Errorf("%w: a PING without a time to live", ErrProtocol)
	}
	return w.write(flagCommand, append([]byte("\x04PONG"), body[2:]...))
}

// send writes one message.
func (w *wire) send(frames ...[]byte) error {
	for i, data := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := w.write(flags, data); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) write(flags byte, data []byte) error {
	head := []byte{flags, byte(len(data))}
	if len(data) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(data)))
	}
	_, err := w.out.Write(append(head, data...))
	return err
}

// subscribe asks for everything: vLLM has one topic to a publisher.
func (w *wire) subscribe() error { return w.send([]byte{1}) }
