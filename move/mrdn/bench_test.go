package mrdn

import (
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

// BenchmarkEncodeVerify16KiB times a frame's way out and back in. A frame is
// hashed once by its writer and once by its reader, so nothing can be faster
// than two bare passes over the same bytes. Both are timed turn by turn in one
// loop, because machines drift; "of-bare" is their ratio.
func BenchmarkEncodeVerify16KiB(b *testing.B) {
	body := patternBody(16 << 10)
	buf := make([]byte, 0, HeaderSize+len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var bare, framed time.Duration
	for b.Loop() {
		start := time.Now()
		first, second := blake3.Sum256(body), blake3.Sum256(body)
		between := time.Now()
		var err error
		if buf, err = AppendFrame(buf[:0], kv.ThinkComplete, body); err != nil {
			b.Fatal(err)
		}
		f, _, err := Parse(buf, DefaultMaxBody)
		framed += time.Since(between)
		bare += between.Sub(start)
		if err != nil || first != second || [ChecksumSize]byte(first[:ChecksumSize]) != f.Checksum {
			b.Fatal("one body, two digests", err)
		}
	}
	b.ReportMetric(float64(framed)/float64(bare), "of-bare")
}
