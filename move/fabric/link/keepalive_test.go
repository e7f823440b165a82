package link

import "testing"

func TestSilence(t *testing.T) {
	var s KeepAlive
	s.Received()
	for i, step := range []struct{ hears, ask, over bool }{
		{},                       // it was heard before
		{ask: true}, {ask: true}, // twice nothing
		{hears: true}, // an answer
		{ask: true}, {ask: true}, {over: true},
	} {
		if step.hears {
			s.Received()
		}
		if ask, over := s.Check(); ask != step.ask || over != step.over {
			t.Errorf("look %d: ask %v, over %v; want %+v", i, ask, over, step)
		}
	}
}

// Who does not read hears nothing, and holds it against no peer.
func TestSilenceOfTheDeaf(t *testing.T) {
	var s KeepAlive
	s.Paused(true)
	for i := range 2 * patience {
		if ask, over := s.Check(); ask || over {
			t.Fatalf("look %d at a peer that is not read: ask %v, over %v", i, ask, over)
		}
	}
	s.Paused(false)
	s.Check() // at what came meanwhile
	for range patience - 1 {
		s.Check()
	}
	if _, over := s.Check(); !over {
		t.Error("a peer that is read again, and says nothing, is not given up")
	}
}
