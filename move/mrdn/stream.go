package mrdn

import (
	"errors"
	"fmt"
	"io"

	"meridian/kv"
)

// Writer writes frames to a stream, each with one Write for its header and one
// for its body.
type Writer struct {
	w      io.Writer
	header [HeaderSize]byte
}

// NewWriter returns a Writer on w. It does not buffer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame around body, which is not kept.
func (w *Writer) Write(tier kv.Tier, body []byte) error {
	h, err := NewHeader(tier, body)
	if err != nil {
		return err
	}
	if _, err := w.w.Write(h.Append(w.header[:0])); err != nil {
		return fmt.Errorf("mrdn: write header: %w", err)
	}
	if _, err := w.w.Write(body); err != nil {
		return fmt.Errorf("mrdn: write body: %w", err)
	}
	return nil
}

// Reader reads frames from a stream.
type Reader struct {
	r       io.Reader
	maxBody uint32
	offset  int64
	header  [HeaderSize]byte
	body    []byte
}

// NewReader returns a Reader on r that refuses bodies longer than maxBody.
func NewReader(r io.Reader, maxBody uint32) *Reader { return &Reader{r: r, maxBody: maxBody} }

// Offset returns how many bytes of the stream have been read: between calls of
// Next, the place where the next frame starts.
func (r *Reader) Offset() int64 { return r.offset }

// Next reads one frame. Its body is valid until the next call. At a clean end
// of the stream the error is io.EOF; an end within a frame is ErrTruncated.
//
// On ErrChecksum the returned frame holds what was read and the stream stands
// at the next frame, so that a caller may report and go on. After any other
// error the place of the next frame is unknown.
func (r *Reader) Next() (Frame, error) {
	n, err := io.ReadFull(r.r, r.header[:])
	r.offset += int64(n)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Frame{}, fmt.Errorf("%w: %d of the header's %d bytes", ErrTruncated, n, HeaderSize)
	case errors.Is(err, io.EOF):
		return Frame{}, io.EOF
	case err != nil:
		return Frame{}, fmt.Errorf("mrdn: read header: %w", err)
	}
	h, err := ParseHeader(r.header[:], r.maxBody)
	if err != nil {
		return Frame{}, err
	}
	if err := r.readBody(int(h.BodyLen)); err != nil {
		return Frame{}, err
	}
	return Frame{Header: h, Body: r.body}, h.Verify(r.body)
}

// firstRead bounds what a header alone can make us allocate; beyond it the
// buffer grows only as fast as bytes arrive.
const firstRead = 1 << 20

func (r *Reader) readBody(size int) error {
	r.body = r.body[:0]
	for len(r.body) < size {
		have := len(r.body)
		want := min(size, max(cap(r.body), 2*have, firstRead))
		if want > cap(r.body) {
			grown := make([]byte, have, want)
			copy(grown, r.body)
			r.body = grown
		}
		n, err := io.ReadFull(r.r, r.body[have:want])
		r.body = r.body[:have+n]
		r.offset += int64(n)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return fmt.Errorf("%w: %d of the body's %d bytes", ErrTruncated, len(r.body), size)
		case err != nil:
			return fmt.Errorf("mrdn: read body: %w", err)
		}
	}
	return nil
}
