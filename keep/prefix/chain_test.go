package prefix_test

import (
	"testing"

	"meridian/internal/until"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
)

// halve lets half of the units go that a node keeps.
func (n *node) halve(t *testing.T) {
	t.Helper()
	stats, _ := n.store.Kept()
	if _, err := n.store.EvictUntilBelow(soon(t), n.name, 0.6*float64(stats.HeapUsed)/float64(stats.HeapTotal)); err != nil {
		t.Fatal(err)
	}
}

// A chain that lies at two owners is used at both when an engine keeps how it goes on: what it
// begins with does not leave before what is not used. An owner of an older build hears nothing,
// and goes on as before.
func TestChainIsUsedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name  string
		reads int
		stays bool
	}{{"all know", keys.LastKind, true}, {"an older owner", 7, false}} {
		t.Run(c.name, func(t *testing.T) {
			cell := newCell(t, "inproc")
			cell.start("m", nodeOptions{})
			a := cell.start("a", nodeOptions{keeps: arenaBytes, store: func(o *store.Options) { o.Owner.Prefixes = c.reads }})
			b := cell.start("b", nodeOptions{keeps: arenaBytes})
			first, second := cell.engine("first", publisher, a), cell.engine("second", publisher, b)
			whole := prompt(4*128, 1)
			head := whole
			head.Tokens = whole.Tokens[:128]
			first.keep(t, head)
			a.settled(t)
			first.keep(t, prompt(128, 1000)) // which is used after it
			a.settled(t)
			for turn := range 3 { // its engine has what comes before, and asks for nothing
				more := whole
				more.Tokens = whole.Tokens[:(turn+2)*128]
				second.keep(t, more)
				b.settled(t)
			}
			if a.ready() != 4 || b.ready() != 6 {
				t.Fatalf("%d and %d units", a.ready(), b.ready())
			}
			if c.stays {
				until.True(t, "its owner has heard of every turn", func() bool { return a.Metrics().UsesHeard == 3 })
			}
			a.halve(t)
			found := second.find(t, whole, 0)
			if stays := found.Tokens == 4*128; stays != c.stays {
				t.Errorf("%d tokens are found", found.Tokens)
			}
			for _, s := range found.Segments {
				if err := b.transceiver.ReturnTicket(s.Ticket); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// What a chain lost in the middle is kept again by who computed it, and what follows, which
// another owner has, is found again.
func TestLostMiddleIsKeptAgain(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", nodeOptions{})
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{keeps: arenaBytes})
	first, second := c.engine("first", publisher, a), c.engine("second", publisher, b)
	whole := prompt(4*128, 1)
	head := whole
	head.Tokens = whole.Tokens[:256]
	first.keep(t, head)
	a.settled(t)
	second.keep(t, whole)
	b.settled(t)
	a.halve(t)
	left := a.ready()
	if left == 0 || left == 4 {
		t.Fatalf("%d units are left", left)
	}
	until.True(t, "the end of the head is gone", func() bool { return second.findOnly(t, whole) == 64*left })
	first.keep(t, whole)
	a.settled(t)
	if a.ready() != 4 || b.ready() != 4 {
		t.Fatalf("%d and %d units: what is there is written again", a.ready(), b.ready())
	}
	found := second.find(t, whole, 0)
	blocks, err := second.accept(t, whole, found)
	if err != nil || found.Tokens != 4*128 || second.wrong(blocks, whole, kv.TokenRange{End: found.Tokens}) > 0 {
		t.Fatalf("%+v, %v", found, err)
	}
}

// When the owner of what a copy is of is lost, the copy stands in for it: it leaves in its turn,
// and not before what no engine has asked for.
func TestLastCopyDoesNotLeaveFirst(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", replicated(0))
	a, b := c.start("a", replicated(arenaBytes)), c.start("b", replicated(arenaBytes))
	writer, near, local := c.engine("writer", publisher, a), c.engine("near", reader, b), c.engine("local", publisher, b)
	writer.keep(t, prompt(64*units, 1))
	a.settled(t)
	local.keep(t, prompt(64*units, 1000))
	near.heat(t, a)
	until.True(t, "the other owner has a copy", func() bool { return b.ready() == 2*units })
	b.settled(t)
	if stats, _ := b.store.Kept(); stats.Copies != units {
		t.Fatalf("%+v", stats)
	}
	a.kill(t)
	until.True(t, "the copy stands in", func() bool { stats, _ := b.store.Kept(); return stats.Copies == 0 })
	b.halve(t)
	until.True(t, "it is found", func() bool { return near.findOnly(t, prompt(64*units, 1)) == 64*units })
	if b.ready() > units+1 {
		t.Errorf("%d units are left", b.ready())
	}
}
