package mem

import (
	"fmt"
	"io"
	"os"
)

// OpenFile makes a section of the first sizeBytes bytes of an open file, which
// it takes over. A file that is shorter is extended, so that every offset of
// the section exists.
func OpenFile(f *os.File, sizeBytes uint64, device uint32) (*Section, error) {
	if sizeBytes == 0 || sizeBytes > 1<<60 {
		return nil, fmt.Errorf("%w: a file section of %d bytes", ErrBounds, sizeBytes)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("mem: %s is not a regular file", f.Name())
	}
	if info.Size() < int64(sizeBytes) {
		if err := f.Truncate(int64(sizeBytes)); err != nil {
			return nil, fmt.Errorf("mem: extend %s to %d bytes: %w", f.Name(), sizeBytes, err)
		}
	}
	s := newSection(File, 0, sizeBytes, nil, &fileBacking{f})
	s.device = device
	return s, nil
}

type fileBacking struct{ f *os.File }

func (b *fileBacking) ReadAt(p []byte, offset uint64) error {
	n, err := b.f.ReadAt(p, int64(offset))
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return fmt.Errorf("%w: %s was cut short to %d bytes", ErrBounds, b.f.Name(), offset+uint64(n))
	}
	return err
}

func (b *fileBacking) WriteAt(p []byte, offset uint64) error {
	_, err := b.f.WriteAt(p, int64(offset))
	return err
}

func (b *fileBacking) Close() error { return b.f.Close() }
