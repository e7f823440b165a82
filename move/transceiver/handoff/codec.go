package handoff

import (
	"errors"
	"fmt"

	"meridian/internal/fields"
)

// ErrMessage means that bytes from a peer are no message.
var ErrMessage = errors.New("handoff: bad message")

// whole demands that nothing of a message is left and nothing was missing.
func whole(r *fields.Reader, what string) error {
	if !r.End() {
		return fmt.Errorf("%w: %s", ErrMessage, what)
	}
	return nil
}
