package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/store"
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
	time.Sleep(100 * time.Millisecond) // so that most likely something runs
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
