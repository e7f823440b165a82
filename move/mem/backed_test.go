package mem

import (
	"errors"
	"testing"
)

// far is memory that can only be reached by calls.
type far struct {
	bytes  []byte
	closed int
}

func (f *far) ReadAt(p []byte, offset uint64) error {
	copy(p, f.bytes[offset:])
	return nil
}

func (f *far) WriteAt(p []byte, offset uint64) error {
	copy(f.bytes[offset:], p)
	return nil
}

func (f *far) Close() error {
	f.closed++
	return nil
}

func TestOpenBacked(t *testing.T) {
	f := &far{bytes: make([]byte, 100)}
	s, err := OpenBacked(BackedOptions{Kind: VRAM, Device: 7, Address: 1 << 40, SizeBytes: 100, Backing: f})
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != VRAM || s.Device() != 7 || s.Base() != 1<<40 || s.Size() != 100 || s.Mapped() || !s.Writable() || s.Backing() != Backing(f) {
		t.Errorf("%v memory of device %d at %#x, %d bytes", s.Kind(), s.Device(), s.Base(), s.Size())
	}
	got := make([]byte, 5)
	if err := errors.Join(s.WriteAt([]byte("hello"), 95), s.ReadAt(got, 95)); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := s.WriteAt(got, 96); !errors.Is(err, ErrBounds) {
		t.Errorf("beyond the end: %v", err)
	}
	for name, err := range map[string]error{"lend": second(s.Lend()), "share": second(s.Share())} {
		if err == nil {
			t.Errorf("VRAM let itself %s as a memfd", name)
		}
	}
	if err := errors.Join(s.Close(t.Context()), s.Close(t.Context())); err != nil || f.closed != 1 {
		t.Errorf("closed %d times, %v", f.closed, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestOpenBackedRefuses(t *testing.T) {
	good := BackedOptions{Kind: VRAM, SizeBytes: 100, Backing: &far{}}
	for name, spoil := range map[string]func(*BackedOptions){
		"another kind":  func(o *BackedOptions) { o.Kind = DRAM },
		"no kind":       func(o *BackedOptions) { o.Kind = 0 },
		"nothing":       func(o *BackedOptions) { o.SizeBytes = 0 },
		"wraps around":  func(o *BackedOptions) { o.Address = 1<<64 - 50 },
		"no backing":    func(o *BackedOptions) { o.Backing = nil },
		"an object":     func(o *BackedOptions) { o.Kind = Object },
		"borrowed ones": func(o *BackedOptions) { o.Kind = Borrowed },
	} {
		o := good
		spoil(&o)
		if _, err := OpenBacked(o); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	good.ReadOnly = true
	s, err := OpenBacked(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteAt([]byte{1}, 0); !errors.Is(err, ErrReadOnly) {
		t.Errorf("wrote what is read-only: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
