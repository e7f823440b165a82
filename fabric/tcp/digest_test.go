package tcp

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// However the bytes are cut, the digest is the same; one changed bit is not.
func TestDigestDoesNotSeeCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40<<10).Draw(t, "size")
		body := make([]byte, size)
		random := rand.New(rand.NewPCG(uint64(size), 7))
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		digestOf := func(body []byte) uint64 {
			var d digest
			for rest := body; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
				d.add(rest[:n])
				rest = rest[n:]
			}
			return d.sum()
		}
		whole := digestOf(body)
		if again := digestOf(body); again != whole {
			t.Fatalf("%x and %x", whole, again)
		}
		if size <= smallPart && checksum(body) != whole {
			t.Fatalf("in one piece %x, in several %x", checksum(body), whole)
		}
		body[rapid.IntRange(0, size-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if digestOf(body) == whole {
			t.Fatal("a flipped bit was not seen")
		}
	})
}
