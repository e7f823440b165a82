// Package tiertest is the suite that every tier passes.
package tiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/keep/store/tier"
)

// Subject is a tier that the suite opens, again and again, at one place.
type Subject struct {
	Open func(t *testing.T) tier.Tier
	// Keeps is the most that it keeps: the suite puts more.
	Keeps int
}

// Run runs the suite; fresh is a place where nothing is kept yet.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, Subject){
		"Contents": contents, "Missing": missing, "Again": again, "Drop": drop, "Reopen": reopen, "Full": full, "Many": many, "Closed": closed, "Refused": refused, "Large": large, "Together": together,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// Object is one that a number says all about.
func Object(n, size int) tier.Object {
	payload := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(size), byte(size >> 8)}).Read(payload)
	return tier.Object{Key: fmt.Appendf(nil, "key %d of %d", n, size), Header: fmt.Appendf(nil, "header %d", n), Payload: payload}
}

// Get gets an object as its bytes and its header.
func Get(ctx context.Context, x tier.Tier, key []byte) (o tier.Object, err error) {
	o.Key = key
	o.Payload, err = x.Get(ctx, key, func(header []byte, size int) []byte {
		o.Header = bytes.Clone(header)
		return make([]byte, size)
	})
	return o, err
}

// Put puts objects, and waits until they are kept.
func Put(t *testing.T, x tier.Tier, objects ...tier.Object) {
	t.Helper()
	for _, o := range objects {
		err := x.Put(o)
		for errors.Is(err, tier.ErrBusy) {
			if err = x.Flush(within(t)); err == nil {
				err = x.Put(o)
			}
		}
		if err != nil {
			t.Fatalf("put %s: %v", o.Key, err)
		}
	}
	if err := x.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

func wantGot(t *testing.T, x tier.Tier, want tier.Object) {
	t.Helper()
	got, err := Get(within(t), x, want.Key)
	if err != nil || !bytes.Equal(got.Payload, want.Payload) || !bytes.Equal(got.Header, want.Header) {
		t.Fatalf("get %s: %d bytes with header %q, %v; want %d with %q", want.Key, len(got.Payload), got.Header, err, len(want.Payload), want.Header)
	}
	if !x.Has([][]byte{want.Key})[0] {
		t.Fatalf("%s can be got, but Has says no", want.Key)
	}
}

func wantMissing(t *testing.T, x tier.Tier, key []byte) {
	t.Helper()
	if got, err := Get(within(t), x, key); !errors.Is(err, tier.ErrMissing) {
		t.Fatalf("get %s: %d bytes, %v; want %v", key, len(got.Payload), err, tier.ErrMissing)
	}
}

func closeIt(t *testing.T, x tier.Tier) {
	t.Helper()
	if err := x.Close(within(t)); err != nil {
		t.Fatal(err)
	}
}

var sizes = []int{0, 1, 31, 4095, 4096, 4097, 65536, 300001, 1 << 20}

func contents(t *testing.T, s Subject) {
	x := s.Open(t)
	defer closeIt(t, x)
	var all []tier.Object
	for i, size := range sizes {
		all = append(all, Object(i, size))
	}
	all = append(all, tier.Object{Key: bytes.Repeat([]byte{0}, 1024), Header: bytes.Repeat([]byte{255}, 256), Payload: []byte("longest")}, tier.Object{Key: []byte{'k'}, Payload: []byte("no header")})
	Put(t, x, all...)
	for _, o := range all {
		wantGot(t, x, o)
	}
	if stats := x.Stats(); stats.Objects != uint64(len(all)) || stats.Puts != uint64(len(all)) || stats.Hits != uint64(len(all)) || stats.Waiting != 0 {
		t.Errorf("stats after %d puts and gets: %+v", len(all), stats)
	}
}

func missing(t *testing.T, s Subject) {
	x := s.Open(t)
	defer closeIt(t, x)
	Put(t, x, Object(1, 100))
	wantMissing(t, x, []byte("another"))
	if has := x.Has([][]byte{[]byte("another"), Object(1, 100).Key, nil}); !slices.Equal(has, []bool{false, true, false}) {
		t.Errorf("has %v", has)
	}
	// A reader that has no room gets nothing, and nothing breaks.
	if got, err := x.Get(within(t), Object(1, 100).Key, func([]byte, int) []byte { return nil }); got != nil || err != nil {
		t.Errorf("without room: %d bytes, %v", len(got), err)
	}
	wantGot(t, x, Object(1, 100))
}

// A second put of a key changes nothing.
func again(t *testing.T, s Subject) {
	x := s.Open(t)
	defer closeIt(t, x)
	o := Object(1, 5000)
	Put(t, x, o, o)
	before := x.Stats()
	other := o
	other.Payload = []byte("another value")
	Put(t, x, other)
	wantGot(t, x, o)
	if after := x.Stats(); after.Bytes != before.Bytes || after.Objects != 1 {
		t.Errorf("it takes %d bytes for %d objects, before %d", after.Bytes, after.Objects, before.Bytes)
	}
}

func drop(t *testing.T, s Subject) {
	x := s.Open(t)
	kept, gone, hasty := Object(1, 5000), Object(2, 5000), Object(3, 5000)
	Put(t, x, kept, gone)
	x.Drop(gone.Key)
	x.Drop([]byte("never there"))
	wantMissing(t, x, gone.Key)
	if err := x.Put(hasty); err != nil {
		t.Fatal(err)
	}
	x.Drop(hasty.Key) // it may not be written yet
	if err := x.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, x, hasty.Key)
	closeIt(t, x)

	x = s.Open(t)
	defer closeIt(t, x)
	wantMissing(t, x, gone.Key)
	wantMissing(t, x, hasty.Key)
	wantGot(t, x, kept)
	Put(t, x, gone)
	wantGot(t, x, gone)
}

