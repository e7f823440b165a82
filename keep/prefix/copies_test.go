package prefix_test

import (
	"context"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/keep/store/tier"
	"meridian/kv"
)

const units = 4 // of the prompts below

// replicated is options of a node of a cell in which there are two copies of what is hot.
func replicated(keeps uint64) nodeOptions {
	return nodeOptions{
		keeps: keeps,
		store: func(o *store.Options) { o.MasterTTL, o.Lease = 6*time.Second, 3*time.Second },
		offload: func(o *prefix.Options) {
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
		until.True(t, "it is found", func() bool { return e.findOnly(t, prompt(64*units, 1)) == 64*units })
	}
	until.True(t, "its units are let go", func() bool { return owner.Metrics().Granted == 0 })
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
	until.True(t, "the other owner has a copy", func() bool { return b.ready() == units })
	until.True(t, "it is known of", func() bool { return a.Metrics().CopiesMade == 1 })
	found := near.find(t, p, 0)
	if len(found.Segments) != 1 || found.Segments[0].Owner != "b" {
		t.Fatalf("%+v", found)
	}
	if blocks, err := near.accept(t, p, found); err != nil || near.wrong(blocks, p, kv.TokenRange{End: 64 * units}) > 0 {
		t.Fatal("a copy is not what it is of", err)
	}
	from := make(map[string]bool)
	until.True(t, "others take turns", func() bool {
		found := far.find(t, p, 0)
		for _, s := range found.Segments {
			from[s.Owner] = true
			if err := d.transceiver.ReturnTicket(s.Ticket); err != nil {
				t.Fatal(err)
			}
		}
		return from["a"] && from["b"]
	})
	a.kill(t)
	until.True(t, "it is found all the same", func() bool {
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
	until.True(t, "the other owner has a copy", func() bool { return b.ready() == units })
	b.settled(t)
	a.kill(t)
	x, y := c.start("x", replicated(arenaBytes)), c.start("y", replicated(arenaBytes))
	far := c.engine("far", reader, y)
	until.True(t, "one of the others has it", func() bool { return x.ready()+y.ready() == units })
	if b.ready() != units {
		t.Fatal("the copy that was left has gone")
	}
	x.settled(t)
	y.settled(t)
	b.kill(t)
	until.True(t, "it is found although both of the first owners are dead", func() bool {
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
	until.True(t, "another takes the copy", func() bool { return x.ready() == units })
	x.settled(t)
	until.True(t, "nothing is held", func() bool { return a.Metrics().Granted == 0 && a.transceiver.Metrics().Offers == 0 })
	if found := c.engine("far", reader, x).find(t, prompt(64*units, 1), 0); found.Tokens != 64*units || found.Segments[0].Owner != "x" {
		t.Fatalf("%+v", found)
	}
}

// startFull starts an owner in whose memory there is room for less than a unit.
func (c *cell) startFull(t *testing.T, name string) *node {
	small := replicated(1 << 20)
	inner := small.store
	small.store = func(o *store.Options) { inner(o); o.Owner.Headers = 128; o.Owner.High, o.Owner.Low = 0.9, 0.1 }
	n := c.start(name, small)
	local := c.engine("local", publisher, n)
	for seed := 1; ; seed++ {
		local.keep(t, prompt(64, seed*1000+7))
		n.settled(t)
		stats, _ := n.store.Kept()
		if stats.HeapUsed+64<<10 > stats.HeapTotal*9/10 {
			return n
		}
	}
}

// An owner that has no room to spare takes no copy, and nothing leaves for one.
func TestNoCopyWhereThereIsNoRoom(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b := c.start("a", replicated(arenaBytes)), c.startFull(t, "b")
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	before := b.ready()
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	near.heat(t, a)
	until.True(t, "a copy is refused", func() bool { return a.Metrics().CopiesRefused > 0 })
	if stats, _ := b.store.Kept(); int(stats.Ready) < before || stats.Evictions != 0 {
		t.Fatalf("%+v, %d were there", stats, before)
	}
}

// An owner takes no copy of a number that its own agent would not look for.
func TestNoCopyThatNobodyLooksFor(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	alone := replicated(arenaBytes)
	inner := alone.offload
	alone.offload = func(o *prefix.Options) { inner(o); o.Replicas = 1 }
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", alone)
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	near.heat(t, a)
	until.True(t, "it is asked", func() bool { m := a.Metrics(); return m.CopiesRefused+m.CopiesMade > 0 })
	if m := a.Metrics(); m.CopiesMade != 0 || b.ready() != 0 || b.Metrics().TakesRefused == 0 {
		t.Errorf("%d copies were made, %d units are there", m.CopiesMade, b.ready())
	}
}

// An owner of a build that knows no copies is not asked, which it would not answer: another
// takes the copy.
func TestOlderOwnerIsAskedForNoCopy(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	older := replicated(arenaBytes)
	inner := older.store
	older.store = func(o *store.Options) { inner(o); o.Owner.Prefixes = 0 }
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", older)
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	x := c.start("x", replicated(arenaBytes))
	near.heat(t, a)
	until.True(t, "the owner that knows copies has one", func() bool { return x.ready() == units })
	if m := a.Metrics(); m.CopiesRefused != 0 || b.ready() != 0 || b.Metrics().TakesRefused != 0 {
		t.Errorf("%d copies were refused, %d units are there", m.CopiesRefused, b.ready())
	}
}

// An owner that has no room is not the only one: another takes the copy.
func TestCopyWhereThereIsRoom(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b := c.start("a", replicated(arenaBytes)), c.startFull(t, "b")
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	x := c.start("x", replicated(arenaBytes)) // it has nothing but room
	near.heat(t, a)
	until.True(t, "the owner that has room has the copy", func() bool { return x.ready() >= units-1 }) // the full one may have its first unit
}

// watched is a tier that notes until when it is waited for.
type watched struct {
	tier.Tier
	until chan time.Time
}

func (w watched) Get(ctx context.Context, key []byte, into func([]byte, int) []byte) ([]byte, error) {
	deadline, _ := ctx.Deadline()
	select {
	case w.until <- deadline:
	default: // the first of a run is enough
	}
	return w.Tier.Get(ctx, key, into)
}

// While no other has a run, its owner has as much time for it as without copies: one that
// must look on a disk has not failed.
func TestOnlyOwnerHasAllTheTime(t *testing.T) {
	c := newCell(t, "inproc")
	d, err := disk.Open(context.Background(), disk.Options{Dir: t.TempDir(), Bytes: 64 << 20, SegmentBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	const whole = 2 * time.Second // no more than a store waits for a tier
	w := watched{d, make(chan time.Time, 1)}
	o := nodeOptions{offload: func(o *prefix.Options) { o.Replicas, o.FindTimeout, o.LocateTimeout = 2, whole, whole }}
	c.start("m", o)
	b := c.start("b", o)
	o.keeps = arenaBytes
	o.store = func(o *store.Options) { o.Owner.Tiers = []tier.Tier{w} }
	a := c.start("a", o)
	writer, near := c.engine("writer", publisher, a), c.engine("near", reader, b)
	p := prompt(64*units, 1)
	writer.keep(t, p)
	a.settled(t)
	for range 2 { // what is used again goes to the tier
		until.True(t, "it is found in memory", func() bool { return writer.findOnly(t, p) == 64*units })
	}
	until.True(t, "the tier has it", func() bool { return d.Stats().Objects >= units })
	until.True(t, "its units are let go", func() bool { return a.Metrics().Granted == 0 })
	if _, err := a.store.EvictUntilBelow(soon(t), "a", 0); err != nil {
		t.Fatal(err)
	}
	if a.ready() != 0 {
		t.Fatal("it is still in memory")
	}
	began := time.Now()
	near.find(t, p, 0)
	if has := (<-w.until).Sub(began); has < whole*3/4 {
		t.Errorf("its only owner has %v of %v", has, whole)
	}
	until.True(t, "it is found", func() bool { return near.findOnly(t, p) == 64*units })
}
