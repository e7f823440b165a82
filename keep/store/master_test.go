package store_test

import (
	"errors"
	"fmt"
	"testing"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
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
			until.True(t, "another master", func() bool { return second.Metrics().Master })
			if stats, err := client.Stats(soon(t)); err != nil || stats.Owners[0].Ready != 51 || stats.Owners[0].Master != "second" {
				t.Fatalf("%+v: %v", stats, err)
			}
			_ = owner
		})
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
	until.True(t, "another master", func() bool { return second.Metrics().Master })
	for i := range 10 {
		mustGet(t, client, fmt.Sprint("k", i), 1000)
		if err := client.Put(soon(t), fmt.Sprint("k", i), []byte("x"), store.PutOptions{}); !errors.Is(err, store.ErrExists) {
			t.Fatalf("%v, want ErrExists", err)
		}
	}
	first.directory.SetOutage(memdir.None)
	until.True(t, "the first has given up", func() bool { return !first.Metrics().Master })
	mustMiss(t, first, "never")
	mustGet(t, first, "k0", 1000)
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
	until.True(t, "two owners", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustPut(t, client, fmt.Sprint("k", i), 1000, store.PutOptions{})
	}
	operator := c.operator()
	before, err := operator.List(soon(t), "store/master/")
	if err != nil || len(before.Records) != 1 {
		t.Fatalf("%+v: %v", before, err)
	}
	owners, err := operator.List(soon(t), "store/owners/")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(owners.Records, before.Records...) { // as when leases expire
		if err := operator.Delete(soon(t), r.Key, directory.Any); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "another term", func() bool {
		now, err := operator.List(soon(t), "store/master/")
		return err == nil && len(now.Records) == 1 && now.Records[0].Revision > before.Records[0].Revision
	})
	for _, r := range owners.Records { // as owners do that find their lease expired
		if _, err := operator.Put(soon(t), directory.Entry{Key: r.Key, Value: r.Value}); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "two owners again", func() bool { return len(client.Owners()) == 2 })
	for i := range 20 {
		mustGet(t, client, fmt.Sprint("k", i), 1000)
	}
}
