package offload_test

import (
	"testing"
	"time"

	"meridian/kv"
	"meridian/offload"
	"meridian/store"
)

const units = 4 // of the prompts below

// replicated is options of a node of a cell in which there are two copies of what is hot.
func replicated(keeps uint64) nodeOptions {
	return nodeOptions{
		keeps: keeps,
		store: func(o *store.Options) { o.MasterTTL, o.Lease = 6*time.Second, 3*time.Second },
		offload: func(o *offload.Options) {
			o.Replicas, o.KeepTimeout, o.FindTimeout, o.LocateTimeout = 2, 5*time.Second, 10*time.Second, 5*time.Second
		},
	}
}

// ready is how many objects a node keeps.
func (n *node) ready() int {
	stats, _ := n.store.Kept()
	return int(stats.Ready)
}

// heat has a run used often enough to be copied.
func (e *engine) heat(t *testing.T, owner *node) {
	t.Helper()
	for range 6 {
		eventually(t, "it is found", func() bool { return e.findOnly(t, prompt(64*units, 1)) == 64*units })
	}
	eventually(t, "its units are let go", func() bool { return owner.Metrics().Granted == 0 })
}

// What is found often gets a second copy, at the owner of who finds it; that one takes it
// from there, others from both, and the loss of either owner loses nothing: also while the
// master still thinks that it lives.
func TestHotRunSurvivesItsOwner(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b, d := c.start("a", replicated(arenaBytes)), c.start("b", replicated(arenaBytes)), c.start("d", replicated(0))
	writer, near, far := c.engine("writer", publisher, a), c.engine("near", reader, b), c.engine("far", reader, d)
	p := prompt(64*units, 1)
	writer.keep(t, p)
	a.settled(t)
	if writer.findOnly(t, p) != 64*units || b.ready() != 0 {
		t.Fatal("what is used once is copied")
	}
	near.heat(t, a)
	eventually(t, "the other owner has a copy", func() bool { return b.ready() == units })
	eventually(t, "it is known of", func() bool { return a.Metrics().CopiesMade == 1 })
	found := near.find(t, p, 0)
	if len(found.Segments) != 1 || found.Segments[0].Owner != "b" {
		t.Fatalf("%+v", found)
	}
	if blocks, err := near.accept(t, p, found); err != nil || near.wrong(blocks, p, kv.TokenRange{End: 64 * units}) > 0 {
		t.Fatal("a copy is not what it is of", err)
	}
	from := make(map[string]bool)
	eventually(t, "others take turns", func() bool {
		found := far.find(t, p, 0)
		for _, s := range found.Segments {
			from[s.Owner] = true
			if err := d.transceiver.Decline(s.Ticket); err != nil {
				t.Fatal(err)
			}
		}
		return from["a"] && from["b"]
	})
	a.kill(t)
	eventually(t, "it is found all the same", func() bool {
		found := far.find(t, p, 0)
		if found.Tokens != 64*units || len(found.Segments) != 1 || found.Segments[0].Owner != "b" {
			return false
		}
		blocks, err := far.accept(t, p, found)
		if err != nil || far.wrong(blocks, p, kv.TokenRange{End: 64 * units}) > 0 {
			t.Fatal("a copy is not what it is of", err)
		}
		return true
	})
}

// When an owner is lost, what is hot is copied again, from the copy that is left.
func TestCopiesAreRepaired(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", replicated(arenaBytes))
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	p := prompt(64*units, 1)
	writer.keep(t, p)
	a.settled(t)
	near.heat(t, a)
	eventually(t, "the other owner has a copy", func() bool { return b.ready() == units })
	b.settled(t)
	a.kill(t)
	x, y := c.start("x", replicated(arenaBytes)), c.start("y", replicated(arenaBytes))
	far := c.engine("far", reader, y)
	eventually(t, "one of the others has it", func() bool { return x.ready()+y.ready() == units })
	if b.ready() != units {
		t.Fatal("the copy that was left has gone")
	}
	x.settled(t)
	y.settled(t)
	b.kill(t)
	eventually(t, "it is found although both of the first owners are dead", func() bool {
		found := far.find(t, p, 0)
		if found.Tokens != 64*units {
			return false
		}
		blocks, err := far.accept(t, p, found)
		return err == nil && far.wrong(blocks, p, kv.TokenRange{End: 64 * units}) == 0
	})
}

// An owner that dies as it is to take a copy, whether that has begun or not, leaves nothing
// held, and another takes it.
func TestOwnerDiesAsItTakesACopy(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", replicated(arenaBytes))
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	near.heat(t, a)
	b.kill(t)
	x := c.start("x", replicated(arenaBytes))
	eventually(t, "another takes the copy", func() bool { return x.ready() == units })
	x.settled(t)
	eventually(t, "nothing is held", func() bool { return a.Metrics().Granted == 0 && a.transceiver.Metrics().Offers == 0 })
	if found := c.engine("far", reader, x).find(t, prompt(64*units, 1), 0); found.Tokens != 64*units || found.Segments[0].Owner != "x" {
		t.Fatalf("%+v", found)
	}
}

// An owner that has no room to spare takes no copy, and nothing leaves for one.
func TestNoCopyWhereThereIsNoRoom(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	small := replicated(1 << 20)
	inner := small.store
	small.store = func(o *store.Options) { inner(o); o.Owner.Headers = 128; o.Owner.High, o.Owner.Low = 0.9, 0.1 }
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", small)
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	local := c.engine("local", publisher, b)
	for seed := 1; ; seed++ { // until only less than a unit's room is left
		local.keep(t, prompt(64, seed*1000+7))
		b.settled(t)
		stats, _ := b.store.Kept()
		if stats.HeapUsed+64<<10 > stats.HeapTotal*9/10 {
			break
		}
	}
	before := b.ready()
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	near.heat(t, a)
	eventually(t, "a copy is refused", func() bool { return a.Metrics().CopiesRefused > 0 })
	if stats, _ := b.store.Kept(); int(stats.Ready) < before || stats.Evictions != 0 {
		t.Fatalf("%+v, %d were there", stats, before)
	}
}
