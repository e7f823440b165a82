package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/keep/store/tier"
)

// tiered opens a disk in a folder for an owner.
func tiered(t testing.TB, dir string, bytes uint64) (*disk.Disk, func(*store.Options)) {
	t.Helper()
	d, err := disk.Open(context.Background(), disk.Options{Dir: dir, Bytes: 64 << 20, SegmentBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the store's
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d, func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: bytes, Tiers: []tier.Tier{d}} }
}

// startTiered is a node that keeps objects, with the lease that it needs for that.
func startTiered(t *testing.T, c *cell, on func(*store.Options)) *node {
	n := c.start("a", candidate, on)
	if err := n.Remove(soon(t), "nothing", store.RemoveOptions{}); !errors.Is(err, store.ErrMissing) {
		t.Fatal(err)
	}
	return n
}

func runNumber(n, units int) (r store.Run) {
	for i := range units {
		r.Keys = append(r.Keys, fmt.Sprintf("run %d unit %d", n, i))
	}
	return r
}

// wantHeld holds a run, and looks at its bytes.
func wantHeld(t testing.TB, n *node, r store.Run, want int) {
	t.Helper()
	h, err := n.Hold(soon(t), r, 0)
	defer h.Release()
	if len(h.Places) != want || (err == nil) != (want == len(r.Keys)) {
		t.Fatalf("%d of %d units are held, want %d: %v", len(h.Places), len(r.Keys), want, err)
	}
	for i, at := range h.Places {
		if !bytes.Equal(n.Arena().Bytes(at.Offset, at.Bytes), value(r.Keys[i], unitBytes)) {
			t.Fatalf("unit %d has other bytes", i)
		}
	}
}

// wantKept waits until a tier has so many objects.
func wantKept(t testing.TB, d tier.Tier, objects uint64) {
	t.Helper()
	until.True(t, fmt.Sprintf("%d objects in the tier", objects), func() bool { return d.Stats().Objects >= objects })
}

func forget(t testing.TB, n *node) {
	t.Helper()
	if _, err := n.EvictUntilBelow(soon(t), n.name, 0); err != nil {
		t.Fatal(err)
	}
}

// What is used once is not written; what is used twice is, comes back when it has left
// memory, and is found by others meanwhile.
func TestColdRuns(t *testing.T) {
	c := newCell(t, "inproc")
	d, on := tiered(t, t.TempDir(), 32<<20)
	a := startTiered(t, c, on)
	b := c.start("b")
	once, twice := runNumber(1, 5), runNumber(2, 40)
	keepRun(t, a, once)
	keepRun(t, a, twice)
	wantHeld(t, a, twice, 40)
	wantKept(t, d, 40)
	forget(t, a)
	if kept, _ := a.Kept(); kept.Ready != 0 {
		t.Fatalf("%d objects are still in memory", kept.Ready)
	}
	for name, n := range map[string]*node{"the owner": a, "another agent": b} {
		owners, err := n.Where(soon(t), store.Run{Keys: append(append([]string{}, twice.Keys...), once.Keys...)})
		if err != nil {
			t.Fatal(err)
		}
		for i, owner := range owners {
			if want := map[bool]string{true: "a"}[i < 40]; owner != want {
				t.Fatalf("%s: unit %d is said to be at %q, want %q", name, i, owner, want)
			}
		}
	}
	for _, from := range []string{"disk", store.Memory} { // where they were, and where they are since
		h, err := a.Hold(soon(t), twice, unitBytes)
		if err != nil || len(h.From) != 1 || h.From[0].Tier != from || h.From[0].Objects != 40 || h.From[0].Took <= 0 {
			t.Errorf("from %s: %+v, %v", from, h.From, err)
		}
		h.Release()
	}
	wantHeld(t, a, twice, 40)
	wantHeld(t, a, once, 0)
	stats, tiers := a.Cold()
	if stats.Promoted != 40 || stats.PromotedBytes != 40*unitBytes || stats.PromotionsFailed != 0 || len(tiers) != 1 || tiers[0].Name != "disk" || tiers[0].Hits != 40 {
		t.Errorf("%+v, %+v", stats, tiers)
	}
	if all, err := b.Stats(soon(t)); err != nil || len(all.Owners[0].Cold) != 1 || all.Owners[0].Cold[0].Objects != 40 || all.Owners[0].Cold[0].Hits != 40 {
		t.Errorf("another agent hears %+v, %v", all, err)
	}
	if owners, err := b.Where(soon(t), twice); err != nil || owners[39] != "a" {
		t.Errorf("in memory again it is at %v: %v", owners, err)
	}
}

