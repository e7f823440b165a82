package store

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"meridian/move/checksum"
)

// However an object is cut, its sum is known when each segment came in one piece, and
// is that of what came last.
func TestWrittenSums(t *testing.T) {
	const segment = checksum.Segment
	for name, test := range map[string]struct {
		size   uint64
		pieces [][2]uint64 // offset and length
		known  bool
	}{
		"nothing":             {size: 100},
		"whole":               {size: 3*segment + 100, pieces: [][2]uint64{{0, 3*segment + 100}}, known: true},
		"short":               {size: 100, pieces: [][2]uint64{{0, 100}}, known: true},
		"segments, backwards": {size: 3*segment + 1, pieces: [][2]uint64{{3 * segment, 1}, {segment, 2 * segment}, {0, segment}}, known: true},
		"twice":               {size: 2 * segment, pieces: [][2]uint64{{0, segment}, {0, 2 * segment}}, known: true},
		"a gap":               {size: 3 * segment, pieces: [][2]uint64{{0, segment}, {2 * segment, segment}}},
		"cut in a segment":    {size: 2 * segment, pieces: [][2]uint64{{0, segment + 5}, {segment + 5, segment - 5}}},
		"mended":              {size: 2 * segment, pieces: [][2]uint64{{0, 5}, {5, 2*segment - 5}, {0, segment}}, known: true},
		"spoilt":              {size: 2 * segment, pieces: [][2]uint64{{0, 2 * segment}, {7, 1}}},
		"within one":          {size: segment, pieces: [][2]uint64{{5, 7}}},
	} {
		for _, copies := range []bool{false, true} {
			w := writeSums{bytes: test.size}
			lies, random := make([]byte, test.size), rand.NewChaCha8([32]byte{1})
			for _, p := range test.pieces {
				data := make([]byte, p[1])
				_, _ = random.Read(data)
				copy(lies[p[0]:], data)
				var dst []byte
				if copies {
					dst = make([]byte, p[1])
				}
				w.take(p[0], dst, data)
				if copies && !bytes.Equal(dst, data) {
					t.Errorf("%s: a copy differs", name)
				}
			}
			sum, known := w.sum()
			if known != test.known || known && sum != checksum.OfSums(checksum.AppendSums(nil, lies)) {
				t.Errorf("%s: %x, known: %t", name, sum, known)
			}
		}
	}
}
