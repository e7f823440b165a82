package protocol

import (
	"fmt"
	"testing"

	"meridian/keep/store/master"
	"meridian/kv"
)

// An owner that must drop everything ends its writes in the order in which they
// began: a world from a seed must go the same way twice.
func TestObeyKeepsOrder(t *testing.T) {
	s, _ := leasedServer(t, ServerOptions{})
	const writes = 20
	for i := range uint64(writes) {
		s.Receive(0, kv.Member{Name: fmt.Sprint("c", i), Incarnation: kv.ID{3}}, i, &Put{Name: fmt.Append(nil, "\x00k", i), Value: []byte("v")})
	}
	s.Tick(kv.Second)
	next := uint64(0)
	for _, e := range s.Receive(kv.Second, testMaster, 0, &Answer{master.Answer{Term: 1, Seq: 2, Verdict: master.Drop, All: true}}) {
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
