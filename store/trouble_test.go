package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/agent"
	"meridian/fabric"
	"meridian/meta"
	"meridian/meta/memdir"
	"meridian/store"
)

// A master that dies takes nothing with it: who is elected next asks the owners.
func TestMasterDies(t *testing.T) {
	for _, way := range []string{"closed", "killed"} {
		t.Run(way, func(t *testing.T) {
			c := newCell(t, "tcp")
			first := c.start("first", candidate, shortMaster)
			owner := c.start("owner", keeps(32<<20))
			client := c.start("client")
			for i := range 50 {
				mustPut(t, client, fmt.Sprint("k", i), 1000*i+1, store.PutOptions{})
			}
			second := c.start("second", candidate, shortMaster)
			if second.Metrics().Master || !first.Metrics().Master {
				t.Fatal("the wrong one is the master")
			}
			if way == "closed" {
				first.stop(t)
			} else {
				first.kill(t)
			}
			for i := range 50 {
				mustGet(t, client, fmt.Sprint("k", i), 1000*i+1)
			}
			mustPut(t, client, "after", 1000, store.PutOptions{})
			mustGet(t, client, "after", 1000)
			mustMiss(t, client, "never")
			eventually(t, "another master", func() bool { return second.Metrics().Master })
			if stats, err := client.Stats(soon(t)); err != nil || stats.Owners[0].Ready != 51 || stats.Owners[0].Master != "second" {
				t.Fatalf("%+v: %v", stats, err)
			}
			_ = owner
		})
	}
}

