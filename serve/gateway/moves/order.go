package moves

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

// order is why a leg was asked to leave, and for where.
type order struct {
	Why       lifecycle.MoveReason
	To        string // key
	Placement placement.Reason
	// Unheard is when it was known that the leg's engine did not take it.
	Unheard time.Time
}

// moveOrder is an order that stands until it is settled; protected by deciding.
type moveOrder struct {
	order
	at      time.Time
	uncount func() // engines are not counted on for it any more
	settled bool   // they are not
}

// stands: the leg was asked, and is not asked again. One whose engine did not take it, as it
// did not have the leg yet or was silent, is after a while: a prefill engine would generate
// for it to its end, and both engines be counted on in vain. One whose engine took it and kept
// the leg all the same is asked again where it has to go, or where an operator wants it to.
func (o *moveOrder) stands(why lifecycle.MoveReason) bool {
	switch {
	case o == nil:
		return false
	case !o.Unheard.IsZero():
		return time.Since(o.Unheard) < moveRest
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
func (m *Moves) order(d *Leg, why lifecycle.MoveReason, target *roster.Engine, reason placement.Reason) {
	d.Engine.Arriving.Add(-1)
	target.Arriving.Add(1)
	d.order = &moveOrder{order: order{Why: why, To: target.Key, Placement: reason}, at: time.Now(), uncount: func() {
		d.Engine.Arriving.Add(1)
		target.Arriving.Add(-1)
	}}
	m.options.Logger.Debug("a request is asked to leave its engine", "request", d.ID, "engine", d.Engine.Name(), "peer_engine", target.Name(), "reason", lifecycle.MoveReasons[why]+": "+reason.String())
	order := d.order
	if d.Kind != openai.KindMeridian {
		d.HangUp.Store(true) // with its next token
		return
	}
	m.active.Go(func() {
		if !m.Tell(d) {
			m.unheard(d, order)
		}
	})
}

// AskFor asks a leg to leave for an engine, whatever others would be better.
func (m *Moves) AskFor(d *Leg, why lifecycle.MoveReason, target *roster.Engine, reason placement.Reason) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	m.order(d, why, target, reason)
}

// unheard: an engine did not take an order.
func (m *Moves) unheard(one *Leg, order *moveOrder) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	if !one.ended { // else what it was asked does not change
		order.Unheard = time.Now()
		order.settle()
	}
}

// Tell tells the engine, and whether it took that. What comes of it, the leg itself tells.
func (m *Moves) Tell(d *Leg) bool {
	ctx, cancel := context.WithTimeout(m.options.Life, askTimeout)
	defer cancel()
	for _, places := range []chan struct{}{d.Engine.AskingToMove, m.asking} {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
			return false
		}
	}
	body, err := json.Marshal(openai.Move{Transfer: d.Transfer.String()})
	if err != nil {
		panic(err) // a text
	}
	c, trouble := m.options.Upstream.Send(ctx, upstream.Leg{Engine: d.Engine, Path: openai.PathMove, Body: body, Client: &openai.Body{}, ID: upstream.NewTransfer().String(), Of: d.ID, Silent: askTimeout})
	if trouble != nil {
		m.options.Logger.Debug("a request could not be asked to leave its engine; it stays", "request", d.ID, "engine", d.Engine.Name(), "error", trouble.Fault.Recorded())
		return false
	}
	defer c.Close()
	_, _ = c.ReadAll(upstream.MaxPrefillBytes) // so that the connection can be used again
	return true
}

// Lapse settles what legs were asked long ago and have not done, as where their engine does not
// keep its word or their client does not read: they may still leave, and until then take no
// other's room.
func (m *Moves) Lapse(now time.Time) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for one := range m.all {
		if one.order != nil && now.Sub(one.order.at) > Patience {
			one.order.settle()
		}
	}
}
