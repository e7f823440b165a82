package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory"
)

func TestPreferredOwnerAndPlans(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", keeps(32<<20), candidate)
	b := c.start("b", func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: 32 << 20, PageSize: 64 << 10} })
	client := c.start("client")
	for i, n := range []*node{a, b, client, a, b, client} {
		key, size := fmt.Sprint("plan-", i), 300<<10+i
		want := []string{"a", "b"}[i%2]
		p, err := n.OpenForWrite(soon(t), key, uint64(size), store.PutOptions{Preferred: want})
		if err != nil {
			t.Fatal(err)
		}
		if p.Owner != want || p.Bytes != uint64(size) || p.PageSize != map[string]uint32{"a": 256 << 10, "b": 64 << 10}[want] {
			t.Fatalf("%+v, want owner %s", p, want)
		}
		if _, err := n.Get(soon(t), key, make([]byte, size), store.GetOptions{}); !errors.Is(err, store.ErrMissing) {
			t.Fatalf("got before it was committed: %v", err)
		}
		v := value(key, size)
		if m := p.Memory(); (m != nil) != (n.name == want) {
			t.Fatalf("%s sees the memory of %s: %v", n.name, want, m != nil)
		} else if m != nil {
			copy(m, v)
		}
		for from := 0; from < size; from += 100 << 10 {
			if err := p.Write(soon(t), uint64(from), v[from:min(size, from+100<<10)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Write(soon(t), uint64(size)-1, []byte("ab")); err == nil {
			t.Fatal("it wrote behind the end")
		}
		if i >= 3 {
			if err := p.Abort(soon(t)); err != nil {
				t.Fatal(err)
			}
			mustMiss(t, client, key)
			continue
		}
		if err := p.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := p.Write(soon(t), 0, v[:1]); err == nil {
			t.Fatal("it wrote after it was committed")
		}
		mustGet(t, client, key, size)
		at, err := client.Locate(soon(t), key, store.LocateOptions{})
		if err != nil || at.Owner != want || at.Bytes != uint64(size) || at.Epoch != p.Epoch {
			t.Fatalf("%+v: %v", at, err)
		}
	}
	if m := client.Metrics(); m.PagesWritten == 0 || m.MeanPage <= 0 {
		t.Fatalf("%+v", m)
	}
}

func TestBuffer(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("a", keeps(32<<20), candidate)
	b := c.start("b")
	buffer, err := b.Buffer(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	from, into := buffer.Bytes()[:1<<20], buffer.Bytes()[2<<20:4<<20]
	copy(from, value("k", 1<<20))
	if err := b.Put(soon(t), "k", from, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	n, err := b.Get(soon(t), "k", into, store.GetOptions{})
	if err != nil || !bytes.Equal(into[:n], value("k", 1<<20)) {
		t.Fatalf("wrong bytes, %d of them: %v", n, err)
	}
	if err := buffer.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// One of several writers of a key wins, and all of them see its value.
func TestWritersRace(t *testing.T) {
	c := newCell(t, "inproc")
	nodes := []*node{c.start("a", keeps(16<<20), candidate), c.start("b", keeps(16<<20)), c.start("c")}
	for round := range 20 {
		key, size := fmt.Sprint("race-", round), []int{100, 300 << 10}[round%2]
		var wait sync.WaitGroup
		won := make([]int, 9)
		for i := range won {
			wait.Go(func() {
				v := value(fmt.Sprint("writer-", i), size)
				err := nodes[i%3].Put(soon(t), key, v, store.PutOptions{Preferred: []string{"a", "b"}[i/3%2]})
				switch {
				case err == nil:
					won[i] = 1
				case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrBusy):
					t.Error(err)
				}
			})
		}
		wait.Wait()
		at := slices.Index(won, 1)
		if at < 0 || slices.Contains(won[at+1:], 1) {
			t.Fatalf("winners: %v", won)
		}
		for _, n := range nodes {
			got, err := n.GetBytes(soon(t), key, store.GetOptions{})
			if err != nil || !bytes.Equal(got, value(fmt.Sprint("writer-", at), size)) {
				t.Fatalf("wrong bytes, %d of them: %v", len(got), err)
			}
		}
	}
}

func TestEvictionAndFullArenas(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", keeps(4<<20), candidate)
	client := c.start("client")
	const size = 100 << 10
	for i := range 100 {
		mustPut(t, client, fmt.Sprint("k", i), size, store.PutOptions{})
	}
	mustMiss(t, client, "k0")
	mustGet(t, client, "k99", size)
	stats, err := client.Stats(soon(t))
	if err != nil || len(stats.Owners) != 1 || stats.Owners[0].Evictions == 0 || stats.Owners[0].HeapUsed > stats.Owners[0].HeapTotal {
		t.Fatalf("%+v: %v", stats, err)
	}
	evicted, err := client.EvictUntilBelow(soon(t), "a", 0.5)
	if err != nil || evicted == 0 {
		t.Fatalf("%d: %v", evicted, err)
	}
	full := error(nil)
	for i := 0; full == nil && i < 100; i++ {
		full = a.Put(soon(t), fmt.Sprint("pinned", i), value("p", size), store.PutOptions{Pinned: true})
	}
	if !errors.Is(full, store.ErrFull) {
		t.Fatalf("only pinned objects: %v, want ErrFull", full)
	}
	c.start("b", keeps(4<<20))
	until.True(t, "the second owner is known", func() bool { return len(client.Owners()) == 2 })
	mustPut(t, client, "elsewhere", size, store.PutOptions{Preferred: "a", Pinned: true})
	if at, err := client.Locate(soon(t), "elsewhere", store.LocateOptions{}); err != nil || at.Owner != "b" || at.Rank != 1 {
		t.Fatalf("%+v: %v, want it at b", at, err)
	}
	if err := client.Put(soon(t), "huge", make([]byte, 5<<20), store.PutOptions{}); !errors.Is(err, store.ErrTooLarge) {
		t.Fatalf("%v, want ErrTooLarge", err)
	}
}

func TestManyKeys(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("a", keeps(32<<20), candidate)
	c.start("b", keeps(32<<20))
	n := c.start("client", func(o *store.Options) { o.Tenant = "one" })
	until.True(t, "two owners", func() bool { return len(n.Owners()) == 2 })
	var items []store.Item
	var keys []string
	for i := range 700 {
		keys = append(keys, fmt.Sprintf("chain/%03d", i))
		items = append(items, store.Item{Key: keys[i], Value: value(keys[i], 2000+i)})
	}
	if err := errors.Join(n.PutMany(soon(t), slices.Delete(slices.Clone(items), 600, 601), store.PutOptions{})...); err != nil {
		t.Fatal(err)
	}
	run, err := n.Run(soon(t), keys, store.HasOptions{})
	if err != nil || run != 600 {
		t.Fatalf("a run of %d: %v, want 600", run, err)
	}
	has, err := n.Has(soon(t), keys[598:602], store.HasOptions{})
	if err != nil || !slices.Equal(has, []bool{true, true, false, true}) {
		t.Fatalf("%v: %v", has, err)
	}
	if run, err := n.Run(soon(t), keys, store.HasOptions{Tenant: "two"}); err != nil || run != 0 {
		t.Fatalf("another tenant's keys: %d, %v", run, err)
	}
	into := make([]store.Item, 100)
	for i := range into {
		into[i] = store.Item{Key: keys[i], Value: make([]byte, 4000)}
	}
	lengths, errs := n.GetMany(soon(t), into, store.GetOptions{})
	for i := range into {
		if errs[i] != nil || !bytes.Equal(into[i].Value[:lengths[i]], items[i].Value) {
			t.Fatalf("%s: wrong bytes, %d of them: %v", keys[i], lengths[i], errs[i])
		}
	}
	if all, err := n.List(soon(t), store.ListOptions{Prefix: "chain/1"}); err != nil || len(all) != 100 || all[0].Tenant != "one" {
		t.Fatalf("%d objects: %v", len(all), err)
	}
	if all, err := n.List(soon(t), store.ListOptions{Tenant: "two"}); err != nil || len(all) != 0 {
		t.Fatalf("%d objects of another tenant: %v", len(all), err)
	}
	if all, err := n.List(soon(t), store.ListOptions{AllTenants: true}); err != nil || len(all) != 699 {
		t.Fatalf("%d objects: %v", len(all), err)
	}
}

// A caller that waits hears of an object when it is there.
func TestLocateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "inproc")
		a := c.start("a", keeps(8<<20), candidate)
		b := c.start("b")
		done := make(chan error, 1)
		go func() {
			at, err := b.Locate(soon(t), "later", store.LocateOptions{Wait: true})
			if err == nil && at.Bytes != 500 {
				err = fmt.Errorf("%+v", at)
			}
			done <- err
		}()
		synctest.Wait() // it waits
		mustPut(t, a, "later", 500, store.PutOptions{})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := b.Locate(ctx, "never", store.LocateOptions{Wait: true}); !errors.Is(err, store.ErrMissing) && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	})
}

