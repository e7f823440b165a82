package store_test

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store"
)

// Bytes that change between a writer and the arena are found when it commits, and the
// key can be put again.
func TestBytesThatChangeBeforeTheCommit(t *testing.T) {
	c := newCell(t, "tcp")
	owner := c.start("owner", keeps(32<<20), candidate)
	client := c.start("client")
	const size = 1 << 20
	data := value("k", size)
	for _, cut := range []int{size, 512 << 10, 100} {
		plan, err := client.OpenForWrite(soon(t), "k", size, store.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < size; at += size / 2 {
			if err := plan.Write(soon(t), uint64(at), data[at:at+size/2]); err != nil {
				t.Fatal(err)
			}
		}
		if cut < size {
			if err := plan.Write(soon(t), uint64(cut), data[cut:]); err != nil {
				t.Fatal(err)
			}
		}
		owner.Arena().Bytes(plan.Offset, size)[size-10] ^= 1
		err = plan.Commit(soon(t))
		if whole := cut%4096 == 0; whole && !errors.Is(err, store.ErrTorn) {
			t.Errorf("written again from %d on: a byte that changed was committed: %v", cut, err)
		} else if !whole && err != nil { // a segment in two parts has no sum
			t.Errorf("written again from %d on: %v", cut, err)
		}
	}
	if torn := client.Metrics().Torn; torn != 2 {
		t.Errorf("%d objects were torn, of 2", torn)
	}
	if err := client.Remove(soon(t), "k", store.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, client, "k", size, store.PutOptions{})
	mustGet(t, client, "k", size)
	if stats, is := owner.Kept(); !is || stats.Writing != 0 || stats.Ready != 1 {
		t.Errorf("at the owner: %+v", stats)
	}
}

// Bytes that changed in the arena are a miss, never a value.
func TestBytesThatChangeAreAMiss(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", keeps(64<<20), candidate)
	client := c.start("client")
	flip := func(key string, size int) {
		t.Helper()
		p, err := a.OpenForWrite(soon(t), key, uint64(size), store.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		memory := p.Memory()
		copy(memory, value(key, size))
		if err := p.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		memory[size/2] ^= 4
	}
	for _, size := range []int{1000, 256 << 10, 1 << 20} {
		for _, n := range []*node{a, client} {
			key := fmt.Sprint(n.name, size)
			flip(key, size)
			mustMiss(t, n, key)
			mustPut(t, n, key, size, store.PutOptions{}) // it is not in the way
			mustGet(t, n, key, size)
		}
	}
	flip("scrubbed", 5000)
	flip("scrubbed too", 500<<10)
	found, err := client.Scrub(soon(t), "a", func(uint64, uint64) {})
	if err != nil || found.Objects != 6 || found.Torn != 2 || found.Gone != 0 {
		t.Fatalf("%+v: %v", found, err)
	}
	if found, err = a.Scrub(soon(t), "a", func(uint64, uint64) {}); err != nil || found.Objects != 6 || found.Torn != 0 {
		t.Fatalf("%+v: %v", found, err)
	}
	kept, _ := a.Kept()
	if seen := client.Metrics().Torn; kept.Torn+seen != 8 || kept.Torn == 0 || a.Metrics().Torn != 0 || kept.Refused != 0 {
		t.Errorf("8 objects were torn: the owner saw %d, its client %d", kept.Torn, seen)
	}
}
