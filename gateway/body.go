package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"

	"meridian/openai"
)

// clientBody is what a client sent. Its memory is counted until release.
type clientBody struct {
	data      []byte
	admission *admission
	held      int64
}

func (b *clientBody) release() {
	b.admission.release(b.held)
	b.data, b.held = nil, 0
}

// grow makes room for more, if the gateway has it.
func (b *clientBody) grow(size int) *openai.Error {
	if fault := b.admission.hold(int64(size) - b.held); fault != nil {
		return fault
	}
	b.held = int64(size)
	b.data = append(make([]byte, 0, size), b.data...)
	return nil
}

// firstBytes is how much of a client's word about its length is believed before
// it comes true.
const firstBytes = 64 << 10

// read reads what a client sends, within its time and size. Whatever it returns,
// release gives back what was held.
func (b *clientBody) read(r *http.Request, out *client, o *Options) *openai.Error {
	_ = out.control.SetReadDeadline(time.Now().Add(o.BodyTimeout)) // a recorder in a test has none
	size := 4 << 10
	if said := r.ContentLength; said >= 0 {
		size = int(min(said, firstBytes)) + 1
	}
	if fault := b.grow(size); fault != nil {
		return fault
	}
	body := http.MaxBytesReader(out.to, r.Body, o.MaxBodyBytes)
	for {
		n, err := body.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return unreadable(err)
		}
		if len(b.data) == cap(b.data) {
			if fault := b.grow(int(min(2*int64(cap(b.data)), o.MaxBodyBytes+1))); fault != nil {
				return fault
			}
		}
	}
	_ = out.control.SetReadDeadline(time.Time{}) // from here on only its going away is of interest
	return nil
}

func unreadable(err error) *openai.Error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		fault := openai.Invalid("", "the body has more than %d bytes", tooLarge.Limit)
		fault.Status = http.StatusRequestEntityTooLarge
		return fault
	}
	fault := openai.Invalid("", "the body could not be read: %v", err)
	fault.Status = http.StatusRequestTimeout
	return fault
}
