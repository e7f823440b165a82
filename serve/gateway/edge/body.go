package edge

import (
	"errors"
	"net/http"
	"time"

	"meridian/internal/budget"
	"meridian/serve/openai"
)

// ReadBody reads what a client sends, within its time and size. Whatever it
// returns, body.Release gives back what was held.
func (a *Admission) ReadBody(body *budget.Held, r *http.Request, out *Writer) *openai.Error {
	_ = out.control.SetReadDeadline(time.Now().Add(a.bodyTime)) // a recorder in a test has none
	if err := body.Fill(http.MaxBytesReader(out.To, r.Body, a.most), r.ContentLength, a.most); err != nil {
		return a.unreadable(err)
	}
	_ = out.control.SetReadDeadline(time.Time{}) // from here on only its going away is of interest
	return nil
}

func (a *Admission) unreadable(err error) *openai.Error {
	if errors.Is(err, budget.ErrSpent) {
		return openai.Overloaded(time.Second, "the gateway is full: requests of %d bytes are inside", a.bodies.Limit)
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
