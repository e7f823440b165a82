package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"meridian/internal/until"
	"meridian/keep/store"
)

// Close ends what callers wait for, and comes back while they ask.
func TestCloseWhileItIsUsed(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", keeps(32<<20), candidate)
	client := c.start("client")
	mustPut(t, client, "k", 500<<10, store.PutOptions{})
	var wait sync.WaitGroup
	for i := range 8 {
		n := []*node{a, client}[i%2]
		wait.Go(func() {
			for j := 0; ; j++ {
				_, err := n.Get(soon(t), "k", make([]byte, 500<<10), store.GetOptions{})
				if err == nil {
					err = n.Put(soon(t), fmt.Sprint("k", i, j), value("x", 1000*(j%500)+1), store.PutOptions{})
				}
				if errors.Is(err, store.ErrClosed) {
					return
				}
			}
		})
	}
	until.True(t, "both are used", func() bool { return a.Metrics().Gets >= 4 && client.Metrics().Gets >= 4 })
	var closing sync.WaitGroup
	for _, n := range []*node{client, a, client, a} {
		closing.Go(func() {
			if err := n.Close(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	wait.Wait()
	if err := client.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	if m := a.agent.Metrics(); m.Grants != 0 || m.Regions != 0 {
		t.Fatalf("%+v", m)
	}
}

// What pinned the memory is told before it is unmapped, and again if it needs longer.
func TestPinnedMemoryIsUnpinned(t *testing.T) {
	c := newCell(t, "tcp")
	var pinned, unpinned int
	busy := errors.New("still in use")
	a := c.start("a", func(o *store.Options) {
		o.Owner = &store.OwnerOptions{Bytes: 4 << 20, Pin: func(memory []byte) func(context.Context) error {
			pinned += len(memory)
			return func(context.Context) error {
				memory[len(memory)-1]++ // it is still there
				if unpinned++; unpinned == 1 {
					return busy
				}
				return nil
			}
		}}
	}, candidate)
	if pinned != 4<<20 {
		t.Errorf("%d bytes to be pinned", pinned)
	}
	if err := a.Store.Close(soon(t)); !errors.Is(err, busy) {
		t.Errorf("closed while it is in use: %v", err)
	}
	if err := a.Store.Close(soon(t)); err != nil || unpinned != 2 {
		t.Errorf("unpinned %d times: %v", unpinned, err)
	}
}
