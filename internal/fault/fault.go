// Package fault is the error that rooms have: which operation failed, on what,
// why, and what to do.
package fault

import "errors"

// Room is whose errors they are.
type Room interface {
	// Name stands before the text, and lets it end with the hint. Without one,
	// that is left to where the error is shown.
	Name() string
}

// Error says which operation on what failed, why, and what to do. Each room has
// a type of its own, so that errors.As tells them apart.
type Error[R Room] struct {
	Op      string
	Subject string // a key, a file, a peer; empty for none
	Err     error
	Hint    string
}

func (e *Error[R]) Error() string {
	text := e.Op
	if e.Subject != "" {
		text += " " + e.Subject
	}
	text += ": " + e.Err.Error()
	var room R
	if room.Name() == "" {
		return text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return room.Name() + ": " + text
}

func (e *Error[R]) Unwrap() error { return e.Err }

// Hints say what to do about errors, for people.
type Hints []struct {
	Err  error
	Hint string
}

// For is the first hint that fits; empty where nothing can be done.
func (h Hints) For(err error) string {
	for _, known := range h {
		if errors.Is(err, known.Err) {
			return known.Hint
		}
	}
	return ""
}
