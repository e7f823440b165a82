package store_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"meridian/keep/store"
)

// pair is an owner that is its own master, and a client on another agent.
func pair(b *testing.B, fabricName string) (owner, client *node) {
	c := newCell(b, fabricName)
	owner = c.start("owner", keeps(512<<20), candidate)
	client = c.start("client")
	mustPut(b, client, "warm", 100, store.PutOptions{})
	return owner, client
}

// percentiles reports the median and the 99th percentile of what op took, less what
// comes after it, and the processor's time for both.
func percentiles(b *testing.B, op func(i int), after ...func(i int)) {
	took := make([]time.Duration, 0, b.N)
	used := processorTime(b)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		op(i)
		took = append(took, time.Since(began))
		for _, do := range after {
			do(i)
		}
	}
	used = processorTime(b) - used
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(used.Microseconds())/float64(len(took)), "cpu-µs/op")
}

// processorTime is what this process has used: both sides are in it.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cold is how many bytes are put and got in turn, so that no cache holds them all.
const cold = 128 << 20

func BenchmarkStore(b *testing.B) {
	ctx := context.Background()
	for _, fabricName := range []string{"tcp", "host"} {
		b.Run("open-for-write/"+fabricName, func(b *testing.B) {
			_, client := pair(b, fabricName)
			var opened *store.WritePlan
			percentiles(b, func(i int) {
				var err error
				if opened, err = client.OpenForWrite(ctx, fmt.Sprint("k", i), 1<<20, store.PutOptions{}); err != nil {
					b.Fatal(err)
				}
			}, func(int) {
				if err := opened.Abort(ctx); err != nil {
					b.Fatal(err)
				}
			})
		})
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
			for _, buffered := range []bool{false, true} {
				if buffered && size <= 4<<10 {
					continue
				}
				name := fmt.Sprintf("%d/%s", size, fabricName)
				if buffered {
					name += "/buffer"
				}
				b.Run("put/"+name, func(b *testing.B) { benchmarkPut(b, fabricName, size, buffered) })
				b.Run("get/"+name, func(b *testing.B) { benchmarkGet(b, fabricName, size, buffered) })
			}
		}
	}
}

// memoryOf is where a client's values are.
func memoryOf(b *testing.B, client *node, bytes int, buffered bool) []byte {
	if !buffered {
		return value("v", bytes)
	}
	buffer, err := client.Buffer(uint64(bytes))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := buffer.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	copy(buffer.Bytes(), value("v", bytes))
	return buffer.Bytes()
}

func benchmarkPut(b *testing.B, fabricName string, size int, buffered bool) {
	ctx := context.Background()
	_, client := pair(b, fabricName)
	objects := cold / max(size, 1<<20)
	memory := memoryOf(b, client, objects*size, buffered)
	key := func(i int) string { return fmt.Sprint("k", i%(2*objects)) } // two, so that memory does not come back at once
	put := func(i int) {
		if err := client.Put(ctx, key(i), memory[i%objects*size:][:size], store.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	remove := func(i int) {
		if err := client.Remove(ctx, key(i), store.RemoveOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range objects {
		put(i) // memory that was never touched is mapped first
	}
	for i := range objects {
		remove(i)
	}
	b.SetBytes(int64(size))
	percentiles(b, put, remove)
}

func benchmarkGet(b *testing.B, fabricName string, size int, buffered bool) {
	ctx := context.Background()
	_, client := pair(b, fabricName)
	objects := cold / max(size, 1<<20)
	for i := range objects {
		mustPut(b, client, fmt.Sprint("k", i), size, store.PutOptions{})
	}
	memory := memoryOf(b, client, objects*size, buffered)
	b.SetBytes(int64(size))
	percentiles(b, func(i int) {
		i %= objects
		if _, err := client.Get(ctx, fmt.Sprint("k", i), memory[i*size:][:size], store.GetOptions{}); err != nil {
			b.Fatal(err)
		}
	})
}
