package store_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory"
)

// jumpingClock is a machine's whose wall clock is set, or goes on while the machine is
// suspended, and whose monotonic one knows nothing of it.
type jumpingClock struct {
	directory.WallClock
	ahead atomic.Int64 // seconds
}

func (c *jumpingClock) Now() time.Time {
	now := time.Now()
	// Package time has no way to make such a Time. Its first word has the seconds of the
	// wall clock above 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.ahead.Load()) << 30
	return now
}

// A jump forward of the wall clock may be a machine that was suspended: an owner gives its
// lease up, and serves when the master has said again that it may. A jump back is no
// sleep, and what comes after it is measured from there.
func TestClockJumps(t *testing.T) {
	clock := &jumpingClock{}
	before, monotonic := clock.Now(), clock.Now()
	clock.ahead.Add(3600)
	if after := clock.Now(); after.Round(0).Sub(before.Round(0)) < time.Hour || after.Sub(monotonic) > time.Minute {
		t.Fatal("this clock cannot jump: package time has other Times by now")
	}
	const long = 45 * time.Second // no lease ends by itself meanwhile
	c := newCell(t, "inproc")
	master := c.start("master", candidate, func(o *store.Options) { o.MasterTTL, o.Lease = long, long })
	owner := c.start("owner", keeps(8<<20), func(o *store.Options) { o.Clock = clock })
	mustPut(t, owner, "k", 1000, store.PutOptions{})
	answers := func() bool {
		t.Helper()
		stats, err := owner.Stats(soon(t))
		if err != nil || len(stats.Owners) != 1 {
			t.Fatalf("%+v: %v", stats, err)
		}
		return stats.Owners[0].Answers
	}
	renewed := func(what string) {
		t.Helper()
		until.True(t, what, answers)
		mustGet(t, owner, "k", 1000)
	}

	clock.ahead.Add(60)
	renewed("a lease after a jump forward")
	clock.ahead.Add(-7200)
	renewed("a lease after a jump back")

	master.kill(t) // it is not renewed from here on
	clock.ahead.Add(-3600)
	if !answers() {
		t.Error("a jump back ended the lease")
	}
	mustGet(t, owner, "k", 1000)
	clock.ahead.Add(1) // it is still an hour behind where it was
	if answers() {
		t.Error("an owner that may have slept for a second answers as if it had not")
	}
	clock.ahead.Add(-1)
	if answers() {
		t.Error("a jump back brought a lease back")
	}
}
