package disk

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/require"
	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// faulty are files of a disk that fails, or hangs.
type faulty struct {
	real
	create, read, write atomic.Pointer[error]
	hang                atomic.Pointer[chan struct{}] // calls wait for its end
}

func (f *faulty) fail(where *atomic.Pointer[error], err error) {
	if err == nil {
		where.Store(nil)
	} else {
		where.Store(&err)
	}
}

func (f *faulty) failing(where *atomic.Pointer[error]) error {
	if hang := f.hang.Load(); hang != nil {
		<-*hang
	}
	if err := where.Load(); err != nil {
		return *err
	}
	return nil
}

type faultyFile struct {
	file
	of *faulty
}

func (f *faulty) Create(path string, reserve int64) (file, error) {
	if err := f.failing(&f.create); err != nil {
		return nil, err
	}
	made, err := f.real.Create(path, reserve)
	return faultyFile{made, f}, err
}

func (f *faulty) Open(path string) (file, int64, time.Time, error) {
	opened, size, written, err := f.real.Open(path)
	return faultyFile{opened, f}, size, written, err
}

func (f faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.of.failing(&f.of.read); err != nil {
		return 0, err
	}
	return f.file.ReadAt(b, at)
}

func (f faultyFile) WriteAll(buffers [][]byte, at int64) error {
	if err := f.of.failing(&f.of.write); err != nil {
		_ = f.file.WriteAll(buffers[:1], at) // some of it is there
		return err
	}
	return f.file.WriteAll(buffers, at)
}

func faultyDisk(t *testing.T) (*Disk, *faulty) {
	f := &faulty{}
	d := open(t, Options{Dir: t.TempDir(), Bytes: 16 << 20, SegmentBytes: 2 << 20, Timeout: 100 * time.Millisecond, MaxWaiting: 1 << 20, files: f})
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d, f
}

// later lets time pass for the disk.
func (d *Disk) later(span time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start = d.start.Add(-span)
}

