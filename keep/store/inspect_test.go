package store_test

import (
	"errors"
	"testing"

	"meridian/keep/store"
)

func tiersOf(seen []store.Availability) (tiers []string) {
	for _, s := range seen {
		tiers = append(tiers, s.Tier)
	}
	return tiers
}

// wantTiers has a run looked at by an agent, and says in which tiers it must lie.
func wantTiers(t *testing.T, n *node, r store.Run, in func(i int) string) {
	t.Helper()
	seen, err := n.Inspect(soon(t), "a", r)
	if err != nil || len(seen) != len(r.Keys) {
		t.Fatalf("%d of %d were seen: %v", len(seen), len(r.Keys), err)
	}
	for i, s := range seen {
		if s.Tier != in(i) {
			t.Fatalf("unit %d lies in %q of %v", i, s.Tier, tiersOf(seen))
		}
	}
}

// To look at objects tells where each lies and is no use of them: what was looked at last
// leaves first all the same. A run that is pinned outlives all others, whatever comes; what
// is discarded is gone from memory and from the tier, also while it is read.
func TestSeenPinnedDiscarded(t *testing.T) {
	c := newCell(t, "inproc")
	d, on := tiered(t, t.TempDir(), 32<<20)
	a := startTiered(t, c, on)
	b := c.start("b")
	run := runNumber(1, 20)
	keepRun(t, a, run)
	wantHeld(t, a, run, 20)
	wantKept(t, d, 20)
	before, _ := a.Kept()
	wantTiers(t, b, store.Run{Keys: append(run.Keys[:len(run.Keys):len(run.Keys)], "no unit")}, func(i int) string {
		return map[bool]string{true: store.Memory}[i < 20]
	})
	if after, _ := a.Kept(); after.Hits != before.Hits || after.Misses != before.Misses {
		t.Errorf("a look counted as use: %+v, %+v", before, after)
	}
	pins, err := b.SetPinned(soon(t), "a", store.Run{Keys: append([]string{"no unit"}, run.Keys...)}, true)
	if err != nil || pins.Done != 20 || pins.Missing != 1 || pins.Refused != 0 || pins.Bytes != 20*unitBytes || pins.Most == 0 {
		t.Fatalf("%+v, %v", pins, err)
	}
	forget(t, a)
	wantTiers(t, b, run, func(int) string { return store.Memory })
	if pins, err = b.SetPinned(soon(t), "a", store.Run{Keys: run.Keys[10:]}, false); err != nil || pins.Done != 10 || pins.Bytes != 10*unitBytes {
		t.Fatalf("%+v, %v", pins, err)
	}
	forget(t, a)
	wantTiers(t, b, run, func(i int) string { return map[bool]string{true: store.Memory, false: "disk"}[i < 10] })

	h, err := a.Hold(soon(t), store.Run{Keys: run.Keys[:3]}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if dropped, err := b.Discard(soon(t), "a", store.Run{Keys: append(run.Keys[1:len(run.Keys):len(run.Keys)], "no unit")}); err != nil || dropped != 19 {
		t.Fatalf("%d were dropped: %v", dropped, err)
	}
	wantTiers(t, b, run, func(i int) string { return map[bool]string{true: store.Memory}[i == 0] })
	for i, at := range h.Places { // who reads goes on
		if got := a.Arena().Bytes(at.Offset, at.Bytes); string(got) != string(value(run.Keys[i], unitBytes)) {
			t.Fatalf("unit %d has other bytes while it is read", i)
		}
	}
	wantHeld(t, a, run, 1)
	if _, err := b.Inspect(soon(t), "stranger", run); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// No more than a part of an arena is pinned, and it is said how much.
func TestPinsAreBounded(t *testing.T) {
	c := newCell(t, "inproc")
	a := startTiered(t, c, keeps(4<<20))
	var run store.Run
	for n := range 4 {
		part := runNumber(n, 10)
		keepRun(t, a, part)
		run.Keys = append(run.Keys, part.Keys...)
	}
	pins, err := a.SetPinned(soon(t), "a", run, true)
	if err != nil || pins.Refused == 0 || pins.Done == 0 || pins.Done+pins.Refused+pins.Missing != 40 || pins.Bytes > pins.Most {
		t.Errorf("%+v, %v", pins, err)
	}
}
