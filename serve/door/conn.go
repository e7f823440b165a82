package door

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"meridian/serve/door/doorpb"
)

// Conn reads and writes frames. One goroutine may read while another writes.
type Conn struct {
	socket *net.UnixConn
	header [headerBytes]byte
	oob    [64]byte
}

// NewConn takes the socket over.
func NewConn(socket *net.UnixConn) *Conn { return &Conn{socket: socket} }

// Socket is the connection itself.
func (c *Conn) Socket() *net.UnixConn { return c.socket }

// Read waits for a frame of at most limit bytes. io.EOF means that the other side
// has ended the connection between two frames.
func (c *Conn) Read(limit int) (Frame, error) {
	file, err := c.readHeader()
	if err != nil {
		return Frame{}, err
	}
	f := Frame{Type: doorpb.FrameType(binary.LittleEndian.Uint16(c.header[4:])), File: file}
	length := int(binary.LittleEndian.Uint32(c.header[:]))
	switch {
	case length < 2:
		err = fmt.Errorf("%w: a length of %d, the type alone takes 2", ErrFrame, length)
	case length > limit:
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrFrame, length, limit)
	default:
		f.Body, err = readBody(c.socket, length-2)
	}
	if err != nil {
		f.Close()
		return Frame{}, err
	}
	return f, nil
}

// readBody grows as bytes come: a length alone must not cost memory.
func readBody(r io.Reader, length int) ([]byte, error) {
	const piece = 64 << 10
	body := make([]byte, 0, min(length, piece))
	for len(body) < length {
		have := len(body)
		next := min(length-have, max(piece, have))
		if cap(body)-have < next {
			body = append(make([]byte, 0, have+next), body...)
		}
		body = body[:have+next]
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("door: a frame was cut off: %w", err)
		}
	}
	return body, nil
}

// readHeader reads the header by itself, so that a descriptor that comes with
// its first byte belongs to this frame and to no other.
func (c *Conn) readHeader() (file *os.File, err error) {
	for have := 0; have < headerBytes; {
		n, oobn, flags, _, err := c.socket.ReadMsgUnix(c.header[have:], c.oob[:])
		files, wrong := descriptors(c.oob[:oobn])
		switch {
		case errors.Is(err, io.EOF) && have == 0:
			err = io.EOF
		case errors.Is(err, io.EOF):
			err = fmt.Errorf("door: a frame was cut off: %w", io.ErrUnexpectedEOF)
		case err == nil && wrong != nil:
			err = wrong
		case err == nil && (len(files) > 1 || flags&unix.MSG_CTRUNC != 0):
			err = fmt.Errorf("%w: more than one descriptor", ErrFrame)
		case err == nil && len(files) == 1 && have > 0:
			err = fmt.Errorf("%w: a descriptor within a frame; it comes with the first byte", ErrFrame)
		}
		if err != nil {
			closeAll(append(files, file))
			return nil, err
		}
		if len(files) == 1 {
			file = files[0]
		}
		have += n
	}
	return file, nil
}

func descriptors(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "lent"))
		}
	}
	return files, nil
}

// closeAll lets descriptors go that came from another process. What they are of
// that process chose: a socket that lingers would hold the reader up for as long as
// its maker likes.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = unix.SetsockoptLinger(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
			_ = f.Close()
		}
	}
}

// Send writes one message, with a descriptor if file is not nil.
func (c *Conn) Send(kind doorpb.FrameType, m proto.Message, file *os.File) error {
	wire, err := AppendFrame(nil, kind, m)
	if err != nil {
		return err
	}
	return c.Write(wire, file)
}

// Write writes whole frames, with a descriptor that goes with the first byte.
func (c *Conn) Write(wire []byte, file *os.File) error {
	var oob []byte
	if file != nil {
		oob = unix.UnixRights(int(file.Fd()))
	}
	n, _, err := c.socket.WriteMsgUnix(wire, oob, nil)
	if err == nil && n < len(wire) {
		_, err = c.socket.Write(wire[n:])
	}
	if err != nil {
		return fmt.Errorf("door: writing: %w", err)
	}
	return nil
}

// Close ends the connection at once.
func (c *Conn) Close() error { return c.socket.Close() }
