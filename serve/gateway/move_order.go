package gateway

import (
	"context"
	"encoding/json"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// moveOrder is why a leg was asked to leave, and for where.
type moveOrder struct {
	why       lifecycle.MoveReason
	to        string // key
	placement placement.Reason
	at        time.Time
	uncount   func() // engines are not counted on for it any more
	// settled: they are not; unheard is when it was known that its engine did not take it. Both
	// are protected by deciding.
	settled bool
	unheard time.Time
}

// stands: the leg was asked, and is not asked again. One whose engine did not take it, as it
// did not have the leg yet or was silent, is after a while: a prefill engine would generate
// for it to its end, and both engines be counted on in vain. One whose engine took it and kept
// the leg all the same is asked again where it has to go, or where an operator wants it to.
func (o *moveOrder) stands(why lifecycle.MoveReason) bool {
	switch {
	case o == nil:
		return false
	case !o.unheard.IsZero():
		return time.Since(o.unheard) < moveRest
	case why == lifecycle.ByDrain || why == lifecycle.ByOperator:
		return !o.settled
	}
	return true
}

// settle has engines not be counted on for it any more. The caller holds deciding.
func (o *moveOrder) settle() {
	if o != nil && !o.settled {
		o.settled = true
		o.uncount()
	}
}

// order asks a leg whose order does not stand to leave for another engine. The caller holds
// deciding.
func (g *Gateway) order(d *departure, why lifecycle.MoveReason, target *roster.Engine, reason placement.Reason) *moveOrder {
	d.engine.Arriving.Add(-1)
	target.Arriving.Add(1)
	d.order = &moveOrder{why: why, to: target.Key, placement: reason, at: time.Now(), uncount: func() {
		d.engine.Arriving.Add(1)
		target.Arriving.Add(-1)
	}}
	g.options.Logger.Debug("a request is asked to leave its engine", "request", d.of, "engine", d.engine.Name(), "peer_engine", target.Name(), "reason", lifecycle.MoveReasons[why]+": "+reason.String())
	order := d.order
	if d.kind != openai.KindMeridian {
		d.hangUp.Store(true) // with its next token
		return order
	}
	g.active.Go(func() {
		if !g.askToMove(d) {
			g.departures.unheard(d, order)
		}
	})
	return order
}

// unheard: an engine did not take an order.
func (d *departures) unheard(one *departure, order *moveOrder) {
	d.deciding.Lock()
	defer d.deciding.Unlock()
	if !one.ended { // else what it was asked does not change
		order.unheard = time.Now()
		order.settle()
	}
}

// askToMove tells the engine, and whether it took that. What comes of it, the leg itself tells.
func (g *Gateway) askToMove(d *departure) bool {
	ctx, cancel := context.WithTimeout(g.life, askToMoveTimeout)
	defer cancel()
	for _, places := range []chan struct{}{d.engine.AskingToMove, g.askingToMove} {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
			return false
		}
	}
	body, err := json.Marshal(openai.Move{Transfer: d.transfer.String()})
	if err != nil {
		panic(err) // a text
	}
	c, trouble := g.upstream.Send(ctx, upstream.Leg{Engine: d.engine, Path: openai.PathMove, Body: body, Client: &openai.Body{}, ID: upstream.NewTransfer().String(), Of: d.of, Silent: askToMoveTimeout})
	if trouble != nil {
		g.options.Logger.Debug("a request could not be asked to leave its engine; it stays", "request", d.of, "engine", d.engine.Name(), "error", trouble.Fault.Recorded())
		return false
	}
	defer c.Close()
	_, _ = c.ReadAll(upstream.MaxPrefillBytes) // so that the connection can be used again
	return true
}

// lapse settles what legs were asked long ago and have not done, as where their engine does not
// keep its word or their client does not read: they may still leave, and until then take no
// other's room.
func (d *departures) lapse() {
	d.deciding.Lock()
	defer d.deciding.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.all {
		if one.order != nil && time.Since(one.order.at) > patientWithMoves {
			one.order.settle()
		}
	}
}
