package gateway

import (
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// orderOf ends a leg that may leave, and is what it was asked: that does not change any more.
func orderOf(d *moves.Leg) lifecycle.Order {
	order, given := d.End()
	return lifecycle.Order{Given: given, Why: order.Why, To: order.To, Placement: order.Placement}
}

// leftUnasked is an engine that says so of a leg that could not leave: its answer is not
// complete, and no other engine goes on with it.
func leftUnasked(e *roster.Engine) *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: e.Key, Fault: openai.Unavailable("engine %s let a request go that was not to leave it", e.Name())}
}
