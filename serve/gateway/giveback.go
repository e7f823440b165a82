package gateway

import (
	"context"
	"encoding/json"
	"time"

	"meridian/serve/gateway/lifecycle"
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

// giveBack gives a ticket or promise back, and does not wait for that.
func (g *Gateway) giveBack(l *lifecycle.Life, t lifecycle.GiveBack) {
	params, isObject := openai.ViewBody(t.Params)
	if !isObject || !params.Has("meridian_ticket") {
		return
	}
	e := g.roster.LeastBusy(l.Request.Model, t.Avoid)
	if e == nil {
		e = g.roster.Get(t.Last)
	}
	if e == nil {
		return
	}
	of, transfer := l.Record.ID, t.Transfer.String()
	body, err := json.Marshal(map[string]any{
		"model": l.Request.Model, "prompt": []int{0}, "max_tokens": 1,
		"kv_transfer_params": json.RawMessage(params.With(openai.Edit{Name: "meridian_unused", Value: []byte("true")})),
	})
	if err != nil {
		g.options.Logger.Debug("a ticket cannot be given back", "request", of, "transfer", transfer, "engine", e.Name(), "error", err)
		return
	}
	select {
	case g.givingBack <- struct{}{}:
	default:
		return
	}
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