// An owner that starts again has what its disk has; a byte that was changed there is a
// miss, and what comes before it is not.
func TestColdRunsOutliveTheirOwner(t *testing.T) {
	dir := t.TempDir()
	run := runNumber(1, 20)
	c := newCell(t, "inproc")
	d, on := tiered(t, dir, 32<<20)
	a := startTiered(t, c, on)
	keepRun(t, a, run)
	wantHeld(t, a, run, 20)
	wantKept(t, d, 20)
	a.stop(t)
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.segment"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	whole, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, value(run.Keys[12], unitBytes)[100:200])
	whole[at] ^= 1
	if err := os.WriteFile(names[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	c = newCell(t, "inproc")
	_, on = tiered(t, dir, 32<<20)
	a = startTiered(t, c, on)
	wantHeld(t, a, run, 12)
	if owners, err := a.Where(soon(t), run); err != nil || owners[11] != "a" || owners[12] != "" {
		t.Errorf("where: %v, %v", owners, err)
	}
	keepRun(t, a, store.Run{Keys: run.Keys[12:13]})
	wantHeld(t, a, run, 20)
}

// A tier that is too small for a run keeps how it begins: the rest is of no use without.
func TestColdRunsLoseTheirEnd(t *testing.T) {
	c := newCell(t, "inproc")
	const segment = 16 * unitBytes
	d, err := disk.Open(context.Background(), disk.Options{Dir: t.TempDir(), Bytes: 4 * segment, SegmentBytes: segment})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	a := startTiered(t, c, func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: 32 << 20, Tiers: []tier.Tier{d}} })
	run := runNumber(1, 100)
	keepRun(t, a, run)
	wantHeld(t, a, run, 100)
	until.True(t, "all was written", func() bool { return d.Stats().Puts == 100 })
	forget(t, a)
	owners, err := a.Where(soon(t), run)
	if err != nil {
		t.Fatal(err)
	}
	left := slices.Index(owners, "")
	if left < 20 || slices.Contains(owners[left:], "a") {
		t.Errorf("of a run of 100 a tier with room for 60 has %v", owners)
	}
	wantHeld(t, a, run, left)
}

// What an operator removes does not come back from a tier.
func TestColdRunsAreRemoved(t *testing.T) {
	c := newCell(t, "inproc")
	d, on := tiered(t, t.TempDir(), 32<<20)
	a := startTiered(t, c, on)
	run := runNumber(1, 10)
	keepRun(t, a, run)
	wantHeld(t, a, run, 10)
	wantKept(t, d, 10)
	if err := a.Remove(soon(t), run.Keys[4], store.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, a, run, 4)
	forget(t, a)
	wantHeld(t, a, run, 4)
}

// Readers that want the same run at once, or parts of it, wait for one promotion of each
// object.
func TestColdRunsTogether(t *testing.T) {
	c := newCell(t, "inproc")
	d, on := tiered(t, t.TempDir(), 64<<20)
	a := startTiered(t, c, on)
	run := runNumber(1, 60)
	keepRun(t, a, run)
	wantHeld(t, a, run, 60)
	wantKept(t, d, 60)
	forget(t, a)
	done := make(chan int)
	for i := range 6 {
		part := store.Run{Keys: run.Keys[10*(i/2):]}
		go func() {
			h, _ := a.Hold(soon(t), part, 0)
			defer h.Release()
			done <- len(part.Keys) - len(h.Places)
		}()
	}
	for range 6 {
		if missing := <-done; missing != 0 {
			t.Errorf("%d units are not held", missing)
		}
	}
	if stats, _ := a.Cold(); stats.Promoted != 60 {
		t.Errorf("%+v", stats)
	}
}

// hung is a tier that has everything, and never comes to an end.
type hung struct {
	tier.Tier
	asked atomic.Int64
}

