package checksum

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// However the bytes are cut, the Digest is the same; one changed bit is not.
func TestDigestDoesNotSeeCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40<<10).Draw(t, "size")
		body := make([]byte, size)
		random := rand.New(rand.NewPCG(uint64(size), 7))
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		DigestOf := func(body []byte) uint64 {
			var d Digest
			for rest := body; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
				d.Add(rest[:n])
				rest = rest[n:]
			}
			return d.Sum()
		}
		whole := DigestOf(body)
		if again := DigestOf(body); again != whole {
			t.Fatalf("%x and %x", whole, again)
		}
		if size <= SmallChunk && Of(body) != whole {
			t.Fatalf("in one piece %x, in several %x", Of(body), whole)
		}
		copied := make([]byte, size)
		if OfSums(AppendCopy(nil, copied, body)) != whole || !bytes.Equal(copied, body) {
			t.Fatal("a copy has other bytes, or another checksum")
		}
		body[rapid.IntRange(0, size-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if DigestOf(body) == whole {
			t.Fatal("a flipped bit was not seen")
		}
	})
}
