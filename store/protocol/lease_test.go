package protocol

import (
	"testing"

	"meridian/kv"
	"meridian/store/owner"
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
	if used := objects.Stats().HeapUsed; used != 0 {
		t.Errorf("%d bytes are used after the delivery", used)
	}
}
