package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"meridian/serve/openai"
)

// Move is how a running request leaves for another engine: its answer ends after some token,
// as openai.FinishMoved, and what is computed of prompt and answer is offered. The engine that
// gets the ticket, the prompt, and the answer so far to resume after goes on exactly there.
type Move struct {
	// Transfer is what is offered under, and what the request is called when it is asked to
	// move: only the gateway that sent it can know.
	Transfer [16]byte
	// Leg is what a gateway sealed, for the agent that takes the offer.
	Leg []byte
	// AtToken: it leaves right after this token. nil: no token makes it.
	AtToken *uint32
	// After: it leaves when the answer has so many tokens, or more. 0: no number makes it.
	After int
}

// leavesAfter tells whether a request moves now that its answer has a token more. Tokens that
// it resumes after do not ask.
func (q *request) leavesAfter(token uint32, answered int) bool {
	m := q.Move
	return m != nil && (m.AtToken != nil && *m.AtToken == token || m.After > 0 && answered >= m.After)
}

// ErrNotRunning means that no request runs that could be asked to move by that id.
var ErrNotRunning = fmt.Errorf("%w: no request runs here that moves under this transfer", ErrInvalid)

// MoveAway asks the request whose Move has this transfer to leave with its next token.
func (e *Engine) MoveAway(ctx context.Context, transfer [16]byte) error {
	found := make(chan bool, 1)
	e.post(func() { found <- e.moveAway(transfer) })
	select {
	case ok := <-found:
		if !ok {
			return ErrNotRunning
		}
		return nil
	case <-e.loopDone:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) moveAway(transfer [16]byte) bool {
	for q := range e.requests {
		if q.Move != nil && q.Move.Transfer == transfer && q.open > 0 {
			q.leaves = true
			return true
		}
	}
	return false
}

// serveMove answers as soon as the request has been asked: that it has moved, its own answer
// tells.
func (e *Engine) serveMove(w http.ResponseWriter, r *http.Request) {
	var in openai.Move
	if problem := e.read(w, r, &in); problem != nil {
		problem.Write(w)
		return
	}
	transfer, problem := transferID("transfer", "transfer", in.Transfer)
	if problem != nil {
		problem.Write(w)
		return
	}
	if err := e.MoveAway(r.Context(), transfer); err != nil {
		problem := problemOf(err)
		if errors.Is(err, ErrNotRunning) {
			problem.Type, problem.Status = openai.TypeNotFound, http.StatusNotFound
		}
		problem.Write(w)
		return
	}
	writeJSON(w, map[string]bool{"moves": true})
}
