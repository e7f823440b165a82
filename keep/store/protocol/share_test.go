package protocol

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store/owner"
	"meridian/kv"
)

// refusal is the problem in the only answer among effects; nil where there is none.
func refusal(effects []Effect) error {
	for _, e := range effects {
		if send, is := e.(Send); is {
			if r, is := send.Message.(*Reply); is {
				return r.Problem.Err()
			}
		}
	}
	return nil
}

// One peer has its share of what waits, and leaves the rest to others.
func TestOnePeerHasItsShare(t *testing.T) {
	other := kv.Member{Name: "d", Incarnation: kv.ID{4}}
	s, _ := leasedServer(t, ServerOptions{MaxValues: 4000, MaxWrites: 40})
	put := func(from kv.Member, key string, size int) []Effect {
		return s.Receive(0, from, 1, &Put{Name: []byte("\x00" + key), Value: make([]byte, size)})
	}
	for i := range 2 {
		if err := refusal(put(testClient, fmt.Sprint("bytes", i), 500)); err != nil {
			t.Fatalf("half of its share, %d: %v", i, err)
		}
	}
	if err := refusal(put(testClient, "more", 1)); !errors.Is(err, owner.ErrOverloaded) {
		t.Errorf("a byte more than its share: %v", err)
	}
	last := put(other, "others", 500)
	if err := refusal(last); err != nil {
		t.Errorf("another peer: %v", err)
	}
	seal := only[Seal](t, claimed(t, s, 0, last))
	s.Sealed(0, seal.Write, 1)
	if has := s.shares[other]; has != (share{}) || s.values != 1000 {
		t.Errorf("after its put it still has %+v, of %d bytes", has, s.values)
	}

	source := Span{Region: 1, Epoch: 1, Length: 10}
	for i := range 5 {
		if err := refusal(s.Receive(0, other, 1, &Open{Name: []byte(fmt.Sprint("\x00open", i)), Bytes: 10})); err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		if err := refusal(s.Receive(0, other, 1, &PutFrom{Name: []byte(fmt.Sprint("\x00from", i)), Source: source})); err != nil {
			t.Fatalf("put from its memory %d: %v", i, err)
		}
	}
	for _, beyond := range []Message{&Open{Name: []byte("\x00beyond"), Bytes: 10}, &PutFrom{Name: []byte("\x00beyond"), Source: source}} {
		if err := refusal(s.Receive(0, other, 1, beyond)); !errors.Is(err, owner.ErrOverloaded) {
			t.Errorf("%T: more writes than its share: %v", beyond, err)
		}
	}
	if n := s.objects.Stats().Overloaded; n != 3 {
		t.Errorf("%d requests were turned away", n)
	}
}

// Who waits for objects in great numbers is told that they are not there, and keeps
// no other from waiting.
func TestOnePeerWaitsForItsShare(t *testing.T) {
	other := kv.Member{Name: "d", Incarnation: kv.ID{4}}
	s, _ := leasedServer(t, ServerOptions{})
	s.Receive(0, testClient, 1, &Open{Name: []byte("\x00k"), Bytes: 10})
	locate := func(from kv.Member) []Effect {
		return s.Receive(0, from, 2, &Locate{Name: []byte("\x00k"), WaitMs: 1000})
	}
	for range part(maxWaiting) {
		if err := refusal(locate(testClient)); err != nil {
			t.Fatal(err)
		}
	}
	if err := refusal(locate(testClient)); err == nil {
		t.Error("one waits beyond its share")
	}
	if err := refusal(locate(other)); err != nil {
		t.Errorf("another peer does not wait: %v", err)
	}
	s.Tick(2 * kv.Second)
	if has := s.shares[testClient]; has.locates != 0 || len(s.waiting) != 0 {
		t.Errorf("after its time %+v, and %d wait", has, len(s.waiting))
	}
}
