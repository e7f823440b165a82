package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// after are files that cannot be read behind a place.
type after struct {
	real
	from int64 // 0: all can be read
}

type afterFile struct {
	file
	of *after
}

func (f *after) Create(path string, reserve int64) (file, error) {
	made, err := f.real.Create(path, reserve)
	return afterFile{made, f}, err
}

func (f afterFile) ReadAt(b []byte, at int64) (int, error) {
	if f.of.from > 0 && at >= f.of.from {
		return 0, unix.EIO
	}
	return f.file.ReadAt(b, at)
}

// TestReadInPieces: an object that is longer than what is read together is whole, or it is
// a miss, wherever in it the disk fails or has changed a bit.
func TestReadInPieces(t *testing.T) {
	const size = 3*readTogether + 12_345
	f := &after{}
	dir := t.TempDir()
	d := open(t, Options{Dir: dir, Bytes: 64 << 20, SegmentBytes: 16 << 20, files: f})
	defer func() { _ = d.Close(context.WithoutCancel(t.Context())) }()
	o := tiertest.Object(1, size)
	put := func() {
		t.Helper()
		tiertest.Put(t, d, o)
		got, err := tiertest.Get(t.Context(), d, o.Key)
		if err != nil || !bytes.Equal(got.Payload, o.Payload) || !bytes.Equal(got.Header, o.Header) {
			t.Fatalf("%d bytes, %v", len(got.Payload), err)
		}
	}
	put()
	f.from = 2 * readTogether
	if _, err := tiertest.Get(t.Context(), d, o.Key); !errors.Is(err, tier.ErrMissing) || !errors.Is(err, unix.EIO) {
		t.Fatalf("of a disk that cannot be read: %v", err)
	}
	f.from = 0
	if s := d.Stats(); s.Failed != 1 || s.Objects != 0 {
		t.Errorf("%+v", s)
	}
	put() // behind the first
	segment, err := os.OpenFile(filepath.Join(dir, segmentName(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = segment.Close() }()
	info, err := segment.Stat()
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	at := info.Size() - 2*page // in the last piece of the second
	if _, err := segment.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 4
	if _, err := segment.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
	if _, err := tiertest.Get(t.Context(), d, o.Key); !errors.Is(err, tier.ErrMissing) {
		t.Fatalf("of a changed byte: %v", err)
	}
	if s := d.Stats(); s.Broken != 1 || s.Objects != 0 {
		t.Errorf("%+v", s)
	}
	put()
}

// elsewhere are files of a disk that reads from its beginning whatever is asked for.
type elsewhere struct {
	real
	on bool
}

type elsewhereFile struct {
	file
	of *elsewhere
}

func (f *elsewhere) Create(path string, reserve int64) (file, error) {
	made, err := f.real.Create(path, reserve)
	return elsewhereFile{made, f}, err
}

func (f elsewhereFile) ReadAt(b []byte, at int64) (int, error) {
	if f.of.on {
		at = 0
	}
	return f.file.ReadAt(b, at)
}

// TestReadFromElsewhere: a whole record of another object is found out, and the one that was
// meant can be put anew.
func TestReadFromElsewhere(t *testing.T) {
	f := &elsewhere{}
	d := open(t, Options{Dir: t.TempDir(), Bytes: 64 << 20, SegmentBytes: 16 << 20, files: f})
	defer func() { _ = d.Close(context.WithoutCancel(t.Context())) }()
	one, other := tiertest.Object(1, 1000), tiertest.Object(2, 1000)
	tiertest.Put(t, d, one)
	tiertest.Put(t, d, other)
	f.on = true
	if _, err := tiertest.Get(t.Context(), d, other.Key); !errors.Is(err, tier.ErrMissing) {
		t.Fatal(err)
	}
	f.on = false
	if s := d.Stats(); s.Broken != 1 || d.Has([][]byte{other.Key})[0] {
		t.Errorf("it is said to be there: %+v", s)
	}
}
