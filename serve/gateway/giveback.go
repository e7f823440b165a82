package gateway

import (
	"context"
	"encoding/json"
	"time"

	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// A ticket that no engine will use keeps blocks of a prefill engine until its lease
// ends. Only an engine speaks to its agent, so a decode engine gets a request of one
// token that carries the ticket as unused, and its agent tells the holder. An engine that
// failed the request gets it only where there is no other.

// giveBackTimeout bounds that request, and maxGivingBack how many there are at a
// time; beyond both the lease ends by itself.
const (
	giveBackTimeout = 5 * time.Second
	maxGivingBack   = 64
)

// giveBack gives the ticket or promise back that this request has and that no engine
// can have used. It does not wait for that.
func (x *exchange) giveBack() {
	g := x.g
	params, isObject := openai.ViewBody(x.life.Ticket.Params)
	if !x.life.Ticket.IsUnused() || !isObject || !params.Has("meridian_ticket") {
		return
	}
	e := g.roster.LeastBusy(x.life.Request.Model, x.life.Route.Avoid)
	if e == nil && x.life.Route.Decode != x.life.Route.Offers {
		e = g.roster.Get(x.life.Route.Decode)
	}
	if e == nil {
		return
	}
	body, err := json.Marshal(map[string]any{
		"model": x.life.Request.Model, "prompt": []int{0}, "max_tokens": 1,
		"kv_transfer_params": json.RawMessage(params.With(openai.Edit{Name: "meridian_unused", Value: []byte("true")})),
	})
	if err != nil {
		g.options.Logger.Debug("a ticket cannot be given back", "request", x.life.Ticket.Request.String(), "transfer", x.life.Ticket.Transfer.String(), "engine", e.Name(), "error", err)
		return
	}
	select {
	case g.givingBack <- struct{}{}:
	default:
		return
	}
	of, transfer := x.life.Ticket.Request.String(), x.life.Ticket.Transfer.String()
	g.active.Go(func() {
		defer func() { <-g.givingBack }()
		ctx, cancel := context.WithTimeout(g.life, giveBackTimeout)
		defer cancel()
		c, trouble := g.upstream.Send(ctx, upstream.Leg{Engine: e, Path: openai.PathCompletions, Body: body, Client: &openai.Body{}, ID: upstream.NewTransfer().String(), Of: of, Silent: giveBackTimeout})
		if trouble != nil {
			g.options.Logger.Debug("a ticket was not given back; its lease ends", "request", of, "transfer", transfer, "engine", e.Name(), "error", trouble.Fault.Recorded())
			return
		}
		defer c.Close()
		_, _ = c.ReadAll(upstream.MaxPrefillBytes) // so that the connection can be used again
	})
}
