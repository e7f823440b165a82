package protocol

import (
	"fmt"
	"testing"

	"meridian/kv"
	"meridian/store/arena"
	"meridian/store/master"
	"meridian/store/owner"
)

// An owner that must drop everything ends its writes in the order in which they
// began: a world from a seed must go the same way twice.
func TestObeyKeepsOrder(t *testing.T) {
	heap, err := arena.Format(make([]byte, 1<<20), arena.Options{Headers: 64})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := owner.New(heap, owner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	self, theMaster := kv.Member{Name: "a", Incarnation: kv.ID{1}}, kv.Member{Name: "m", Incarnation: kv.ID{2}}
	s := NewServer(ServerOptions{Self: self}, objects)
	s.Elected(0, theMaster, 1)
	s.Receive(0, theMaster, 0, &Answer{master.Answer{Term: 1, Seq: 1, Verdict: master.Granted, Length: kv.Second}})
	const writes = 20
	for i := range uint64(writes) {
		s.Receive(0, kv.Member{Name: fmt.Sprint("c", i), Incarnation: kv.ID{3}}, i, &Put{Name: fmt.Append(nil, "\x00k", i), Value: []byte("v")})
	}
	s.Tick(kv.Second)
	next := uint64(0)
	for _, e := range s.Receive(kv.Second, theMaster, 0, &Answer{master.Answer{Term: 1, Seq: 2, Verdict: master.Drop, All: true}}) {
		if m, is := e.(Send); is && m.To.Name[0] == 'c' {
			if m.Request != next {
				t.Fatalf("write %d ends when %d should", m.Request, next)
			}
			next++
		}
	}
	if next != writes {
		t.Errorf("%d writes ended", next)
	}
}
