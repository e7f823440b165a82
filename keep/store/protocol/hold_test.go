package protocol

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// What is held is at most half of the heap, however often each object is; when no reader
// holds it any more, all of it can be evicted.
func TestHoldsAreBounded(t *testing.T) {
	s, objects := leasedServer(t, ServerOptions{})
	var run [][]byte
	for i := range 14 {
		name := fmt.Appendf(nil, "unit-%d", i)
		plan, err := objects.Reserve(0, owner.Put{Key: name, Bytes: 60 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := objects.Commit(0, plan, 1); err != nil {
			t.Fatal(err)
		}
		run = append(run, name)
	}
	var all []Held
	for range 20 { // the same objects count once
		held, err := s.Hold(1, run[:4])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, held...)
	}
	held, err := s.Hold(1, run)
	if !errors.Is(err, owner.ErrOverloaded) || len(held) < 8 || len(held) > 9 {
		t.Fatalf("%d of 14 objects are held: %v", len(held), err)
	}
	all = append(all, held...)
	if held, err := s.Hold(2*60*kv.Minute, run); !errors.Is(err, master.ErrSilent) || len(held) > 0 {
		t.Fatalf("without a lease, %d are held: %v", len(held), err)
	}
	if n := objects.EvictUntilBelow(0, 0); n != 14-len(held) {
		t.Fatalf("%d were evicted", n)
	}
	s.Unhold(2, all[0], true) // broken: not found any more, and there while others read it
	if objects.Has(run[0]) {
		t.Fatal("a broken object is found")
	}
	for _, h := range all[1:] {
		s.Unhold(2, h, false)
	}
	if part := objects.LeasedPart(); part != 0 {
		t.Fatalf("%g of the heap is held after the last hold", part)
	}
	objects.EvictUntilBelow(0, 0)
	if used := objects.Used(); used != 0 {
		t.Fatalf("%g of the heap is used by nothing", used)
	}
}
