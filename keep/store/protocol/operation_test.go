package protocol

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store/owner"
	"meridian/kv"
)

// An owner that has too much to do is asked again until there is time no more. Then it
// is known that nothing happened. What is to be stored is another owner's to take first.
func TestOverloadedIsAskedAgain(t *testing.T) {
	owners := []kv.Member{{Name: "a"}, {Name: "b"}}
	refused := &Reply{problemOf(fmt.Errorf("%w: 4096 objects are being written to a", owner.ErrOverloaded))}
	for name, c := range map[string]struct {
		request Message
		asked   []kv.Member // before it waits
	}{
		"put":  {&Put{Name: []byte("\x00k")}, owners},
		"open": {&Open{Name: []byte("\x00k"), Bytes: 1}, owners},
		"get":  {&Get{Name: []byte("\x00k")}, owners[:1]},
	} {
		o := NewOperation(c.request, owners, 10*kv.Second)
		step := o.Begin(0)
		for range 3 {
			for _, to := range c.asked {
				if step.To != to || step.Message == nil {
					t.Fatalf("%s: %+v, want %s to be asked", name, step, to.Name)
				}
				step = o.Answered(0, refused)
			}
			if step.Over || step.Message != nil {
				t.Fatalf("%s: does not wait: %+v", name, step)
			}
			step = o.Wake(step.Wake, owners)
		}
		if over := o.Answered(0, &Reply{}); !over.Over || over.Err != nil {
			t.Errorf("%s: the owner has done it: %+v", name, over)
		}

		o = NewOperation(c.request, owners[:1], 10*kv.Second)
		o.Begin(0)
		over := o.Answered(10*kv.Second-1, refused)
		if !over.Over || !errors.Is(over.Err, owner.ErrOverloaded) || errors.Is(over.Err, ErrUnavailable) || errors.Is(over.Err, owner.ErrBusy) {
			t.Errorf("%s: at the end: %+v", name, over)
		}
	}
}

// Where no owner is known one is waited for, until the deadline.
func TestNoOwnerIsWaitedFor(t *testing.T) {
	owners := []kv.Member{{Name: "a"}}
	for name, request := range map[string]Message{"put": &Put{Name: []byte("\x00k")}, "get": &Get{Name: []byte("\x00k")}, "remove": &Remove{Name: []byte("\x00k")}} {
		for _, comes := range []bool{true, false} {
			o := NewOperation(request, nil, kv.Second)
			step := o.Begin(0)
			for n := 0; !step.Over && step.Message == nil; n++ {
				now := step.Wake
				if step = o.Wake(now, nil); now > kv.Second || n > 100 {
					t.Fatalf("%s: waits at %v, %d times: %+v", name, now, n, step)
				}
				if comes && now > kv.Second/2 {
					step = o.Wake(step.Wake, owners)
				}
			}
			if comes && step.To != owners[0] || !comes && !errors.Is(step.Err, ErrUnavailable) {
				t.Errorf("%s, an owner comes is %v: %+v", name, comes, step)
			}
		}
	}
}
