package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
)

// A writer that never commits is stopped, and its room and its key are free again.
func TestWriterStalls(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", candidate, func(o *store.Options) {
		o.Owner = &store.OwnerOptions{Bytes: 16 << 20, WriteTimeout: 200 * time.Millisecond}
	})
	client := c.start("client")
	for _, n := range []*node{client, a} {
		p, err := n.OpenForWrite(soon(t), "k", 1<<20, store.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		until.True(t, "the key is free", func() bool {
			err := n.Put(soon(t), "k", value("k", 400<<10), store.PutOptions{})
			if err != nil && !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrExists) {
				t.Fatal(err)
			}
			return err == nil
		})
		if err := p.Write(soon(t), 0, []byte("late")); err == nil {
			t.Fatal("a writer whose time was over wrote")
		}
		if err := p.Commit(soon(t)); !errors.Is(err, store.ErrStale) {
			t.Fatalf("%v, want ErrStale", err)
		}
		mustGet(t, client, "k", 400<<10)
		if err := client.Remove(soon(t), "k", store.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A writer that stores to the arena by itself cannot be stopped. Its room is no other
// object's until it says that it has ended, though its time was over long before.
func TestMappedWriterKeepsItsRoom(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", candidate, func(o *store.Options) {
		o.Owner = &store.OwnerOptions{Bytes: 16 << 20, WriteTimeout: 50 * time.Millisecond}
	})
	for _, end := range []func(*store.WritePlan) error{
		func(p *store.WritePlan) error { return p.Abort(soon(t)) },
		func(p *store.WritePlan) error {
			if err := p.Commit(soon(t)); !errors.Is(err, store.ErrStale) {
				return fmt.Errorf("a commit whose time was over: %w", err)
			}
			return nil
		},
		func(p *store.WritePlan) error { // by a caller who has no time
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := p.Commit(ctx); err == nil {
				return errors.New("it was committed")
			}
			return nil
		},
	} {
		const size, rest = 7 << 20, 10 << 20 // of the arena
		p, err := a.OpenForWrite(soon(t), "k", size, store.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		memory := p.Memory()
		if memory == nil {
			t.Fatal("its memory is not lent")
		}
		until.True(t, "its time is over", func() bool { return p.Write(soon(t), 0, []byte("late")) != nil })
		if err := a.Put(soon(t), "other", value("other", rest), store.PutOptions{}); !errors.Is(err, store.ErrFull) {
			t.Fatalf("%v, want ErrFull: another got the room", err)
		}
		clear(memory)
		if err := end(p); err != nil {
			t.Fatal(err)
		}
		if p.Memory() != nil {
			t.Fatal("its memory is lent after its end")
		}
		until.True(t, "its room is free", func() bool { return a.Put(soon(t), "other", value("other", rest), store.PutOptions{}) == nil })
		mustGet(t, a, "other", rest)
		if err := a.Remove(soon(t), "other", store.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := a.OpenForWrite(soon(t), "k", 9<<20, store.PutOptions{})
	if err != nil || p.Memory() != nil {
		t.Errorf("more than half of the arena is lent: %v", err)
	}
}
