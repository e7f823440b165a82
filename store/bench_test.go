package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"meridian/store"
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
// comes after it.
func percentiles(b *testing.B, op func(i int), after ...func()) {
	took := make([]time.Duration, 0, b.N)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		op(i)
		took = append(took, time.Since(began))
		for _, do := range after {
			do()
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

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
			}, func() {
				if err := opened.Abort(ctx); err != nil {
					b.Fatal(err)
				}
			})
		})
		for _, size := range []int{4 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("put/%d/%s", size, fabricName), func(b *testing.B) {
				_, client := pair(b, fabricName)
				v := value("v", size)
				b.SetBytes(int64(size))
				percentiles(b, func(i int) {
					if err := client.Put(ctx, fmt.Sprint("k", i), v, store.PutOptions{}); err != nil {
						b.Fatal(err)
					}
				})
			})
			b.Run(fmt.Sprintf("get/%d/%s", size, fabricName), func(b *testing.B) {
				_, client := pair(b, fabricName)
				mustPut(b, client, "k", size, store.PutOptions{})
				into := make([]byte, size)
				b.SetBytes(int64(size))
				percentiles(b, func(int) {
					if _, err := client.Get(ctx, "k", into, store.GetOptions{}); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
		b.Run("get-buffer/1048576/"+fabricName, func(b *testing.B) {
			_, client := pair(b, fabricName)
			mustPut(b, client, "k", 1<<20, store.PutOptions{})
			into, err := client.Buffer(1 << 20)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(1 << 20)
			percentiles(b, func(int) {
				if _, err := client.Get(ctx, "k", into.Bytes(), store.GetOptions{}); err != nil {
					b.Fatal(err)
				}
			})
			if err := into.Close(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
