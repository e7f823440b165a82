package prefix_test

import (
	"testing"
	"time"

	"meridian/keep/prefix"
)

// How long an owner looks at what it is asked for is its own to say, whatever patience a
// finder claims to have.
func TestPatienceIsTheOwners(t *testing.T) {
	c := newCell(t, "inproc")
	hasty := nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) { o.FindTimeout = time.Nanosecond }}
	a, b := c.start("a", hasty), c.start("b", nodeOptions{})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(256, 1)
	writer.keep(t, p)
	a.settled(t)
	if found := other.find(t, p, 0); found.Tokens != 0 || found.Reason != "miss" || a.Metrics().GrantsRefused == 0 {
		t.Fatalf("an owner that has no time looked all the same: %+v", found)
	}
	if stats, _ := a.store.Kept(); stats.Ready != 4 || stats.Torn != 0 {
		t.Fatalf("what was not looked at is gone: %+v", stats)
	}
}

// What is looked at for finders has a bound: beyond it an owner is busy, at once, and holds
// nothing.
func TestVerifyingIsBounded(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(256, 1)
	writer.keep(t, p)
	a.settled(t)
	giveBack, ok := a.Verify(prefix.MaxVerified)
	if !ok {
		t.Fatal("nothing was looked at, and it is too much")
	}
	if found := other.find(t, p, 0); found.Tokens != 0 || found.Reason != "busy" || a.Metrics().Granted != 0 {
		t.Errorf("%+v", found)
	}
	giveBack()
	if found := other.find(t, p, 0); found.Tokens != 256 {
		t.Errorf("when there is time again: %+v", found)
	}
}