func (h *hung) Name() string          { return "hung" }
func (h *hung) Put(tier.Object) error { return tier.ErrBusy }
func (h *hung) Takes(uint64) error    { return nil }
func (h *hung) Drop([]byte)           {}
func (h *hung) Stats() (s tier.Stats) { return s }
func (h *hung) Flush(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (h *hung) Has(keys [][]byte) []bool {
	has := make([]bool, len(keys))
	for i := range has {
		has[i] = true
	}
	return has
}

func (h *hung) Get(ctx context.Context, _ []byte, _ func([]byte, int) []byte) ([]byte, error) {
	h.asked.Add(1)
	<-ctx.Done()
	return nil, errors.Join(tier.ErrMissing, ctx.Err())
}

// A tier that hangs is a miss when the reader's time is over, and what is in memory is
// held all the same; the store closes.
func TestColdTierHangs(t *testing.T) {
	c := newCell(t, "inproc")
	h := &hung{}
	a := startTiered(t, c, func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: 32 << 20, Tiers: []tier.Tier{h}} })
	run := runNumber(1, 10)
	keepRun(t, a, store.Run{Keys: run.Keys[:4]})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	held, err := a.Hold(ctx, run, 0)
	defer held.Release()
	if len(held.Places) != 4 || !errors.Is(err, store.ErrMissing) {
		t.Errorf("%d units are held: %v", len(held.Places), err)
	}
	if took := time.Since(began); took > 20*time.Second || h.asked.Load() == 0 {
		t.Errorf("it took %v; the tier was asked %d times", took, h.asked.Load())
	}
}

// gated is a tier that lets nothing out until it is opened.
type gated struct {
	tier.Tier
	asked, open chan struct{} // closed when it is asked for the first time; and when it opens
	once        sync.Once
}

func (g *gated) Get(ctx context.Context, name []byte, into func([]byte, int) []byte) ([]byte, error) {
	g.once.Do(func() { close(g.asked) })
	select {
	case <-g.open:
		return g.Tier.Get(ctx, name, into)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A run comes to memory whole, though its reader left before the tier had said anything:
// the next reader finds it, and one that came meanwhile has it, each unit fetched once.
func TestColdReaderThatLeaves(t *testing.T) {
	c := newCell(t, "inproc")
	d, _ := tiered(t, t.TempDir(), 64<<20)
	g := &gated{Tier: d, asked: make(chan struct{}), open: make(chan struct{})}
	a := startTiered(t, c, func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: 64 << 20, Tiers: []tier.Tier{g}} })
	run := runNumber(1, 20)
	keepRun(t, a, run)
	wantHeld(t, a, run, 20)
	wantKept(t, d, 20)
	forget(t, a)
	brief, leave := context.WithCancel(context.Background())
	left := make(chan struct{})
	go func() {
		defer close(left)
		h, err := a.Hold(brief, run, 0)
		h.Release()
		if len(h.Places) != 0 || !errors.Is(err, store.ErrMissing) {
			t.Errorf("the reader that left has %d units: %v", len(h.Places), err)
		}
	}()
	<-g.asked
	leave()
	<-left
	meanwhile := make(chan int)
	go func() {
		h, _ := a.Hold(soon(t), store.Run{Keys: run.Keys[:15]}, 0)
		h.Release()
		meanwhile <- len(h.Places)
	}()
	close(g.open)
	if units := <-meanwhile; units != 15 {
		t.Errorf("a reader that came meanwhile has %d of 15 units", units)
	}
	until.True(t, "the run is in memory", func() bool { kept, _ := a.Kept(); return kept.Ready == 20 })
	if stats, _ := a.Cold(); stats.Promoted != 20 || stats.PromotionsFailed != 0 {
		t.Errorf("%+v", stats)
	}
}

// choosy is a tier that takes nothing, and tells when it was asked.
type choosy struct {
	hung
	refused chan struct{}
}

func (c *choosy) Has(keys [][]byte) []bool { return make([]bool, len(keys)) }
func (c *choosy) Put(tier.Object) error    { panic("it was given what it does not take") }
func (c *choosy) Takes(bytes uint64) error {
	c.refused <- struct{}{}
	return tier.ErrTooLarge
}

// What a tier does not take is not read for its sum at each use: the tier is asked first.
func TestColdTierDoesNotTakeIt(t *testing.T) {
	c := newCell(t, "inproc")
	x := &choosy{refused: make(chan struct{}, 10)}
	a := startTiered(t, c, func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: 32 << 20, Tiers: []tier.Tier{x}} })
	run := runNumber(1, 1)
	keepRun(t, a, run)
	wantHeld(t, a, run, 1)
	for range 3 {
		wantHeld(t, a, run, 1)
		<-x.refused
	}
	until.True(t, "it is counted", func() bool { stats, _ := a.Cold(); return stats.Dropped >= 3 })
}
