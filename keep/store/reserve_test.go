package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/keep/store"
)

func runOf(tenant string, n int) store.Run {
	r := store.Run{Tenant: tenant}
	for i := range n {
		r.Keys = append(r.Keys, fmt.Sprintf("unit-%d", i))
	}
	return r
}

// from is the rest of a run.
func from(r store.Run, n int) store.Run { return store.Run{Tenant: r.Tenant, Keys: r.Keys[n:]} }

const unitBytes = 64 << 10

// startOwner is a node that keeps objects, with the lease that it needs for that.
func startOwner(t *testing.T, c *cell, bytes uint64) *node {
	n := c.start("a", candidate, keeps(bytes))
	if err := n.Remove(soon(t), "nothing", store.RemoveOptions{}); !errors.Is(err, store.ErrMissing) {
		t.Fatal(err)
	}
	return n
}

// keepRun has a run written as a hand-off does: into the arena, where it is to lie.
func keepRun(t *testing.T, n *node, r store.Run) {
	t.Helper()
	_, plans, err := n.Reserve(soon(t), r, unitBytes, time.Minute)
	if err != nil || len(plans) != len(r.Keys) {
		t.Fatalf("%d of %d reserved: %v", len(plans), len(r.Keys), err)
	}
	for i, p := range plans {
		if p.Offset%4096 != 0 {
			t.Fatalf("an object at %d: blocks are numbered in steps of 4096", p.Offset)
		}
		copy(n.Arena().Bytes(p.Offset, unitBytes), value(r.Keys[i], unitBytes))
	}
	if committed, err := n.CommitRun(soon(t), plans); err != nil || committed != len(plans) {
		t.Fatalf("%d of %d committed: %v", committed, len(plans), err)
	}
	if err := n.Touch(r); err != nil {
		t.Fatal(err)
	}
}

// An owner that has just come keeps what it is given at once: it waits for its lease.
func TestReserveBeforeTheLease(t *testing.T) {
	c := newCell(t, "tcp")
	for _, name := range []string{"a", "b", "c"} {
		n := c.start(name, candidate, keeps(4<<20))
		if _, plans, err := n.Reserve(soon(t), runOf(name, 1), unitBytes, time.Minute); err != nil || len(plans) != 1 {
			t.Fatalf("owner %s: %d reserved: %v", name, len(plans), err)
		}
	}
}

