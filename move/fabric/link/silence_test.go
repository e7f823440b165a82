package link

import "testing"

func TestSilence(t *testing.T) {
	var s Silence
	s.Hear()
	for i, step := range []struct{ hears, ask, over bool }{
		{},                       // it was heard before
		{ask: true}, {ask: true}, // twice nothing
		{hears: true}, // an answer
		{ask: true}, {ask: true}, {over: true},
	} {
		if step.hears {
			s.Hear()
		}
		if ask, over := s.Look(); ask != step.ask || over != step.over {
			t.Errorf("look %d: ask %v, over %v; want %+v", i, ask, over, step)
		}
	}
}

// Who does not read hears nothing, and holds it against no peer.
func TestSilenceOfTheDeaf(t *testing.T) {
	var s Silence
	s.Deaf(true)
	for i := range 2 * patience {
		if ask, over := s.Look(); ask || over {
			t.Fatalf("look %d at a peer that is not read: ask %v, over %v", i, ask, over)
		}
	}
	s.Deaf(false)
	s.Look() // at what came meanwhile
	for range patience - 1 {
		s.Look()
	}
	if _, over := s.Look(); !over {
		t.Error("a peer that is read again, and says nothing, is not given up")
	}
}
