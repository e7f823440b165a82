package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"time"

	"meridian/internal/budget"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

// ComputedPrompt is what an engine says of a prompt that it has computed.
type ComputedPrompt = warm.ComputedPrompt

// PathWarm is where operators have prompts computed ahead, on the admin listener: a
// POST of a request as clients send it, of which only the prompt is computed. The
// engine, or the agent whose engines may be taken, is named in the query.
const PathWarm = "/cache/warm"

// MaxWarmCalls is how many prompts operators may have computed at a time. It is well
// below adminConnections: while engines compute, others can ask how the gateway is.
const MaxWarmCalls = 16

// warmPrompt answers when an engine has computed the prompt; its agent keeps it then.
func (g *Gateway) warmPrompt(w http.ResponseWriter, r *http.Request) {
	if fault := notJSONKind(r); fault != nil {
		fault.Write(w)
		return
	}
	select {
	case g.warmCalls <- struct{}{}:
		defer func() { <-g.warmCalls }()
	default:
		openai.Overloaded(time.Second, "%d prompts are being computed ahead, which is the limit; send the next when one has ended", MaxWarmCalls).Write(w)
		return
	}
	body := g.admission.Body()
	defer body.Release()
	out := edge.NewWriter(w, r, g.options.ClientTimeout)
	c, fault := g.takePrompt(&body, r, out)
	if fault == nil {
		fault = g.admission.Enter(r.Context())
	}
	if fault != nil {
		fault.Write(w)
		return
	}
	defer g.admission.Leave()
	e, fault := g.roster.WarmTarget(c.Model, r.URL.Query().Get("engine"), r.URL.Query().Get("agent"))
	if fault != nil {
		fault.Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.options.PrefillTimeout)
	defer cancel()
	defer g.roster.Computes(e, c)()
	computed, trouble := g.warmer.ComputePrompt(ctx, e, warm.PromptLeg{Path: c.Endpoint, Body: c.Body.With(warm.PromptOnly(c.IsChat())...)})
	out.Renew() // it may have taken longer than an answer usually may
	if trouble != nil && trouble.Withdrawn && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		trouble.Fault = openai.Unavailable("engine %s did not compute it within %v (gateway.prefill_timeout_ms)", e.Name(), g.options.PrefillTimeout)
		trouble.Fault.Status = http.StatusGatewayTimeout
	}
	if trouble != nil {
		trouble.Fault.Write(w)
		return
	}
	g.roster.ComputedAhead(e, c.Prefix, time.Now())
	edge.WriteJSON(w, http.StatusOK, computed)
}

// notJSONKind refuses what is not sent as JSON: a page in a browser can send a form here, but
// no JSON without being asked.
func notJSONKind(r *http.Request) *openai.Error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		return nil
	}
	fault := openai.Invalid("", "send the request as Content-Type: application/json")
	fault.Status = http.StatusUnsupportedMediaType
	return fault
}

// takePrompt reads a request of one prompt, with all that is checked of clients'.
func (g *Gateway) takePrompt(body *budget.Held, r *http.Request, out *edge.Writer) (*request.Request, *openai.Error) {
	if fault := g.beginReading(); fault != nil {
		return nil, fault
	}
	defer g.admission.DoneReading()
	if fault := g.admission.ReadBody(body, r, out); fault != nil {
		return nil, fault
	}
	endpoint := openai.PathCompletions
	if view, isObject := openai.ViewBody(body.Data); isObject && view.Has("messages") {
		endpoint = openai.PathChat
	}
	c, fault := request.Parse(endpoint, body.Data)
	if fault == nil {
		fault = g.resolve(c)
	}
	if fault == nil && c.Whole {
		fault = openai.Invalid("", "one prompt at a time is computed ahead, and nothing is told of its tokens: send several requests")
	}
	return c, fault
}