func reopen(t *testing.T, s Subject) {
	for round := range 3 {
		x := s.Open(t)
		for before := range round {
			for i, size := range sizes {
				wantGot(t, x, Object(100*before+i, size))
			}
		}
		for i, size := range sizes {
			Put(t, x, Object(100*round+i, size))
		}
		closeIt(t, x)
	}
}

// A full tier loses what was put first.
func full(t *testing.T, s Subject) {
	x := s.Open(t)
	const size = 100_000
	n := 3 * s.Keeps / size
	for i := range n {
		Put(t, x, Object(i, size))
		if stats := x.Stats(); stats.Bytes > uint64(s.Keeps) {
			t.Fatalf("%d bytes are kept, the bound is %d", stats.Bytes, s.Keeps)
		}
	}
	wantMissing(t, x, Object(0, size).Key)
	wantGot(t, x, Object(n-1, size))
	stats := x.Stats()
	if stats.Reclaimed == 0 || stats.Bytes < uint64(s.Keeps)/4 {
		t.Errorf("after %d objects: %+v", n, stats)
	}
	found := 0
	for i := range n {
		if got, err := Get(within(t), x, Object(i, size).Key); err == nil {
			found++
			if !bytes.Equal(got.Payload, Object(i, size).Payload) {
				t.Fatalf("object %d has other bytes", i)
			}
		}
	}
	if found != int(stats.Objects) {
		t.Errorf("%d objects can be got, it says %d", found, stats.Objects)
	}
	closeIt(t, x)
	x = s.Open(t)
	defer closeIt(t, x)
	if after := x.Stats(); after.Objects != stats.Objects || after.Bytes > uint64(s.Keeps) {
		t.Errorf("opened again: %+v, before %+v", after, stats)
	}
}

func many(t *testing.T, s Subject) {
	x := s.Open(t)
	n := 2000
	for i := range n {
		err := x.Put(Object(i, 200))
		if errors.Is(err, tier.ErrBusy) {
			Put(t, x, Object(i, 200))
		} else if err != nil {
			t.Fatal(err)
		}
	}
	closeIt(t, x) // writes what waits
	x = s.Open(t)
	defer closeIt(t, x)
	for i := 0; i < n; i += 37 {
		wantGot(t, x, Object(i, 200))
	}
	if stats := x.Stats(); stats.Objects != uint64(n) {
		t.Errorf("%d of %d objects are kept", stats.Objects, n)
	}
}

func closed(t *testing.T, s Subject) {
	x := s.Open(t)
	Put(t, x, Object(1, 100))
	closeIt(t, x)
	closeIt(t, x)
	if err := x.Put(Object(2, 100)); !errors.Is(err, tier.ErrClosed) {
		t.Errorf("put: %v", err)
	}
	if _, err := Get(within(t), x, Object(1, 100).Key); !errors.Is(err, tier.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	x.Drop(Object(1, 100).Key)
	if err := x.Flush(within(t)); err != nil {
		t.Errorf("flush: %v", err)
	}
}

func refused(t *testing.T, s Subject) {
	x := s.Open(t)
	defer closeIt(t, x)
	for name, o := range map[string]tier.Object{
		"no key": {Payload: []byte("x")}, "a long key": {Key: make([]byte, 1025)}, "a long header": {Key: []byte("k"), Header: make([]byte, 257)},
		"larger than all": {Key: []byte("k"), Payload: make([]byte, s.Keeps)},
	} {
		if err := x.Put(o); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := x.Takes(uint64(s.Keeps)); !errors.Is(err, tier.ErrTooLarge) {
		t.Errorf("it would take all that it keeps as one: %v", err)
	}
	if err := x.Takes(1); err != nil {
		t.Errorf("it would not take a byte: %v", err)
	}
	x.Drop(nil)
	if stats := x.Stats(); stats.Objects != 0 || stats.Waiting != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

// An object that is larger than what is written at once is kept like others, and goes when
// its turn comes.
func large(t *testing.T, s Subject) {
	x := s.Open(t)
	o := Object(1, s.Keeps/3)
	if err := x.Takes(uint64(len(o.Payload))); err != nil {
		t.Fatal(err)
	}
	Put(t, x, Object(0, 1000), o, Object(2, 1000))
	wantGot(t, x, o)
	closeIt(t, x)
	x = s.Open(t)
	defer closeIt(t, x)
	wantGot(t, x, o)
	for n := 3; n < 8; n++ {
		Put(t, x, Object(n, s.Keeps/3))
	}
	if _, err := Get(within(t), x, o.Key); !errors.Is(err, tier.ErrMissing) {
		t.Errorf("the first is still there: %v", err)
	}
	wantGot(t, x, Object(7, s.Keeps/3))
	if stats := x.Stats(); stats.Bytes > uint64(s.Keeps) {
		t.Errorf("stats: %+v", stats)
	}
}

// Readers and writers of the same keys see whole objects or none.
func together(t *testing.T, s Subject) {
	x := s.Open(t)
	defer closeIt(t, x)
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 60 {
				o := Object(random.IntN(20), 50_000)
				switch random.IntN(5) {
				case 0:
					x.Drop(o.Key)
				case 1, 2:
					if err := x.Put(o); err != nil && !errors.Is(err, tier.ErrBusy) {
						t.Error(err)
					}
				default:
					got, err := Get(within(t), x, o.Key)
					if err == nil && !bytes.Equal(got.Payload, o.Payload) {
						t.Errorf("%s has other bytes", o.Key)
					} else if err != nil && !errors.Is(err, tier.ErrMissing) {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
}
