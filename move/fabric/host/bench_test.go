package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// scattered is every other block of the region, in random order.
func scattered(total, block uint64, seed uint64) fabric.List {
	l := fabric.List{{Region: 1, Epoch: 7}}
	for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(int(total / block)) {
		if err := l[0].Spans.Add(uint64(i)*2*block, block); err != nil {
			panic(err)
		}
	}
	return l
}

// offsets are the blocks of a list that has all of one length.
func offsets(l fabric.List, block uint64) (all []uint64) {
	for w := l.Walk(); w.Left() > 0; {
		all = append(all, w.Next(block).Offset)
	}
	return all
}

// copyPlainly is what there is to compare with: two goroutines, copy alone.
func copyPlainly(dst, src *mem.Arena, to, from []uint64, block uint64) {
	var group sync.WaitGroup
	for half := range 2 {
		group.Go(func() {
			for i := len(to) * half / 2; i < len(to)*(half+1)/2; i++ {
				copy(dst.Bytes(to[i], block), src.Bytes(from[i], block))
			}
		})
	}
	group.Wait()
}

// BenchmarkTransfer moves 64 MiB and does the same with plain memcpy in turn;
// "ratio" is memcpy's time by ours.
func BenchmarkTransfer(b *testing.B) {
	const total = 64 << 20
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		for _, block := range []uint64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			for _, unchecked := range []bool{false, true} {
				b.Run(fmt.Sprintf("%v/%dKiB/nosum=%v", op, block>>10, unchecked), func(b *testing.B) {
					benchmarkTransfer(b, op, total, block, unchecked)
				})
			}
		}
	}
}

func benchmarkTransfer(b *testing.B, op fabric.Op, total, block uint64, unchecked bool) {
	near, far := newAgent(b, "near", 2*total, Options{NoChecksums: unchecked}), newAgent(b, "far", 2*total, Options{NoChecksums: unchecked})
	link := near.connect(b, far.peer())
	local, remote := scattered(total, block, 1), scattered(total, block, 2)
	prepared, err := link.Prepare(op, local, remote)
	if err != nil {
		b.Fatal(err)
	}
	defer prepared.Release()
	dst, src, to, from := near.memory, far.memory, offsets(local, block), offsets(remote, block)
	if op == fabric.Write {
		dst, src, to, from = src, dst, from, to
	}
	for _, m := range []*mem.Arena{dst, src} { // every page is there before the clock runs
		for at := uint64(0); at < m.Size(); at += 4096 {
			m.Bytes(at, 1)[0] = byte(at >> 12)
		}
	}
	var ours, plain time.Duration
	for b.Loop() {
		start := time.Now()
		transfer(b, link, prepared, fabric.PostOptions{ID: newID()})
		moved := time.Now()
		copyPlainly(dst, src, to, from, block)
		ours, plain = ours+moved.Sub(start), plain+time.Since(moved)
	}
	b.ReportMetric(float64(total)*float64(b.N)/float64(ours), "GB/s")
	b.ReportMetric(float64(total)*float64(b.N)/float64(plain), "memcpy-GB/s")
	b.ReportMetric(float64(plain)/float64(ours), "ratio")
}

func transfer(t testing.TB, l fabric.Link, p *fabric.Prepared, o fabric.PostOptions) {
	t.Helper()
	posted, err := l.Post(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := posted.Await(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkLatency4KiB is a write with a notification, until that is there and
// the write is done.
func BenchmarkLatency4KiB(b *testing.B) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		b.Run(op.String(), func(b *testing.B) {
			near, far := newAgent(b, "near", 1<<20, Options{}), newAgent(b, "far", 1<<20, Options{})
			link := near.connect(b, far.peer())
			prepared, err := link.Prepare(op, dense(4096, 7), dense(4096, 7))
			if err != nil {
				b.Fatal(err)
			}
			defer prepared.Release()
			b.ReportAllocs()
			for b.Loop() {
				transfer(b, link, prepared, fabric.PostOptions{ID: newID(), Notify: true, Notification: []byte("x")})
				<-far.events.notes
			}
		})
	}
}
