package fabric

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/mem"
)

func newSection(t *testing.T, size uint64) *mem.Section {
	t.Helper()
	a, err := mem.NewArena(mem.ArenaOptions{Name: "test", SizeBytes: size, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := a.References(); n != 0 {
			t.Errorf("%d references leaked", n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return a.Section
}

func one(region, epoch, offset, length uint64) List {
	l := List{{Region: region, Epoch: epoch}}
	if err := l[0].Spans.Add(offset, length); err != nil {
		panic(err)
	}
	return l
}

// table has regions 1 and 2, at epochs 10 and 20, of 8192 bytes each.
func table(t *testing.T) (*Regions, [3]*mem.Section) {
	t.Helper()
	sections := [3]*mem.Section{1: newSection(t, 8192), 2: newSection(t, 8192)}
	var regions Regions
	for id := range uint64(2) {
		if err := regions.Add(Region{ID: id + 1, Epoch: 10 * (id + 1), Section: sections[id+1]}); err != nil {
			t.Fatal(err)
		}
	}
	return &regions, sections
}

func TestBind(t *testing.T) {
	regions, sections := table(t)
	l := append(one(1, 10, 0, 8192), one(2, 20, 4096, 4096)...)
	l = append(l, one(1, 10, 100, 1)...)
	b, err := regions.Bind(l)
	if err != nil {
		t.Fatal(err)
	}
	if sections[1].References() != 2 || sections[2].References() != 1 {
		t.Errorf("%d and %d references", sections[1].References(), sections[2].References())
	}
	if b.Section(0) != sections[1] || b.Section(1) != sections[2] || b.Section(2) != sections[1] {
		t.Error("parts are bound to the wrong sections")
	}
	if !b.Touches(1) || !b.Touches(2) || b.Touches(3) {
		t.Error("Touches is wrong")
	}
	b.Release()
	b.Release()
	if sections[1].References() != 0 || sections[2].References() != 0 {
		t.Error("references stayed after Release")
	}
}

func TestBindRefuses(t *testing.T) {
	regions, sections := table(t)
	good := one(2, 20, 0, 10)
	for name, c := range map[string]struct {
		bad  List
		want error
		says string
	}{
		"unknown region": {one(3, 10, 0, 1), ErrUnknownRegion, "3"},
		"stale epoch":    {one(1, 9, 0, 1), ErrStaleEpoch, "at epoch 10, the request names 9"},
		"future epoch":   {one(1, 11, 0, 1), ErrStaleEpoch, "names 11"},
		"one byte over":  {one(1, 10, 8000, 193), mem.ErrBounds, "region 1"},
		"far beyond":     {one(1, 10, 1<<63, 1), mem.ErrBounds, "region 1"},
	} {
		b, err := regions.Bind(append(good, c.bad...))
		if b != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if sections[1].References() != 0 || sections[2].References() != 0 {
			t.Errorf("%s: a refused list kept references", name)
		}
	}
}

func TestReadOnlyIsNoDestination(t *testing.T) {
	regions, sections := table(t)
	lent, err := sections[1].Lend()
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	fd, err := syscall.Dup(int(lent.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	borrowed, err := mem.MapArena(fd, false)
	if err != nil {
		t.Fatal(err)
	}
	defer borrowed.Close(context.Background())
	if err := regions.Add(Region{ID: 3, Epoch: 30, Section: borrowed.Section}); err != nil {
		t.Fatal(err)
	}
	list := append(one(2, 20, 0, 1), one(3, 30, 0, 1)...)
	if _, err := regions.BindAs(list, true); !errors.Is(err, mem.ErrReadOnly) || !strings.Contains(err.Error(), "region 3") {
		t.Errorf("bound as a destination: %v", err)
	}
	if _, err := NewPrepared(regions, Read, list, one(9, 9, 0, 2)); !errors.Is(err, mem.ErrReadOnly) {
		t.Errorf("prepared a read into it: %v", err)
	}
	if n := sections[2].References() + borrowed.References(); n != 0 {
		t.Errorf("a refused list kept %d references", n)
	}
	p, err := NewPrepared(regions, Write, list, one(9, 9, 0, 2))
	if err != nil {
		t.Fatalf("a write from it: %v", err)
	}
	p.Release()
}

func TestBindRefusesAClosingSection(t *testing.T) {
	regions, sections := table(t)
	if err := sections[1].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := regions.Bind(one(1, 10, 0, 1)); !errors.Is(err, mem.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestTable(t *testing.T) {
	regions, sections := table(t)
	if err := regions.Add(Region{ID: 1, Epoch: 11, Section: sections[2]}); err == nil {
		t.Error("a region was registered twice")
	}
	if len(regions.byID) != 2 {
		t.Errorf("%d regions", len(regions.byID))
	}
	if err := regions.Remove(1); err != nil {
		t.Fatal(err)
	}
	if err := regions.Remove(1); !errors.Is(err, ErrUnknownRegion) {
		t.Errorf("removed twice: %v", err)
	}
	if err := regions.Add(Region{ID: 1, Epoch: 11, Section: sections[1]}); err != nil {
		t.Error(err)
	}
}

func TestCurrent(t *testing.T) {
	regions, sections := table(t)
	b, err := regions.Bind(append(one(2, 20, 0, 1), one(1, 10, 0, 1)...))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	expect := func(want error) {
		t.Helper()
		if err := regions.Current(b); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	expect(nil)
	reregister := func(epoch uint64, s *mem.Section) {
		t.Helper()
		_ = regions.Remove(1)
		expect(ErrUnknownRegion)
		if err := regions.Add(Region{ID: 1, Epoch: epoch, Section: s}); err != nil {
			t.Fatal(err)
		}
	}
	reregister(11, sections[1])
	expect(ErrStaleEpoch)
	reregister(10, sections[2]) // other memory under the old name
	expect(ErrStaleEpoch)
	reregister(10, sections[1])
	expect(nil)
}

func TestPrepareRefuses(t *testing.T) {
	regions, sections := table(t)
	twice := append(one(2, 20, 0, 10), one(2, 20, 9, 10)...)
	dense := one(1, 10, 0, 20)
	for name, c := range map[string]struct {
		op            Op
		local, remote List
		want          error
	}{
		"lengths":            {Read, one(1, 10, 0, 10), one(7, 1, 0, 11), ErrLengths},
		"read into overlap":  {Read, twice, dense, ErrOverlap},
		"write into overlap": {Write, dense, twice, ErrOverlap},
		"no such operation":  {0, dense, dense, ErrUnsupported},
		"local bounds":       {Write, one(1, 10, 8192, 1), one(7, 1, 0, 1), mem.ErrBounds},
		"local region":       {Write, one(7, 10, 0, 1), one(7, 1, 0, 1), ErrUnknownRegion},
		"local epoch":        {Write, one(1, 11, 0, 1), one(7, 1, 0, 1), ErrStaleEpoch},
		"too many parts":     {Write, make(List, MaxParts+1), nil, errList},
	} {
		if _, err := NewPrepared(regions, c.op, c.local, c.remote); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// As sources, overlaps are fine.
	for _, c := range []struct {
		op            Op
		local, remote List
	}{{Read, dense, twice}, {Write, twice, dense}} {
		p, err := NewPrepared(regions, c.op, c.local, c.remote)
		if err != nil {
			t.Fatalf("%v: %v", c.op, err)
		}
		p.Release()
	}
	if sections[1].References()+sections[2].References() != 0 {
		t.Error("references stayed")
	}
}

func TestPreparedKeepsMemoryUntilTheLastPostEnds(t *testing.T) {
	regions, sections := table(t)
	p, err := NewPrepared(regions, Write, one(1, 10, 0, 10), one(9, 9, 0, 10))
	if err != nil {
		t.Fatal(err)
	}
	post := func() *Transfer {
		t.Helper()
		transfer, err := NewTransfer(t.Context(), SystemClock, p, kv.ID{1}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		return transfer
	}
	first, second := post(), post()
	first.Finish(Done, nil)
	p.Release()
	p.Release()
	if n := sections[1].References(); n != 1 {
		t.Errorf("%d references while a post runs", n)
	}
	if _, err := NewTransfer(t.Context(), SystemClock, p, kv.ID{2}, func(error) {}); !errors.Is(err, ErrReleased) {
		t.Errorf("posted after Release: %v", err)
	}
	second.Finish(InDoubt, ErrPeerGone)
	second.Finish(Done, nil)
	if n := sections[1].References(); n != 0 {
		t.Errorf("%d references after the last post", n)
	}
	if state, err := second.Status(); state != InDoubt || !errors.Is(err, ErrPeerGone) {
		t.Errorf("the second end won: %v, %v", state, err)
	}
}
