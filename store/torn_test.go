package store_test

import (
	"errors"
	"testing"

	"meridian/store"
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