// A run that is written where it lies is found by all, once it is committed and not
// before; what is aborted leaves nothing.
func TestRunIsReserved(t *testing.T) {
	c := newCell(t, "tcp")
	a := startOwner(t, c, 16<<20)
	client := c.start("client")
	r := runOf("tenant", 8)
	_, plans, err := a.Reserve(soon(t), r, unitBytes, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetBytes(soon(t), r.Keys[0], store.GetOptions{Tenant: "tenant"}); !errors.Is(err, store.ErrMissing) {
		t.Fatalf("before the commit: %v", err)
	}
	if err := a.AbortRun(soon(t), plans); err != nil {
		t.Fatal(err)
	}
	if stats, _ := a.Kept(); stats.Writing != 0 || stats.Ready != 0 {
		t.Fatalf("after the abort: %+v", stats)
	}
	keepRun(t, a, r)
	for _, key := range r.Keys {
		got, err := client.GetBytes(soon(t), key, store.GetOptions{Tenant: "tenant"})
		if err != nil || string(got) != string(value(key, unitBytes)) {
			t.Fatalf("%s: %v, wrong bytes", key, err)
		}
	}
	owners, err := client.Where(soon(t), r)
	if err != nil || owners[0] != "a" || owners[7] != "a" {
		t.Fatalf("%v, %v", owners, err)
	}
	if owners, err = client.Where(soon(t), runOf("another", 2)); err != nil || owners[0] != "" {
		t.Fatalf("of another tenant: %v, %v", owners, err)
	}
}

// Of many that reserve the same run at once one has all of it, and the others nothing.
func TestRunIsReservedOnce(t *testing.T) {
	c := newCell(t, "inproc")
	a := startOwner(t, c, 64<<20)
	r := runOf("", 16)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var got []int
	for range 8 {
		wait.Go(func() {
			_, plans, err := a.Reserve(soon(t), r, unitBytes, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if got = append(got, len(plans)); len(plans) == 0 && !errors.Is(err, store.ErrBusy) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	all := 0
	for _, n := range got {
		all += n
		if n != 0 && n != 16 {
			t.Errorf("one has %d of 16", n)
		}
	}
	if all != 16 {
		t.Errorf("%v: written more than once, or never", got)
	}
}

// What is held stays; what is evicted goes from the end of the run that was used least
// recently, so that nothing stays without what comes before it.
func TestEvictionTakesRunsFromTheirEnd(t *testing.T) {
	c := newCell(t, "inproc")
	a := startOwner(t, c, 16<<20)
	whole, branch := runOf("", 12), runOf("", 6)
	branch.Keys = append(branch.Keys, "other-6", "other-7")
	keepRun(t, a, from(whole, 0))
	keepRun(t, a, from(branch, 6))
	if err := a.Touch(branch); err != nil { // it shares the first six
		t.Fatal(err)
	}
	held, err := a.Hold(soon(t), whole, 0)
	if err != nil || len(held.Places) != 12 {
		t.Fatal(err)
	}
	if _, err := a.EvictUntilBelow(soon(t), "a", 0); err != nil {
		t.Fatal(err)
	}
	if owners, _ := a.Where(soon(t), whole); owners[11] != "a" {
		t.Fatal("an object was evicted that is held")
	}
	held.Release()
	held.Release()
	for left := 12; left > 0; left-- {
		stats, _ := a.Kept()
		if int(stats.Ready) != left {
			t.Fatalf("%d objects of %d", stats.Ready, left)
		}
		owners, _ := a.Where(soon(t), whole)
		for i, owner := range owners {
			if (owner != "") != (i < left) {
				t.Fatalf("of %d objects that are left, there are %q", left, owners)
			}
		}
		part := float64(stats.HeapUsed)/float64(stats.HeapTotal) - 0.001
		if _, err := a.EvictUntilBelow(soon(t), "a", max(0, part)); err != nil {
			t.Fatal(err)
		}
	}
}

// A byte that changed in the arena ends what can be held before it, and the object.
func TestHeldIsVerified(t *testing.T) {
	c := newCell(t, "inproc")
	a := startOwner(t, c, 16<<20)
	r := runOf("", 5)
	keepRun(t, a, r)
	held, err := a.Hold(soon(t), r, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.Arena().Bytes(held.Places[3].Offset, unitBytes)[unitBytes-1] ^= 1
	held.Release()
	held, err = a.Hold(soon(t), r, 0)
	if !errors.Is(err, store.ErrMissing) || len(held.Places) != 3 {
		t.Fatalf("%d objects are held: %v", len(held.Places), err)
	}
	held.Release()
	if owners, _ := a.Where(soon(t), r); owners[3] != "" || owners[4] != "a" {
		t.Fatalf("%q", owners)
	}
	if _, _, err := a.Reserve(soon(t), from(r, 3), unitBytes, time.Minute); !errors.Is(err, store.ErrExists) {
		t.Fatalf("the one that broke can be written again, the one behind it is there: %v", err)
	}
}

// What another owner has, or is being given, is there: the rest of a run that begins with it can
// be had.
func TestReserveBehindAnotherOwner(t *testing.T) {
	c := newCell(t, "tcp")
	a := startOwner(t, c, 16<<20)
	b := c.start("b", keeps(16<<20))
	r := runOf("tenant", 6)
	keepRun(t, a, store.Run{Tenant: r.Tenant, Keys: r.Keys[:1]})
	if _, plans, err := a.Reserve(soon(t), store.Run{Tenant: r.Tenant, Keys: r.Keys[1:3]}, unitBytes, time.Minute); err != nil || len(plans) != 2 {
		t.Fatalf("%d reserved: %v", len(plans), err)
	}
	there, plans, err := b.Reserve(soon(t), r, unitBytes, time.Minute)
	if there != 3 || len(plans) != 3 || err != nil {
		t.Errorf("behind %d of another owner %d are reserved: %v", there, len(plans), err)
	}
	if _, plans, err := b.Reserve(soon(t), store.Run{Tenant: r.Tenant, Keys: r.Keys[:3]}, unitBytes, time.Minute); len(plans) > 0 || !errors.Is(err, store.ErrExists) {
		t.Errorf("%d are reserved that another owner has: %v", len(plans), err)
	}
}
