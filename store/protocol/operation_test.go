package protocol

import (
	"errors"
	"fmt"
	"testing"

	"meridian/kv"
	"meridian/store/owner"
)

// An owner that has too much to do is asked again until there is time no more. Then it
// is known that nothing happened.
func TestOverloadedIsAskedAgain(t *testing.T) {
	owners := []kv.Member{{Name: "a"}, {Name: "b"}}
	refused := &Reply{problemOf(fmt.Errorf("%w: 4096 objects are being written to a", owner.ErrOverloaded))}
	for name, request := range map[string]Message{"put": &Put{Name: []byte("\x00k")}, "open": &Open{Name: []byte("\x00k"), Bytes: 1}, "get": &Get{Name: []byte("\x00k")}} {
		o := NewOperation(request, owners, 10*kv.Second)
		step := o.Begin(0)
		for range 3 {
			if step.To != owners[0] {
				t.Fatalf("%s: %+v is asked", name, step)
			}
			if step = o.Answered(0, refused); step.Over || step.Message != nil {
				t.Fatalf("%s: does not wait: %+v", name, step)
			}
			step = o.Wake(step.Wake, owners)
		}
		if over := o.Answered(0, &Reply{}); !over.Over || over.Err != nil {
			t.Errorf("%s: the owner has done it: %+v", name, over)
		}

		o = NewOperation(request, owners, 10*kv.Second)
		o.Begin(0)
		over := o.Answered(10*kv.Second-1, refused)
		if !over.Over || !errors.Is(over.Err, owner.ErrOverloaded) || errors.Is(over.Err, ErrUnavailable) || errors.Is(over.Err, owner.ErrBusy) {
			t.Errorf("%s: at the end: %+v", name, over)
		}
	}
}
