package protocol

import (
	"testing"

	"meridian/kv"
	"meridian/store/arena"
	"meridian/store/master"
	"meridian/store/owner"
)

// A delivery of a process that stood still for long goes on when the process does.
// Until it is over, its object's bytes are nobody else's.
func TestDeliveryKeepsItsBytes(t *testing.T) {
	heap, err := arena.Format(make([]byte, 1<<20), arena.Options{Headers: 64})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := owner.New(heap, owner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("\x00k")
	plan, err := objects.Reserve(0, owner.Put{Key: key, Bytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Commit(0, plan, heap.SumPayload(plan.Offset, plan.Bytes)); err != nil {
		t.Fatal(err)
	}
	theMaster, client := kv.Member{Name: "m", Incarnation: kv.ID{2}}, kv.Member{Name: "c", Incarnation: kv.ID{3}}
	s := NewServer(ServerOptions{Self: kv.Member{Name: "a", Incarnation: kv.ID{1}}, ReadTimeout: kv.Second}, objects)
	s.Elected(0, theMaster, 1)
	s.Receive(0, theMaster, 0, &Answer{master.Answer{Term: 1, Seq: 1, Verdict: master.Granted, Length: kv.Minute}})
	var delivery *Deliver
	for _, e := range s.Receive(0, client, 1, &Get{Name: key}) {
		if d, is := e.(Deliver); is {
			delivery = &d
		}
	}
	if delivery == nil {
		t.Fatal("nothing is delivered")
	}
	s.Receive(1, client, 2, &Remove{Name: key})
	s.Scan(30 * kv.Second)
	if used := objects.Stats().HeapUsed; used == 0 {
		t.Error("the bytes of an object that is being delivered are free")
	}
	s.Delivered(30*kv.Second, *delivery, nil)
	if used := objects.Stats().HeapUsed; used != 0 {
		t.Errorf("%d bytes are used after the delivery", used)
	}
}
