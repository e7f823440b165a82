package cuda

import (
	"errors"
	"sync"
)

// bounce is pinned memory through which bytes of Go reach the device and come
// back: for few of them, as a device cannot reach memory that Go may move.
type bounce struct {
	mu     sync.Mutex // protects the rest, while bytes pass through
	pinned *Pinned
	stream *Stream
}

const bounceBytes = 256 << 10

// Read copies from a device's memory, and waits for it.
func (d *Device) Read(p []byte, from Pointer) error {
	return d.pass(len(p), func(b *bounce, at, n int) error {
		if err := errors.Join(b.stream.Copy(b.pinned.At(), from+Pointer(at), uint64(n)), b.stream.Synchronize()); err != nil {
			return err
		}
		copy(p[at:at+n], b.pinned.Bytes())
		return nil
	})
}

// Write copies to a device's memory, and waits for it.
func (d *Device) Write(to Pointer, p []byte) error {
	return d.pass(len(p), func(b *bounce, at, n int) error {
		copy(b.pinned.Bytes(), p[at:at+n])
		return errors.Join(b.stream.Copy(to+Pointer(at), b.pinned.At(), uint64(n)), b.stream.Synchronize())
	})
}

// pass takes bytes through the bounce, some at a time.
func (d *Device) pass(bytes int, some func(b *bounce, at, n int) error) error {
	d.bounce.mu.Lock()
	defer d.bounce.mu.Unlock()
	if err := d.bounce.open(d); err != nil {
		return err
	}
	for at := 0; at < bytes; at += bounceBytes {
		if err := some(&d.bounce, at, min(bytes-at, bounceBytes)); err != nil {
			return err
		}
	}
	return nil
}

// open makes the bounce when it is first needed. The caller holds mu.
func (b *bounce) open(d *Device) (err error) {
	if b.pinned != nil {
		return nil
	}
	if b.stream, err = d.Stream(); err != nil {
		return err
	}
	if b.pinned, err = d.Pin(bounceBytes); err != nil {
		return errors.Join(err, b.stream.Close())
	}
	return nil
}

// close gives it back, once no process can open it any more.
func (b *bounce) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pinned == nil {
		return nil
	}
	err := errors.Join(b.stream.Close(), b.pinned.Close())
	b.pinned = nil
	return err
}
