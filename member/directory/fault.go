package directory

import (
	"context"
	"errors"
	"strings"
)

// What can go wrong. Every error of a Directory is an *Error that wraps one of
// these, the error of the caller's context, or a reason of the backend's own.
var (
	ErrNotFound    = errors.New("no such record")
	ErrExists      = errors.New("the record already exists")
	ErrChanged     = errors.New("the record has changed")
	ErrUnavailable = errors.New("the directory does not answer")
	ErrFull        = errors.New("the directory is full")
	ErrLeaseLost   = errors.New("the lease is lost")
	ErrDeposed     = errors.New("the record that the write depends on is gone, or another")
	ErrClosed      = errors.New("the directory is closed")
	ErrInvalid     = errors.New("invalid argument")
	// ErrCompacted is between a Backend and its Watch; consumers see a Resync.
	ErrCompacted = errors.New("the directory does not remember that revision")
)

// Error says which operation on which key failed, why, and what to do.
type Error struct {
	Op   string
	Key  string
	Err  error
	Hint string
}

func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("meta: " + e.Op)
	if e.Key != "" {
		text.WriteString(" " + e.Key)
	}
	text.WriteString(": " + e.Err.Error())
	if e.Hint != "" {
		text.WriteString(" (" + e.Hint + ")")
	}
	return text.String()
}

func (e *Error) Unwrap() error { return e.Err }

// reason pairs a sentinel with what the backend said about it.
type reason struct{ sentinel, cause error }

func (r *reason) Error() string   { return r.sentinel.Error() + ": " + r.cause.Error() }
func (r *reason) Unwrap() []error { return []error{r.sentinel, r.cause} }

// Because wraps a sentinel with its cause: both are found by errors.Is.
func Because(sentinel, cause error) error { return &reason{sentinel, cause} }

func invalid(op, key, problem, hint string) error {
	return &Error{Op: op, Key: key, Err: Because(ErrInvalid, errors.New(problem)), Hint: hint}
}

// fault dresses what came out of a call. It tells the caller's own context
// apart from the bound that this room puts on every wait.
func (d *directory) fault(ctx context.Context, op, key string, err error) error {
	var dressed *Error
	switch {
	case err == nil || errors.As(err, &dressed):
		return err
	case ctx.Err() != nil:
		return &Error{Op: op, Key: key, Err: context.Cause(ctx), Hint: inDoubt(op, "given up by the caller")}
	case d.life.Err() != nil:
		return &Error{Op: op, Key: key, Err: ErrClosed}
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		err = Because(ErrUnavailable, errors.New("no answer within "+d.options.CallTimeout.String()))
	}
	return &Error{Op: op, Key: key, Err: err, Hint: hintFor(op, err)}
}

// inDoubt warns a writer who cannot know whether the write was applied.
func inDoubt(op, hint string) string {
	switch op {
	case "create", "put", "swap", "delete":
		return hint + "; the write is in doubt"
	}
	return hint
}

func hintFor(op string, err error) string {
	switch {
	case errors.Is(err, ErrUnavailable):
		return inDoubt(op, "is it running, and are its endpoints right?")
	case errors.Is(err, ErrExists):
		return "swap it at its revision, or choose another key"
	case errors.Is(err, ErrChanged):
		return "read it again and swap at its new revision"
	case errors.Is(err, ErrLeaseLost):
		return "grant a new lease"
	case errors.Is(err, ErrFull):
		return "delete records, or give the directory a larger quota"
	}
	return ""
}
