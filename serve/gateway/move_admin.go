package gateway

import (
	"net/http"

	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// moveRequest asks a running request to leave its engine for another. The answer says for
// which; whether it came there, the request's record tells.
func (g *Gateway) moveRequest(w http.ResponseWriter, r *http.Request) {
	fault := notJSONKind(r)
	if fault != nil {
		fault.Write(w)
		return
	}
	d := g.moves.Of(r.PathValue("id"))
	if d == nil {
		fault = openai.Invalid("", "no request %.64q runs that could leave its engine: only streams do that could go on exactly with another, and not more often than %d times", r.PathValue("id"), lifecycle.MaxMoves)
		fault.Type, fault.Status = openai.TypeNotFound, http.StatusNotFound
		fault.Write(w)
		return
	}
	order, asked := g.moves.Ask(d, lifecycle.ByOperator)
	if !asked {
		fault = openai.Invalid("", "there is no other engine that could go on with it")
		fault.Status = http.StatusConflict
		fault.Write(w)
		return
	}
	edge.WriteJSON(w, http.StatusAccepted, map[string]any{
		"request": d.ID, "from": d.Engine.Name(), "to": g.roster.Name(order.To), "why": lifecycle.MoveReasons[order.Why], "placement": order.Placement.String(),
	})
}
