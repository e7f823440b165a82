package fabric

import (
	"sync"

	"meridian/move/checksum"
)

// Sums are those of one run of this agent's memory, segment by segment (package
// checksum), taken by whatever places bytes there, while they are in its cache:
// another pass over memory costs as much as the copy did. A fabric that cannot say
// them says nothing, and who wants them sums by itself.
type Sums struct {
	region, offset, bytes uint64
	checked               bool

	mu    sync.Mutex // protects the rest
	sums  []byte
	noted uint64 // segments
}

// NewSums makes them for bytes from an offset of a region on. Checked says that they
// are compared with the source's: a fabric need not compare the bytes as well.
func NewSums(region, offset, bytes uint64, checked bool) *Sums {
	return &Sums{region: region, offset: offset, bytes: bytes, checked: checked, sums: make([]byte, 8*segments(bytes))}
}

// KnownSums are those of a source that has them already. A fabric that sends sums
// along sends these: the side that places the bytes finds out whether they are right.
func KnownSums(region, offset, bytes uint64, sums []byte) *Sums {
	return &Sums{region: region, offset: offset, bytes: bytes, sums: sums, noted: uint64(len(sums) / 8)}
}

func segments(bytes uint64) uint64 { return (bytes + checksum.Segment - 1) / checksum.Segment }

// Checked reports whether they replace the comparison of a copy with its source.
func (s *Sums) Checked() bool { return s != nil && s.checked }

// Wants reports whether these bytes, in one piece, are whole segments of the run.
func (s *Sums) Wants(region, offset, bytes uint64) bool {
	if s == nil || region != s.region || offset < s.offset || bytes == 0 {
		return false
	}
	from := offset - s.offset
	return from%checksum.Segment == 0 && from < s.bytes && bytes <= s.bytes-from && (bytes%checksum.Segment == 0 || from+bytes == s.bytes)
}

// Note takes the sums of bytes from an offset of the region on, which Wants has
// allowed.
func (s *Sums) Note(offset uint64, sums []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted += uint64(copy(s.sums[8*((offset-s.offset)/checksum.Segment):], sums)) / 8
}

// Known are the sums of bytes in one piece, of KnownSums; nil if they are not whole
// segments of the run.
func (s *Sums) Known(region, offset, bytes uint64) []byte {
	if !s.Wants(region, offset, bytes) {
		return nil
	}
	return s.sums[8*((offset-s.offset)/checksum.Segment):][:8*segments(bytes)]
}

// Of are the sums of the first bytes of the run, when nothing is placed there any
// more; nil if they are not known: every segment was to be summed, and just once,
// because one that was placed again may have other bytes than its sum says.
func (s *Sums) Of(bytes uint64) []byte {
	if s == nil || bytes > s.bytes || bytes%checksum.Segment != 0 && bytes != s.bytes {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted != segments(bytes) {
		return nil
	}
	return s.sums[:8*s.noted]
}
