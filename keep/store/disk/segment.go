package disk

import (
	"errors"
	"fmt"
	"io"
	"time"

	"meridian/keep/store/record"
)

// segment is one file: records, one after the other.
type segment struct {
	number uint32
	path   string
	file   file      // nil: it could not be read, and only takes room until it is reclaimed
	size   int64     // of whole records; of one that could not be read, what it takes
	last   time.Time // it was written to
	hashes []uint64  // of the keys whose records it has
	// untrimmed says that what is torn could not be cut off when it was loaded.
	untrimmed bool
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

// load opens a segment that an earlier process wrote, cuts what is torn, and returns its
// records: all of them, or an error and none.
func (d *Disk) load(number uint32, path string) (s *segment, records []found, err error) {
	f, size, written, err := d.files.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("disk: open %s: %w", path, err)
	}
	s = &segment{number: number, path: path, file: f, refs: 1, last: written}
	s.size, err = scan(f, min(size, maxSegment), func(r found) {
		r.place.segment = number
		s.hashes = append(s.hashes, r.hash)
		records = append(records, r)
	})
	if err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("disk: read %s: %w", path, err)
	}
	if err := f.Truncate(s.size); err != nil { // what is whole can be read; the rest takes room
		s.untrimmed = true
		s.size = max(s.size, size)
	}
	return s, records, nil
}

// unread is a segment that could not be loaded. Nothing is found in it, but it counts
// and is reclaimed like others, or what is broken would fill the disk.
func (d *Disk) unread(number uint32, path string) *segment {
	size, err := d.files.Size(path)
	if err != nil {
		size = int64(d.options.SegmentBytes) // at most, as far as it is known
	}
	return &segment{number: number, path: path, size: size, refs: 1, last: d.start}
}
