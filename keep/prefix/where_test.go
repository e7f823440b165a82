package prefix

import (
	"errors"
	"testing"
	"time"
)

// After three questions in vain the master is asked once a second, until it answers; what
// fails at once does not count.
func TestSilence(t *testing.T) {
	var s masterBackoff
	now, failed := time.Unix(1000, 0), errors.New("no answer")
	for range 10 {
		if !s.ask(now) {
			t.Fatal("not asked, and nothing was waited for")
		}
		s.asked(now, now.Add(costly-1), failed)
	}
	for range maxSilences {
		if !s.ask(now) {
			t.Fatal("not asked")
		}
		now = now.Add(costly)
		s.asked(now.Add(-costly), now, failed)
	}
	for range 3 {
		if s.ask(now) || s.ask(now.Add(askAgain-1)) {
			t.Fatal("asked while it is silent")
		}
		if now = now.Add(askAgain); !s.ask(now) || s.ask(now) {
			t.Fatal("it is to be asked once in a while")
		}
		s.asked(now, now.Add(costly), failed)
	}
	s.asked(now, now.Add(costly), nil)
	for range maxSilences {
		if !s.ask(now) {
			t.Fatal("it has answered, and is not asked")
		}
	}
}
