package gateway

import (
	"errors"
	"net/http"
	"time"

	"meridian/internal/budget"
	"meridian/serve/openai"
)

// readBody reads what a client sends, within its time and size. Whatever it
// returns, body.release gives back what was held.
func (g *Gateway) readBody(body *budget.Held, r *http.Request, out *client) *openai.Error {
	_ = out.control.SetReadDeadline(time.Now().Add(g.options.BodyTimeout)) // a recorder in a test has none
	most := g.options.MaxBodyBytes
	if err := body.Fill(http.MaxBytesReader(out.to, r.Body, most), r.ContentLength, most); err != nil {
		return g.unreadable(err)
	}
	_ = out.control.SetReadDeadline(time.Time{}) // from here on only its going away is of interest
	return nil
}

func (g *Gateway) unreadable(err error) *openai.Error {
	if errors.Is(err, budget.ErrSpent) {
		return openai.Overloaded(time.Second, "the gateway is full: requests of %d bytes are inside", g.admission.bodies.Limit)
	}
	fault := openai.Invalid("", "the body could not be read: %v", err)
	fault.Status = http.StatusRequestTimeout
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		fault = openai.Invalid("", "the body has more than %d bytes", tooLarge.Limit)
		fault.Status = http.StatusRequestEntityTooLarge
	}
	return fault
}
