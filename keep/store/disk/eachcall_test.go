package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// failingCall are the files of a disk of which one call fails, and, while it is broken,
// those after it.
type failingCall struct {
	real
	mu     sync.Mutex
	calls  []string // that were made
	fails  int      // the number of the call that fails; 0: none
	broken bool     // so do those after it
}

// fail counts a call, and says whether it fails.
func (f *failingCall) fail(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if n := len(f.calls); n == f.fails || f.broken && f.fails > 0 && n > f.fails {
		return unix.EIO
	}
	return nil
}

func (f *failingCall) List(dir string) ([]string, error) {
	if err := f.fail("list"); err != nil {
		return nil, err
	}
	return f.real.List(dir)
}

func (f *failingCall) Create(path string, reserve int64) (file, error) {
	if err := f.fail("create"); err != nil {
		return nil, err
	}
	made, err := f.real.Create(path, reserve)
	return failingFile{made, f}, err
}

func (f *failingCall) Open(path string) (file, int64, time.Time, error) {
	if err := f.fail("open"); err != nil {
		return nil, 0, time.Time{}, err
	}
	opened, size, written, err := f.real.Open(path)
	return failingFile{opened, f}, size, written, err
}

func (f *failingCall) Size(path string) (int64, error) {
	if err := f.fail("size"); err != nil {
		return 0, err
	}
	return f.real.Size(path)
}

func (f *failingCall) Remove(path string) error {
	if err := f.fail("remove"); err != nil {
		return err
	}
	return f.real.Remove(path)
}

type failingFile struct {
	file
	of *failingCall
}

func (f failingFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.of.fail("read"); err != nil {
		return 0, err
	}
	return f.file.ReadAt(b, at)
}

func (f failingFile) WriteAll(buffers [][]byte, at int64) error {
	if err := f.of.fail("write"); err != nil {
		_ = f.file.WriteAll(buffers[:1], at) // some of it is there
		return err
	}
	return f.file.WriteAll(buffers, at)
}

func (f failingFile) Truncate(size int64) error {
	if err := f.of.fail("truncate"); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

func (f failingFile) Close() error {
	failed := f.of.fail("close")
	return errors.Join(failed, f.file.Close())
}

// Whichever call of the file system fails, alone or with all after it, while a folder is
// opened, read, appended to and reclaimed: nothing crashes, no object has other bytes, no
// more is taken than the bound, and the folder can be opened when the disk works again.
func TestEachCallFails(t *testing.T) {
	calls := withFailing(t, 0, false)
	kinds := make(map[string]bool)
	for _, call := range calls {
		kinds[call] = true
	}
	for _, kind := range []string{"list", "create", "open", "read", "write", "truncate", "close", "remove"} {
		if !kinds[kind] {
			t.Errorf("no call was made to %s", kind)
		}
	}
	for number, call := range calls {
		if call == "read" && number > 20 && number%8 != 0 { // Gets are all alike; those of the scan come first
			continue
		}
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s-on=%t", number+1, call, broken), func(t *testing.T) { withFailing(t, number+1, broken) })
		}
	}
}

// withFailing fills a folder, lets a call fail in the next life of it, and returns the
// calls that this life made.
func withFailing(t *testing.T, fails int, broken bool) []string {
	o := Options{Dir: filepath.Join(t.TempDir(), "disk"), Bytes: 512 << 10, SegmentBytes: 64 << 10, MaxWaiting: 1 << 20}
	before := open(t, o)
	for n := range 12 {
		tiertest.Put(t, before, object(n%9))
		before.Drop(object(3).Key)
	}
	mustClose(t, before)

	files := &failingCall{fails: fails, broken: broken}
	o.files = files
	if d, err := Open(t.Context(), o); err == nil {
		useAll(t, d)
		for n := 20; n < 50; n++ { // more than the bound: old segments go
			if err := d.Put(object(n)); err != nil && !errors.Is(err, tier.ErrDown) {
				t.Error(err)
			}
			if n%6 == 0 {
				if err := d.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		useAll(t, d)
		if s := d.Stats(); s.Bytes > o.Bytes {
			t.Errorf("it counts %d bytes, the bound is %d", s.Bytes, o.Bytes)
		}
		mustClose(t, d)
	}
	files.mu.Lock()
	calls := files.calls
	files.mu.Unlock()

	o.files = nil
	after := open(t, o)
	useAll(t, after)
	tiertest.Put(t, after, object(60))
	if _, err := tiertest.Get(t.Context(), after, object(60).Key); err != nil {
		t.Errorf("when the disk works again: %v", err)
	}
	mustClose(t, after)
	return calls
}

// useAll gets whatever may be kept: an object, or a miss.
func useAll(t *testing.T, d *Disk) {
	t.Helper()
	for n := 0; n < 50; n += 2 {
		want := object(n)
		got, err := tiertest.Get(t.Context(), d, want.Key)
		switch {
		case err == nil && (!bytes.Equal(got.Payload, want.Payload) || !bytes.Equal(got.Header, want.Header)):
			t.Errorf("object %d has other bytes", n)
		case err != nil && !errors.Is(err, tier.ErrMissing):
			t.Errorf("object %d: %v", n, err)
		}
	}
}

func mustClose(t *testing.T, d *Disk) {
	t.Helper()
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
