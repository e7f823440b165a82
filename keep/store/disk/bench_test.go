package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// bare is how fast a file is written and read with direct I/O in pieces of a size, and
// nothing else: what dd does.
func bare(b *testing.B, path string, size, pieces int) (write, read float64) {
	f, err := (real{}).Create(path, int64(size*pieces))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it stays: a file that is removed keeps the disk busy
	buffer := aligned(size)
	rate := func(do func(at int64) error) float64 {
		began := time.Now()
		for i := range pieces {
			if err := do(int64(i * size)); err != nil {
				b.Fatal(err)
			}
		}
		return float64(size*pieces) / time.Since(began).Seconds()
	}
	write = rate(func(at int64) error { return f.WriteAll([][]byte{buffer}, at) })
	read = rate(func(at int64) error { _, err := f.ReadAt(buffer, at); return err })
	return write, read
}

// BenchmarkSequential is what puts and gets of objects one after the other reach of a
// bare file.
func BenchmarkSequential(b *testing.B) {
	const total = 1 << 30
	for _, size := range []int{256 << 10, 1 << 20, 4 << 20} {
		for _, buffered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKiB/buffered=%v", size>>10, buffered), func(b *testing.B) {
				dir := b.TempDir()
				o := tiertest.Object(1, size)
				keys := make([][]byte, total/size)
				for i := range keys {
					keys[i] = fmt.Appendf(nil, "object %d", i)
				}
				for n := range b.N {
					bareWrite, bareRead := bare(b, filepath.Join(dir, fmt.Sprint("bare", n)), 1<<20, total>>20)
					d := open(b, Options{Dir: filepath.Join(dir, fmt.Sprint("disk", n)), Bytes: 4 << 30, SegmentBytes: 128 << 20, MaxWaiting: 32 << 20, Buffered: buffered})
					began := time.Now()
					inParallel(len(keys), 2, func(i int) {
						for d.Put(tier.Object{Key: keys[i], Payload: o.Payload}) != nil {
							time.Sleep(200 * time.Microsecond)
						}
					})
					if err := d.Flush(context.Background()); err != nil {
						b.Fatal(err)
					}
					write := total / time.Since(began).Seconds()
					began = time.Now()
					into := make([][]byte, 4)
					for i := range into {
						into[i] = make([]byte, size)
					}
					inParallel(len(keys), len(into), func(i int) {
						if _, err := d.Get(context.Background(), keys[i], func([]byte, int) []byte { return into[i%len(into)] }); err != nil {
							b.Error(err)
						}
					})
					read := total / time.Since(began).Seconds()
					if err := d.Close(context.Background()); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(write/1e9, "write-GB/s")
					b.ReportMetric(read/1e9, "read-GB/s")
					b.ReportMetric(write/bareWrite, "write-of-bare")
					b.ReportMetric(read/bareRead, "read-of-bare")
				}
			})
		}
	}
}

// inParallel calls for 0 to n-1 in order, some at a time; i and i+workers are never
// under way together.
func inParallel(n, workers int, do func(i int)) {
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wait.Wait()
}
