// Package admission decides what the colder tiers of an object cache are given and asked:
// which objects were used often enough to be kept there, which of a run are fetched ahead,
// how much a server may be asked, and when a tier is left alone. It is pure.
package admission

// Sketch counts how often hashes were used lately, in bounded memory: never too few,
// sometimes too many. Counts are halved now and then, so that what was used long ago
// counts less and less.
type Sketch struct {
	counters []uint8 // rows one after the other
	mask     uint64  // of a place in a row
	added    int
	halve    int // after so many
}

const (
	rows     = 4
	maxCount = 15
)

// NewSketch makes one that tells about as many hashes apart as it has counters in a row:
// 4 bytes each.
func NewSketch(hashes int) *Sketch {
	width := 64
	for width < hashes && width < 1<<26 {
		width *= 2
	}
	return &Sketch{counters: make([]uint8, rows*width), mask: uint64(width - 1), halve: 8 * width}
}

// Use notes a use of a hash, and returns how often it was used, this time included.
func (s *Sketch) Use(hash uint64) int {
	least := s.Count(hash)
	if least < maxCount {
		for row := range rows { // only the lowest grow: the others count for another, too
			if c := s.at(row, hash); int(*c) == least {
				*c++
			}
		}
		least++
	}
	if s.added++; s.added >= s.halve {
		s.age()
	}
	return least
}

// Count is how often a hash was used.
func (s *Sketch) Count(hash uint64) int {
	least := maxCount
	for row := range rows {
		least = min(least, int(*s.at(row, hash)))
	}
	return least
}

func (s *Sketch) at(row int, hash uint64) *uint8 {
	h := (hash + uint64(row)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd // each row has bits of its own
	h ^= h >> 32
	return &s.counters[uint64(row)*(s.mask+1)+h&s.mask]
}

func (s *Sketch) age() {
	s.added = 0
	for i := range s.counters {
		s.counters[i] /= 2
	}
}
