package protocol

import (
	"errors"
	"testing"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// A delivery of a process that stood still for long goes on when the process does.
// Until it is over, its object's bytes are no other object's.
func TestDeliveryKeepsItsBytes(t *testing.T) {
	s, objects := leasedServer(t, ServerOptions{ReadTimeout: kv.Second})
	key := []byte("\x00k")
	plan, err := objects.Reserve(0, owner.Put{Key: key, Bytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Commit(0, plan, 0); err != nil {
		t.Fatal(err)
	}
	delivery := only[Deliver](t, s.Receive(0, testClient, 1, &Get{Name: key}))
	s.Receive(1, testClient, 2, &Remove{Name: key})
	s.Scan(30 * kv.Second)
	if used := objects.Stats().HeapUsed; used == 0 {
		t.Error("the bytes of an object that is being delivered are free")
	}
	s.Delivered(30*kv.Second, delivery, nil)
	if stats := objects.Stats(); stats.HeapUsed != 0 || stats.Timeouts != 0 {
		t.Errorf("after the delivery: %+v", stats)
	}
}

// A delivery that ran out of time, and one that found broken bytes, are counted as that.
func TestDeliveriesThatFailAreCounted(t *testing.T) {
	s, objects := leasedServer(t, ServerOptions{ReadTimeout: kv.Second})
	key := []byte("\x00k")
	plan, err := objects.Reserve(0, owner.Put{Key: key, Bytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Commit(0, plan, 0); err != nil {
		t.Fatal(err)
	}
	get := func() Deliver { return only[Deliver](t, s.Receive(0, testClient, 1, &Get{Name: key})) }
	s.Delivered(kv.Second-1, get(), ErrRefused)
	if n := objects.Stats().Timeouts; n != 0 {
		t.Errorf("%d timeouts, and one reader that was refused", n)
	}
	s.Delivered(kv.Second, get(), ErrRefused)
	one, other := get(), get()
	s.Delivered(0, one, arena.ErrTorn)
	s.Delivered(0, other, arena.ErrTorn)
	if stats := objects.Stats(); stats.Timeouts != 1 || stats.Torn != 1 || stats.Refused != 0 || stats.Ready != 0 || stats.HeapUsed != 0 {
		t.Errorf("one timeout and one torn object: %+v", stats)
	}
}

// An object that is being written is not ready, for who asks where it lies; for a reader
// it is missing.
func TestNotReady(t *testing.T) {
	s, _ := leasedServer(t, ServerOptions{})
	key := []byte("\x00k")
	s.Receive(0, testClient, 1, &Open{Name: key, Bytes: 10})
	locate := refusal(s.Receive(0, testClient, 2, &Locate{Name: key}))
	if !errors.Is(locate, owner.ErrMissing) || !errors.Is(locate, owner.ErrBusy) {
		t.Errorf("where it lies: %v", locate)
	}
	if err := refusal(s.Receive(0, testClient, 3, &Get{Name: key})); !errors.Is(err, owner.ErrMissing) || errors.Is(err, owner.ErrBusy) {
		t.Errorf("its bytes: %v", err)
	}
	if err := refusal(s.Receive(0, testClient, 4, &Locate{Name: []byte("\x00l")})); errors.Is(err, owner.ErrBusy) {
		t.Errorf("another key: %v", err)
	}

	o := NewOperation(&Locate{Name: key}, []kv.Member{{Name: "a"}}, kv.Second)
	o.Begin(0)
	if step := o.Answered(0, &Reply{problemOf(locate)}); !step.ToMaster { // another may have it
		t.Fatalf("%+v", step)
	}
	if over := o.Answered(0, &Owners{Names: []string{""}}); !over.Over || !errors.Is(over.Err, owner.ErrBusy) {
		t.Errorf("no owner has it: %+v", over)
	}
}
