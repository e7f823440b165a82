package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"meridian/keep/store/record"
)

// segment is one file: records, one after the other.
type segment struct {
	number uint32
	path   string
	file   file
	size   int64     // of whole records
	last   time.Time // it was written to
	hashes []uint64  // of the keys whose records it has
	// refs are those that read it, and one until it is reclaimed. The disk's mu protects it.
	refs int
}

// found is a record that a scan came across.
type found struct {
	hash    uint64
	place   place
	dropped bool
}

// scan tells of each whole record of a file of a size, in order, and where the first
// broken one begins, or the file ends. Payloads are not read: a broken one is found when
// it is asked for. A file that cannot be read is an error, and nothing of it is cut.
func scan(f io.ReaderAt, size int64, yield func(found)) (end int64, err error) {
	lead := aligned(page)
	for end < size {
		n, err := f.ReadAt(lead, end)
		if err != nil && !errors.Is(err, io.EOF) {
			return end, err
		}
		e, err := record.Parse(lead[:n])
		if err != nil || e.Bytes%page != 0 || int64(e.Bytes) > size-end {
			return end, nil
		}
		yield(found{record.HashKey(e.Key), place{page: uint32(end / page), pages: uint32(e.Bytes / page)}, e.Dropped})
		end += int64(e.Bytes)
	}
	return end, nil
}

// load opens a segment that an earlier process wrote, and cuts what is torn.
func (d *Disk) load(number uint32, path string, yield func(found)) (*segment, error) {
	f, size, err := d.files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("disk: open %s: %w", path, err)
	}
	s := &segment{number: number, path: path, file: f, refs: 1, last: d.start}
	if info, err := os.Stat(path); err == nil { // else it counts as written now
		s.last = info.ModTime()
	}
	s.size, err = scan(f, min(size, maxSegment), func(r found) {
		r.place.segment = number
		s.hashes = append(s.hashes, r.hash)
		yield(r)
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("disk: read %s: %w", path, err)
	}
	if err := f.Truncate(s.size); err != nil { // room that was reserved goes back, too
		_ = f.Close()
		return nil, fmt.Errorf("disk: cut %s: %w", path, err)
	}
	return s, nil
}
