package moves

import (
	"testing"
	"time"

	"meridian/serve/gateway/lifecycle"
)

// An engine that was silent when it was asked rests from when that was known.
func TestUnheardRests(t *testing.T) {
	d := &Leg{order: &moveOrder{at: time.Now().Add(-askTimeout), uncount: func() {}}}
	new(Moves).unheard(d, d.order)
	if !d.order.stands(lifecycle.ByDrain) {
		t.Error("it is asked again at once")
	}
	d.order.Unheard = time.Now().Add(-moveRest)
	if d.order.stands(lifecycle.ByDrain) {
		t.Error("it is never asked again")
	}
}
