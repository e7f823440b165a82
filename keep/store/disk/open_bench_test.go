package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"meridian/keep/store/record"
	"meridian/kv"
	"meridian/move/mrdn"
)

// keyBytes is how long the names of kept objects are, about.
const keyBytes = 64

// fillSparse makes segments of records up to a size, whose payloads are holes: what opening
// looks at is there, and takes a page of the disk for each record. It returns how many there are.
func fillSparse(b *testing.B, dir string, total, segmentBytes uint64, payload int) (count int) {
	b.Helper()
	model := record.Record{Key: make([]byte, keyBytes), Header: make([]byte, 32), Payload: make([]byte, payload)}
	whole := aligned(record.Size(&model, page))
	if err := record.Encode(whole, &model); err != nil {
		b.Fatal(err)
	}
	lead := whole[:page]
	entry, err := record.Parse(lead)
	if err != nil {
		b.Fatal(err)
	}
	body := lead[mrdn.HeaderSize:entry.Payload]
	perSegment := segmentBytes / uint64(len(whole))
	for number := range uint32(total / segmentBytes) {
		f, err := os.OpenFile(filepath.Join(dir, segmentName(number)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Truncate(int64(perSegment) * int64(len(whole)))
		}
		for i := int64(0); err == nil && i < int64(perSegment); i++ {
			binary.LittleEndian.PutUint64(entry.Key, uint64(count))
			count++
			var frame mrdn.Header
			if frame, err = mrdn.NewHeader(kv.ThinkComplete, body); err == nil {
				frame.Append(lead[:0])
				_, err = f.WriteAt(lead, i*int64(len(whole)))
			}
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return count
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkOpen is how long a folder takes to open and what memory its index has:
// MERIDIAN_BENCH_DISK_GIB gigabytes of records (4), with real headers in sparse files, so
// that a terabyte of 4 MiB takes 1 GiB of the disk.
func BenchmarkOpen(b *testing.B) {
	total := uint64(4) << 30
	if gib, err := strconv.ParseUint(os.Getenv("MERIDIAN_BENCH_DISK_GIB"), 10, 32); err == nil {
		total = gib << 30
	}
	for _, size := range []int{4 << 20, 1 << 20, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			o, err := Options{Dir: b.TempDir(), Bytes: total}.withDefaults()
			if err != nil {
				b.Fatal(err)
			}
			count := fillSparse(b, o.Dir, total, o.SegmentBytes, size-page)
			before := heapInUse()
			var took time.Duration
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				d, err := Open(context.Background(), o)
				if err != nil {
					b.Fatal(err)
				}
				took += time.Since(began)
				if n := len(d.index); n != count {
					b.Fatalf("%d of %d objects are found", n, count)
				}
				b.ReportMetric(float64(heapInUse()-before)/float64(count), "index-B/object")
				if err := d.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(count), "objects")
			b.ReportMetric(took.Seconds()/float64(b.N), "s/open")
			b.ReportMetric(took.Seconds()/float64(b.N)/float64(count)*1e6, "s/million")
		})
	}
}