// What an owner kept that died is missing soon, and puts go elsewhere at once.
func TestOwnerDies(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("master", candidate, shortLease)
	c.start("a", keeps(32<<20))
	b := c.start("b", keeps(32<<20))
	client := c.start("client")
	eventually(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustPut(t, client, fmt.Sprint("a", i), 1000, store.PutOptions{Preferred: "a"})
		mustPut(t, client, fmt.Sprint("b", i), 1000, store.PutOptions{Preferred: "b"})
	}
	b.kill(t)
	mustPut(t, client, "new", 300<<10, store.PutOptions{Preferred: "b"})
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
	found, err := client.Scrub(soon(t), "a")
	if err != nil || found.Objects != 6 || found.Torn != 2 || found.Gone != 0 {
		t.Fatalf("%+v: %v", found, err)
	}
	if found, err = a.Scrub(soon(t), "a"); err != nil || found.Objects != 6 || found.Torn != 0 {
		t.Fatalf("%+v: %v", found, err)
	}
	kept, _ := a.Kept()
	if seen := client.Metrics().Torn; kept.Torn+seen != 8 || kept.Torn == 0 || a.Metrics().Torn != 0 || kept.Refused != 0 {
		t.Errorf("8 objects were torn: the owner saw %d, its client %d", kept.Torn, seen)
	}
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
	eventually(t, "no reader", func() bool {
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
	eventually(t, "no grant", func() bool { return client.agent.Metrics().Grants == 0 })
}

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
		eventually(t, "the key is free", func() bool {
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
		eventually(t, "its time is over", func() bool { return p.Write(soon(t), 0, []byte("late")) != nil })
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
		eventually(t, "its room is free", func() bool { return a.Put(soon(t), "other", value("other", rest), store.PutOptions{}) == nil })
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

// No answer comes where no owner is; the deadline is the caller's.
func TestNobodyThere(t *testing.T) {
	c := newCell(t, "inproc")
	client := c.start("client")
	if err := client.Put(soon(t), "k", []byte("v"), store.PutOptions{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("no owner: %v", err)
	}
	c.start("a", keeps(8<<20))
	eventually(t, "an owner", func() bool { return len(client.Owners()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.Get(ctx, "k", make([]byte, 10), store.GetOptions{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("no master: %v", err)
	}
}

// What is no message, or one that was not asked for, is counted and forgotten.
func TestStrangersSpeak(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", keeps(8<<20), candidate)
	b := c.start("b")
	mustPut(t, b, "k", 1000, store.PutOptions{})
	peer, err := b.agent.LoadMetadata(a.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	for kind := range 40 {
		for _, body := range []string{"", "\x01", "\x80\x80\x80\x80\x80\x40\x00\x00\x00"} {
			err := peer.NotifyUnordered(soon(t), append([]byte("MRDS\x01"), append([]byte{byte(kind)}, body...)...))
			if err != nil && !errors.Is(err, fabric.ErrBusy) {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "all were heard", func() bool { m := a.Metrics(); return m.MessagesBroken > 60 })
	mustGet(t, b, "k", 1000)
}

// An owner that starts again has another incarnation and nothing kept; its name has
// the same number.
func TestOwnerStartsAgain(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("master", candidate, shortLease)
	c.start("a", keeps(16<<20))
	b := c.start("b", keeps(16<<20))
	client := c.start("client")
	eventually(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	mustPut(t, client, "k", 1000, store.PutOptions{Preferred: "b"})
	before := client.Owners()[1]
	epoch := func(n *node) uint32 { return binary.LittleEndian.Uint32(n.Arena().Bytes(124, 4)) } // docs/store-layout.md
	was := epoch(b)
	b.kill(t)
	if now := epoch(c.start("b", keeps(16<<20))); was == 0 || now == 0 || now == was {
		t.Errorf("its arena had epoch %d, and has %d", was, now)
	}
	eventually(t, "its new incarnation", func() bool {
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

// A master that the directory does not hear any more has no authority, and another is
// elected; nothing is lost, and no key gets two values.
func TestMasterCutOff(t *testing.T) {
	c := newCell(t, "tcp")
	first := c.start("first", candidate, shortMaster)
	c.start("a", keeps(16<<20))
	client := c.start("client")
	for i := range 10 {
		mustPut(t, client, fmt.Sprint("k", i), 1000, store.PutOptions{})
	}
	second := c.start("second", candidate, shortMaster)
	first.directory.SetOutage(memdir.Silent)
	eventually(t, "another master", func() bool { return second.Metrics().Master })
	for i := range 10 {
		mustGet(t, client, fmt.Sprint("k", i), 1000)
		if err := client.Put(soon(t), fmt.Sprint("k", i), []byte("x"), store.PutOptions{}); !errors.Is(err, store.ErrExists) {
			t.Fatalf("%v, want ErrExists", err)
		}
	}
	first.directory.SetOutage(memdir.None)
	eventually(t, "the first has given up", func() bool { return !first.Metrics().Master })
	mustMiss(t, first, "never")
	mustGet(t, first, "k0", 1000)
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
	time.Sleep(50 * time.Millisecond) // so that most likely something is on its way
	a.kill(t)
	wait.Wait()
}

// A cell that stood still for longer than its leases has lost no object: when it wakes
// the directory knows neither master nor owners, and the next master hears the owners
// before it says that anything is missing.
func TestCellStoodStill(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("first", candidate)
	c.start("a", keeps(16<<20))
	c.start("b", keeps(16<<20))
	client := c.start("client")
	eventually(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustPut(t, client, fmt.Sprint("k", i), 1000, store.PutOptions{})
	}
	operator, err := c.directory.Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := operator.Close(soon(t)); err != nil {
			t.Error(err)
		}
	}()
	before, err := operator.List(soon(t), "store/master/")
	if err != nil || len(before.Records) != 1 {
		t.Fatalf("%+v: %v", before, err)
	}
	owners, err := operator.List(soon(t), "store/owners/")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(owners.Records, before.Records...) { // as when leases expire
		if err := operator.Delete(soon(t), r.Key, meta.Any); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "another term", func() bool {
		now, err := operator.List(soon(t), "store/master/")
		return err == nil && len(now.Records) == 1 && now.Records[0].Revision > before.Records[0].Revision
	})
	for _, r := range owners.Records { // as owners do that find their lease expired
		if _, err := operator.Put(soon(t), meta.Entry{Key: r.Key, Value: r.Value}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two owners again", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustGet(t, client, fmt.Sprint("k", i), 1000)
	}
}
