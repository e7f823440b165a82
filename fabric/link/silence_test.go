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
