package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Done is the data of the event that ends a stream.
const Done = "[DONE]"

// EventStream is the media type of a stream.
const EventStream = "text/event-stream"

// MaxEvent is how many bytes of data one event may have where nothing else is
// said.
const MaxEvent = 16 << 20

// ErrEventTooLong means that a stream has an event beyond the reader's limit.
var ErrEventTooLong = errors.New("openai: an event of the stream is too long")

// EventReader reads the events of a text/event-stream, however its bytes are
// cut: lines end with LF, CRLF or CR, comments and fields other than data are
// passed over, data of several lines is joined.
type EventReader struct {
	in   *bufio.Reader
	max  int
	data []byte
	line []byte
	// afterCR: an LF that comes next belongs to the line before it.
	afterCR bool
	begun   bool
}

// NewEventReader reads events of at most maxBytes; 0 means MaxEvent.
func NewEventReader(r io.Reader, maxBytes int) *EventReader {
	if maxBytes <= 0 {
		maxBytes = MaxEvent
	}
	return &EventReader{in: bufio.NewReaderSize(r, 8<<10), max: maxBytes}
}

// Next returns the data of the next event, which is good until the next call.
// At the end of the stream it returns io.EOF; an event that the end cut short
// is io.ErrUnexpectedEOF, because half of one must not be taken for a whole.
func (r *EventReader) Next() ([]byte, error) {
	r.data = r.data[:0]
	has := false
	for {
		line, err := r.readLine()
		switch {
		case err == io.EOF && (has || len(line) > 0):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(line) == 0:
			if has {
				return r.data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if len(r.data)+len(value) > r.max {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrEventTooLong, r.max)
		}
		if has {
			r.data = append(r.data, '\n')
		}
		r.data, has = append(r.data, value...), true
	}
}

// Ready tells whether the next event has come already, so that Next would not
// wait. It may be wrong about one whose lines end with CR alone.
func (r *EventReader) Ready() bool {
	window, _ := r.in.Peek(r.in.Buffered())
	return bytes.Contains(window, []byte("\n\n")) || bytes.Contains(window, []byte("\n\r\n"))
}

var byteOrderMark = []byte("\ufeff")

// readLine returns a line without its end. At the end of the stream it returns
// what is left, and io.EOF.
func (r *EventReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if _, err := r.in.Peek(1); err != nil {
			return r.line, err
		}
		window, _ := r.in.Peek(r.in.Buffered())
		if r.afterCR {
			r.afterCR = false
			if window[0] == '\n' {
				_, _ = r.in.Discard(1)
				continue
			}
		}
		end := lineEnd(window)
		if end < 0 {
			if len(r.line)+len(window) > r.max+len("data: ") {
				return nil, fmt.Errorf("%w: more than %d bytes", ErrEventTooLong, r.max)
			}
			r.line = append(r.line, window...)
			_, _ = r.in.Discard(len(window))
			continue
		}
		if len(r.line)+end > r.max+len("data: ") {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrEventTooLong, r.max)
		}
		r.line = append(r.line, window[:end]...)
		r.afterCR = window[end] == '\r'
		_, _ = r.in.Discard(end + 1)
		if !r.begun {
			r.begun, r.line = true, bytes.TrimPrefix(r.line, byteOrderMark)
		}
		return r.line, nil
	}
}

// lineEnd is where the first line of b ends, or -1.
func lineEnd(b []byte) int {
	end := bytes.IndexByte(b, '\n')
	if end >= 0 {
		b = b[:end]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return end
}

// AppendEvent appends an event with that data.
func AppendEvent(to, data []byte) []byte {
	for line, rest, more := bytes.Cut(data, []byte("\n")); ; line, rest, more = bytes.Cut(rest, []byte("\n")) {
		to = append(append(append(to, "data: "...), line...), '\n')
		if !more {
			return append(to, '\n')
		}
	}
}
