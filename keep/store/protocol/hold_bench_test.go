package protocol

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meridian/keep/store/master"
	"meridian/kv"
)

// processorTime is what this thread has used. What a lock is held for is counted in it and
// not by the clock: a busy machine lets a thread wait where it has the lock, too.
func processorTime(b *testing.B) time.Duration {
	const ofThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var at syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, ofThread, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		b.Fatal(errno)
	}
	return time.Duration(at.Nano())
}

// BenchmarkLongestHold is how long the machines of an owner and of a master take for one
// event at most: a store has one lock for all of them. An arena has a million objects of
// eight tenants and is full; large objects come, an operator evicts, other masters are
// elected, and small objects are read and put all the while.
func BenchmarkLongestHold(b *testing.B) {
	const count = 1_000_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range b.N {
		longest := longestHolds(b, count)
		for _, what := range slices.Sorted(maps.Keys(longest)) {
			b.ReportMetric(float64(longest[what].Microseconds()), what+"-µs")
		}
	}
}

func longestHolds(b *testing.B, count int) map[string]time.Duration {
	c := fullCrowd(b, count)
	longest := make(map[string]time.Duration)
	name := func(n int) []byte { return keyOfTenant(b, n) }
	value := make([]byte, 100)
	put := func(n int) { c.ask(&Put{Name: name(n), Value: value}) }
	c.elect()
	next := 0
	for ; next < count*11/10; next++ {
		put(next)
	}
	c.watch = func(what string, event func()) {
		began := processorTime(b)
		event()
		longest[what] = max(longest[what], processorTime(b)-began)
	}
	bounds := c.heap.Bounds()
	for range 5 {
		plan := c.ask(&Open{Name: name(next), Bytes: (bounds.Limit - bounds.Base) / 20}).(*Plan)
		c.ask(&Commit{Header: plan.Header, Epoch: plan.Epoch, KeyHash: plan.KeyHash, Abort: true})
		next++
		for range 100 {
			put(next)
			c.ask(&Get{Name: name(next)})
			next++
		}
		c.do(c.take((*Scanned)(nil), func() []Effect { return c.server.Scan(c.now) }))
		c.now += 50 * kv.Millisecond
		c.do(c.take((*Ticked)(nil), func() []Effect { return c.server.Tick(c.now) }))
	}
	c.ask(&Evict{Permille: 700})
	c.elect(master.Mark{Owner: testOwner.Name, Incarnation: testOwner.Incarnation})
	b.ReportMetric(float64(c.objects.Stats().Evictions), "evicted")
	return longest
}

// keyOfTenant is a key of one of eight tenants.
func keyOfTenant(t testing.TB, n int) []byte {
	t.Helper()
	key, err := ObjectName(fmt.Sprint("tenant", n%8), fmt.Sprintf("k%07d", n))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Continued, Scanned and Ticked are names of events that no message brings.
type (
	Continued struct{}
	Scanned   struct{}
	Ticked    struct{}
)