// Records that are no owners, and marks that are none, are passed over.
func TestDirectoryOfStrangers(t *testing.T) {
	c := newCell(t, "inproc")
	d := c.operator()
	for key, text := range map[string]string{
		"store/owners/x": "not json", "store/owners/y": `{"name":"z","incarnation":"00000000000000000000000000000001","rank":1}`,
		"store/owners/v": `{"name":"v","rank":-4}`, "store/owners/w": fmt.Sprintf(`{"name":"w","bytes":1%s}`, bytes.Repeat([]byte(" "), 60000)),
		"store/away/x": "[]", "store/away/a": `{"owner":"b"}`, "store/away/deep/er": `{"owner":"er"}`,
	} {
		if _, err := d.Put(soon(t), directory.Entry{Key: key, Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	a := c.start("a", keeps(8<<20), candidate)
	mustPut(t, a, "k", 1000, store.PutOptions{})
	mustGet(t, a, "k", 1000)
	if owners := a.Owners(); len(owners) != 1 || owners[0].Name != "a" {
		t.Fatalf("%+v", owners)
	}
}

// Values that came in a message are stored as they came, where their owner must ask the
// master for each key and the messages of many puts follow one another.
func TestPutsThatWaitForTheMaster(t *testing.T) {
	for _, fabricName := range []string{"host", "tcp"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			c.start("master", candidate)
			c.start("owner", keeps(64<<20))
			client := c.start("client")
			mustPut(t, client, "first", 10, store.PutOptions{})
			sizes := []int{1, 100, 4 << 10, 30 << 10, 64 << 10, 100 << 10}
			var puts sync.WaitGroup
			for worker := range 4 {
				puts.Go(func() {
					for i := range 50 {
						key := fmt.Sprint(worker, "-", i)
						if err := client.Put(soon(t), key, value(key, sizes[(worker+i)%len(sizes)]), store.PutOptions{}); err != nil {
							t.Errorf("put %s: %v", key, err)
						}
					}
				})
			}
			puts.Wait()
			for worker := range 4 {
				for i := range 50 {
					mustGet(t, client, fmt.Sprint(worker, "-", i), sizes[(worker+i)%len(sizes)])
				}
			}
		})
	}
}
