package agent

import (
	"slices"
	"testing"

	"meridian/kv"
)

// Only the agent that was asked answers, and once; what nothing waits for any more is told.
func TestCalls(t *testing.T) {
	var late []string
	c := NewCalls(func(a string) { late = append(late, a) })
	asked, other := kv.Member{Name: "asked", Incarnation: kv.ID{1}}, kv.Member{Name: "asked", Incarnation: kv.ID{2}}
	number, answer, end := c.Begin(asked)
	again, _, endAgain := c.Begin(asked)
	if number == again {
		t.Errorf("two calls have the number %d", number)
	}
	c.Answered(other, number, "of another")
	c.Answered(asked, number, "first")
	c.Answered(asked, number, "second")
	if got := <-answer; got != "first" {
		t.Errorf("answered with %q", got)
	}
	end()
	c.Answered(asked, number, "after its end")
	c.Answered(asked, again, "just too late")
	endAgain()
	if want := []string{"of another", "second", "after its end", "just too late"}; !slices.Equal(late, want) {
		t.Errorf("late are %q, want %q", late, want)
	}
	if n := c.Waiting(); n > 0 {
		t.Errorf("%d calls are left", n)
	}
}
