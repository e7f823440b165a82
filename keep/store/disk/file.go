package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page is what offsets, lengths and buffers are multiples of, as direct I/O wants it.
const page = 4096

// file is what a segment needs of a file; tests have one that fails.
type file interface {
	io.ReaderAt
	// WriteAll writes buffers one after the other, from an offset on.
	WriteAll(buffers [][]byte, at int64) error
	Truncate(size int64) error
	Close() error
}

// files are those of a folder.
type files interface {
	// List names them, in order.
	List(dir string) ([]string, error)
	Create(path string, reserve int64) (file, error)
	// Open also tells the size, and when it was written to.
	Open(path string) (f file, size int64, written time.Time, err error)
	// Size is what a file takes, also where it cannot be opened.
	Size(path string) (int64, error)
	Remove(path string) error
}

// real is the files of the system. Direct I/O goes past the page cache: what is kept
// here was in memory before, and comes back into it, so a second copy there would only
// push others out.
type real struct{ buffered bool }

type realFile struct{ *os.File }

func (r real) open(path string, flags int) (*os.File, error) {
	if !r.buffered {
		f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0o600)
		if !errors.Is(err, unix.EINVAL) { // a file system that has no direct I/O
			return f, err
		}
	}
	return os.OpenFile(path, flags, 0o600)
}

// Create makes a file and reserves room for it, where the file system can.
func (r real) Create(path string, reserve int64) (file, error) {
	f, err := r.open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, reserve)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, fmt.Errorf("reserve %d bytes for %s: %w", reserve, path, err)
	}
	return realFile{f}, nil
}

func (r real) Open(path string) (file, int64, time.Time, error) {
	f, err := r.open(path, os.O_RDWR)
	if err != nil {
		return nil, 0, time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, time.Time{}, err
	}
	return realFile{f}, info.Size(), info.ModTime(), nil
}

func (real) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

func (real) Size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (real) Remove(path string) error { return os.Remove(path) }

func (f realFile) WriteAll(buffers [][]byte, at int64) error {
	for len(buffers) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), buffers[:min(len(buffers), maxTogether)], at)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		}
		at += int64(n)
		for n > 0 && n >= len(buffers[0]) {
			n -= len(buffers[0])
			buffers = buffers[1:]
		}
		if n > 0 {
			buffers = append([][]byte{buffers[0][n:]}, buffers[1:]...)
		}
	}
	return nil
}

// aligned is memory for direct I/O.
func aligned(size int) []byte {
	b := make([]byte, size+page)
	at := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[at : at+size : at+size]
}
