package handoff

import (
	"testing"

	"meridian/kv"
)

// FuzzHear interrupts a hand-off after some messages with one that any agent of the
// cell may have made up. Nothing panics, no engine is told an end twice or before it
// is quiet, and with time everything ends.
func FuzzHear(f *testing.F) {
	for _, push := range []bool{false, true} {
		s := newStage(f)
		s.whole(push)
		for i, l := range s.said {
			for _, from := range []uint8{0, 1, 2} {
				f.Add(push, uint8(i/2), from, AppendMessage(nil, l.transfer, l.message))
			}
		}
	}
	f.Fuzz(func(t *testing.T, push bool, after, from uint8, wire []byte) {
		_, m, err := ParseMessage(wire)
		if err != nil {
			return
		}
		// A home and its followers trust one another, as parts of one engine do.
		_, isOrder := m.(*Order)
		_, isReport := m.(*Report)
		if (isOrder || isReport) && from%3 != 2 {
			return
		}
		s := newStage(t)
		s.hostile = true
		s.offer(1)
		s.accept(push)
		for n := uint8(0); n < after && len(s.post) > 0; n++ {
			l := s.post[0]
			s.post = s.post[1:]
			s.deliver(l)
		}
		members := []kv.Member{memberP, memberD, memberX}
		for _, to := range members {
			s.deliver(queuedMessage{members[from%3], to, s.transfer, m})
		}
		s.play()
		s.do(memberP, s.source.Progress(s.now, s.transfer, 2, 0))
		for range 20 {
			s.pass(10 * Second)
		}
		if s.source.Len() != 0 || s.destination.Len() != 0 {
			t.Fatalf("%d offers and %d accepts are left: %s", s.source.Len(), s.destination.Len(), s.story())
		}
	})
}
