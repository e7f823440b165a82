package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory"
	"meridian/move/agent"
)

// What an owner kept that died is missing soon, and puts go elsewhere at once, but for what
// was on its way to it.
func TestOwnerDies(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("master", candidate, shortLease)
	c.start("a", keeps(32<<20))
	b := c.start("b", keeps(32<<20))
	client := c.start("client")
	until.True(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustPut(t, client, fmt.Sprint("a", i), 1000, store.PutOptions{Preferred: "a"})
		mustPut(t, client, fmt.Sprint("b", i), 1000, store.PutOptions{Preferred: "b"})
	}
	b.kill(t)
	err := client.Put(soon(t), "new", value("new", 300<<10), store.PutOptions{Preferred: "b"})
	if errors.Is(err, store.ErrUnavailable) { // the link broke as it was sent, so it might have happened
		err = client.Put(soon(t), "new", value("new", 300<<10), store.PutOptions{Preferred: "b"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if at, err := client.Locate(soon(t), "new", store.LocateOptions{}); err != nil || at.Owner != "a" {
		t.Fatalf("%+v: %v", at, err)
	}
	late := c.start("late", func(o *store.Options) { // it has not met the dead one
		find := o.Find
		o.Find = func(ctx context.Context, name string) (*agent.Peer, error) {
			if name == "b" {
				return nil, errors.New("connection refused")
			}
			return find(ctx, name)
		}
	})
	mustPut(t, late, "newer", 1000, store.PutOptions{Preferred: "b"})
	for i := range 20 {
		mustGet(t, client, fmt.Sprint("a", i), 1000)
		mustMiss(t, client, fmt.Sprint("b", i))
	}
	mustPut(t, client, "b0", 1000, store.PutOptions{})
	mustGet(t, client, "b0", 1000)
}

// Who reads from an owner that dies hears so long before its own deadline.
func TestOwnerDiesWhileItIsRead(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("master", candidate, shortLease)
	a := c.start("a", keeps(64<<20))
	client := c.start("client")
	mustPut(t, client, "large", 4<<20, store.PutOptions{})
	mustPut(t, client, "small", 4<<10, store.PutOptions{})
	var wait sync.WaitGroup
	for i := range 8 {
		key, size := []string{"large", "small"}[i%2], []int{4 << 20, 4 << 10}[i%2]
		wait.Go(func() {
			into := make([]byte, size)
			for {
				n, err := client.Get(soon(t), key, into, store.GetOptions{})
				switch {
				case errors.Is(err, store.ErrMissing):
					return
				case err != nil:
					t.Errorf("%v, want ErrMissing", err)
					return
				case !bytes.Equal(into[:n], value(key, size)):
					t.Error("wrong bytes")
				}
			}
		})
	}
	until.True(t, "it is being read", func() bool { return client.Metrics().Gets >= 8 })
	a.kill(t)
	wait.Wait()
}

// An owner that starts again has another incarnation and nothing kept; its name has
// the same number.
func TestOwnerStartsAgain(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("master", candidate, shortLease)
	c.start("a", keeps(16<<20))
	b := c.start("b", keeps(16<<20))
	client := c.start("client")
	until.True(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	mustPut(t, client, "k", 1000, store.PutOptions{Preferred: "b"})
	before := client.Owners()[1]
	epoch := func(n *node) uint32 { return binary.LittleEndian.Uint32(n.Arena().Bytes(124, 4)) } // docs/store-layout.md
	was := epoch(b)
	b.kill(t)
	if now := epoch(c.start("b", keeps(16<<20))); was == 0 || now == 0 || now == was {
		t.Errorf("its arena had epoch %d, and has %d", was, now)
	}
	until.True(t, "its new incarnation", func() bool {
		owners := client.Owners()
		return len(owners) == 2 && owners[1].Incarnation != before.Incarnation
	})
	mustMiss(t, client, "k")
	mustPut(t, client, "k", 2000, store.PutOptions{Preferred: "b"})
	mustGet(t, client, "k", 2000)
	if at, err := client.Locate(soon(t), "k", store.LocateOptions{}); err != nil || at.Owner != "b" || at.Rank != before.Rank {
		t.Fatalf("%+v: %v, want it at b, number %d", at, err, before.Rank)
	}
}

// The record of an owner that stood still is gone from the directory until it goes on.
// Requests wait for it: where it is the only one, no other can answer.
func TestOwnerIsOutOfSight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "inproc")
		c.start("a", keeps(8<<20), candidate)
		client := c.start("client")
		mustPut(t, client, "k", 1000, store.PutOptions{})
		operator := c.operator()
		owners, err := operator.List(soon(t), "store/owners/")
		if err != nil || len(owners.Records) != 1 {
			t.Fatalf("%+v: %v", owners, err)
		}
		if err := operator.Delete(soon(t), owners.Records[0].Key, directory.Any); err != nil {
			t.Fatal(err)
		}
		until.True(t, "no owner", func() bool { return len(client.Owners()) == 0 })
		var waiting sync.WaitGroup
		waiting.Go(func() { mustGet(t, client, "k", 1000) })
		waiting.Go(func() { mustPut(t, client, "new", 1000, store.PutOptions{}) })
		waiting.Go(func() {
			if err := client.Remove(soon(t), "none", store.RemoveOptions{}); !errors.Is(err, store.ErrMissing) {
				t.Errorf("%v, want ErrMissing", err)
			}
		})
		synctest.Wait() // they wait
		if _, err := operator.Put(soon(t), directory.Entry{Key: owners.Records[0].Key, Value: owners.Records[0].Value}); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
	})
}

// No answer comes where no owner is; the deadline is the caller's.
func TestNobodyThere(t *testing.T) {
	c := newCell(t, "inproc")
	client := c.start("client")
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := client.Put(short, "k", []byte("v"), store.PutOptions{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("no owner: %v", err)
	}
	c.start("a", keeps(8<<20))
	until.True(t, "an owner", func() bool { return len(client.Owners()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.Get(ctx, "k", make([]byte, 10), store.GetOptions{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("no master: %v", err)
	}
}