func TestDiskIsFull(t *testing.T) {
	for name, where := range map[string]func(*faulty) *atomic.Pointer[error]{
		"Create": func(f *faulty) *atomic.Pointer[error] { return &f.create },
		"Write":  func(f *faulty) *atomic.Pointer[error] { return &f.write },
	} {
		t.Run(name, func(t *testing.T) {
			d, f := faultyDisk(t)
			kept := tiertest.Object(0, 10_000)
			tiertest.Put(t, d, kept)
			d.mu.Lock()
			d.active.size = int64(d.options.SegmentBytes) // the next one begins a segment
			d.mu.Unlock()
			f.fail(where(f), unix.ENOSPC)
			for n := 1; n <= 4; n++ {
				tiertest.Put(t, d, tiertest.Object(n, 10_000))
			}
			if err := d.Put(tiertest.Object(5, 100)); !errors.Is(err, tier.ErrDown) {
				t.Errorf("the fifth put: %v", err)
			}
			if got, err := tiertest.Get(t.Context(), d, kept.Key); err != nil || len(got.Payload) != 10_000 {
				t.Errorf("a full disk can be read: %v", err)
			}
			if s := d.Stats(); s.PutsFailed != 4 || s.PutsDropped != 1 || !s.Down || s.Objects != 1 {
				t.Errorf("stats: %+v", s)
			}
			f.fail(where(f), nil)
			d.later(6 * time.Second)
			tiertest.Put(t, d, tiertest.Object(6, 10_000))
			if s := d.Stats(); s.Down || s.Objects != 2 {
				t.Errorf("when there is room again: %+v", s)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	d, f := faultyDisk(t)
	for n := range 6 {
		tiertest.Put(t, d, tiertest.Object(n, 10_000))
	}
	f.fail(&f.read, unix.EIO)
	for n := range 5 {
		if _, err := tiertest.Get(t.Context(), d, tiertest.Object(n, 10_000).Key); !errors.Is(err, tier.ErrMissing) {
			t.Errorf("get %d: %v", n, err)
		}
	}
	if s := d.Stats(); s.Failed != 4 || !s.Down || d.Has([][]byte{tiertest.Object(5, 10_000).Key})[0] {
		t.Errorf("stats: %+v", s)
	}
	f.fail(&f.read, nil)
	d.later(6 * time.Second)
	if _, err := tiertest.Get(t.Context(), d, tiertest.Object(5, 10_000).Key); err != nil {
		t.Errorf("when it can be read again: %v", err)
	}
}

// A disk that hangs keeps no caller waiting longer than its time, and what comes meanwhile
// is turned away.
func TestDiskHangs(t *testing.T) {
	d, f := faultyDisk(t)
	o := tiertest.Object(0, 10_000)
	tiertest.Put(t, d, o)
	hang := make(chan struct{})
	f.hang.Store(&hang)
	for range 4 {
		began := time.Now()
		if _, err := tiertest.Get(t.Context(), d, o.Key); !errors.Is(err, tier.ErrMissing) || !errors.Is(err, tier.ErrSlow) {
			t.Errorf("get: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a get took %v", took)
		}
	}
	if _, err := tiertest.Get(t.Context(), d, o.Key); !errors.Is(err, tier.ErrDown) {
		t.Errorf("the fifth get: %v", err)
	}
	began, refused := time.Now(), 0
	for n := 1; n < 50; n++ {
		if err := d.Put(tiertest.Object(n, 100_000)); errors.Is(err, tier.ErrBusy) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 5*time.Second || refused < 30 {
		t.Errorf("%d of 49 puts were refused, in %v", refused, took)
	}
	if s := d.Stats(); s.Slow != 4 || s.PutsDropped != uint64(refused) || s.Waiting > 1<<20 {
		t.Errorf("stats: %+v", s)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	f.hang.Store(nil)
	close(hang)
}

// Callers that have less time than the disk takes get a miss and leave: that says nothing
// about the disk, which others still read.
func TestShortDeadlinesSayNothing(t *testing.T) {
	f := &faulty{}
	d := open(t, Options{Dir: t.TempDir(), Bytes: 16 << 20, SegmentBytes: 2 << 20, Timeout: time.Minute, files: f})
	t.Cleanup(func() { mustClose(t, d) })
	o := tiertest.Object(0, 10_000)
	tiertest.Put(t, d, o)
	hang := make(chan struct{})
	f.hang.Store(&hang)
	for n := range cap(d.reads) + 8 { // more than it reads at once, too
		ctx, leave := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := tiertest.Get(ctx, d, o.Key); !errors.Is(err, tier.ErrMissing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("get %d: %v", n, err)
		}
		leave()
	}
	f.hang.Store(nil)
	close(hang)
	if _, err := tiertest.Get(t.Context(), d, o.Key); err != nil {
		t.Errorf("a caller with time: %v", err)
	}
	if s := d.Stats(); s.Down || s.Slow != 0 || s.Failed != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// A Flush whose time is over leaves nothing behind that waits for a disk that hangs.
func TestFlushesOfADiskThatHangs(t *testing.T) {
	d, f := faultyDisk(t)
	hang := make(chan struct{})
	f.hang.Store(&hang)
	if err := d.Put(tiertest.Object(0, 10_000)); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		if err := d.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		leave()
	}
	if more := runtime.NumGoroutine() - before; more > 2 {
		t.Errorf("%d goroutines more after 20 flushes", more)
	}
	f.hang.Store(nil)
	close(hang)
	if err := d.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

// A file system that is really full.
func TestSmallFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Skip(t, "root", "mounting a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		require.Skip(t, "root", "mounting a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	d := open(t, Options{Dir: dir, Bytes: 32 << 20, SegmentBytes: 1 << 20})
	for n := range 100 {
		if err := d.Put(tiertest.Object(n, 100_000)); err != nil && !errors.Is(err, tier.ErrDown) {
			t.Fatal(err)
		}
		if err := d.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := d.Stats()
	if s.PutsFailed == 0 || s.PutsDropped == 0 || s.Objects < 20 {
		t.Errorf("stats: %+v", s)
	}
	found := 0
	for n := range 100 {
		if got, err := tiertest.Get(t.Context(), d, tiertest.Object(n, 100_000).Key); err == nil && len(got.Payload) == 100_000 {
			found++
		}
	}
	if found != int(s.Objects) {
		t.Errorf("%d objects of %d can be got", found, s.Objects)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
