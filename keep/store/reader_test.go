package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/keep/store/protocol"
	"meridian/move/fabric"
)

// stalling hears of values that have come, and stands still until it is let go.
type stalling struct {
	fabric.Events
	stalled, goOn chan struct{}
}

func (s stalling) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	if _, m, err := protocol.ParseMessage(n.Payload); err == nil {
		if _, is := m.(*protocol.Value); is {
			close(s.stalled)
			<-s.goOn
		}
	}
	return s.Events.Notified(n)
}

// A reader that stands still in the middle of a transfer, for minutes after its own and
// the owner's time for it, keeps its object's bytes: they are no other object's, though the
// object is removed. The owner serves all others meanwhile, and has the room back
// when the transfer has ended.
func TestReaderStallsForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "inproc")
		stalled, goOn := make(chan struct{}), make(chan struct{})
		c.events = func(name string, e fabric.Events) fabric.Events {
			if name == "reader" {
				return stalling{e, stalled, goOn}
			}
			return e
		}
		const size = 6 << 20 // two of them fit
		a := c.start("a", keeps(16<<20), candidate)
		reader, other := c.start("reader"), c.start("other")
		mustPut(t, other, "k", size, store.PutOptions{})
		at, err := other.Locate(soon(t), "k", store.LocateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		letGo := sync.OnceFunc(func() { close(goOn) })
		defer letGo()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := reader.Get(ctx, "k", make([]byte, size), store.GetOptions{})
			failed <- err
		}()
		<-stalled
		if err := other.Remove(soon(t), "k", store.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, other, "second", size, store.PutOptions{Pinned: true})
		for minute := range 5 {
			time.Sleep(time.Minute)
			if err := other.Put(soon(t), "third", value("third", size), store.PutOptions{}); !errors.Is(err, store.ErrFull) {
				t.Fatalf("%v, want ErrFull: another got the room that is read", err)
			}
			if !bytes.Equal(a.Arena().Bytes(at.Offset, size), value("k", size)) {
				t.Fatal("wrong: bytes changed that are being read")
			}
			mustGet(t, other, "second", size)
			mustPut(t, other, fmt.Sprint("small", minute), 1000, store.PutOptions{})
		}
		if err := <-failed; !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the reader heard %v, want ErrUnavailable", err)
		}
		if kept, _ := a.Kept(); kept.Timeouts != 0 {
			t.Errorf("%d deliveries ended, and one still goes on", kept.Timeouts)
		}
		letGo()
		until.True(t, "the room is free", func() bool {
			return other.Put(soon(t), "third", value("third", size), store.PutOptions{}) == nil
		})
		if kept, _ := a.Kept(); kept.Timeouts != 1 {
			t.Errorf("%d deliveries ran out of time, want 1", kept.Timeouts)
		}
		mustGet(t, other, "third", size)
	})
}

// Readers that give up leave nothing behind: no reader of the object, no memory that
// another's bytes could be written to.
func TestReadersGiveUp(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("a", keeps(64<<20), candidate)
	client := c.start("client", func(o *store.Options) { o.Landing = 8 << 20 })
	const size = 2 << 20
	for i := range 4 {
		mustPut(t, client, fmt.Sprint("k", i), size, store.PutOptions{})
	}
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 20 {
				key := fmt.Sprint("k", (worker+i)%4)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*200*time.Microsecond)
				into := make([]byte, size)
				n, err := client.Get(ctx, key, into, store.GetOptions{})
				cancel()
				if err == nil && !bytes.Equal(into[:n], value(key, size)) {
					t.Error("wrong bytes")
				}
			}
		})
	}
	wait.Wait()
	for i := range 4 {
		mustGet(t, client, fmt.Sprint("k", i), size)
	}
	until.True(t, "no reader", func() bool {
		all, err := client.List(soon(t), store.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.Readers != 0 {
				return false
			}
		}
		return len(all) == 4
	})
	until.True(t, "no grant", func() bool { return client.agent.Metrics().Grants == 0 })
}
