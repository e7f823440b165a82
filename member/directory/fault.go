package directory

import (
	"context"
	"errors"
	"fmt"

	"meridian/internal/fault"
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
type Error = fault.Error[room]

type room struct{}

// Name is the one that users know from logs.
func (room) Name() string { return "meta" }

// Because wraps a sentinel with its cause: both are found by errors.Is.
func Because(sentinel, cause error) error { return fmt.Errorf("%w: %w", sentinel, cause) }

func invalid(op, key, problem, hint string) error {
	return &Error{Op: op, Subject: key, Err: Because(ErrInvalid, errors.New(problem)), Hint: hint}
}

// fault dresses what came out of a call. It tells the caller's own context
// apart from the bound that this room puts on every wait.
func (d *directory) fault(ctx context.Context, op, key string, err error) error {
	var dressed *Error
	switch {
	case err == nil || errors.As(err, &dressed):
		return err
	case ctx.Err() != nil:
		return &Error{Op: op, Subject: key, Err: context.Cause(ctx), Hint: inDoubt(op, "given up by the caller")}
	case d.life.Err() != nil:
		return &Error{Op: op, Subject: key, Err: ErrClosed}
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		err = Because(ErrUnavailable, errors.New("no answer within "+d.options.CallTimeout.String()))
	}
	return &Error{Op: op, Subject: key, Err: err, Hint: hintFor(op, err)}
}

// inDoubt warns a writer who cannot know whether the write was applied.
func inDoubt(op, hint string) string {
	switch op {
	case "create", "put", "swap", "delete":
		return hint + "; the write is in doubt"
	}
	return hint
}

var hints = fault.Hints{
	{ErrUnavailable, "is it running, and are its endpoints right?"},
	{ErrExists, "swap it at its revision, or choose another key"},
	{ErrChanged, "read it again and swap at its new revision"},
	{ErrLeaseLost, "grant a new lease"},
	{ErrFull, "delete records, or give the directory a larger quota"},
}

func hintFor(op string, err error) string {
	hint := hints.For(err)
	if errors.Is(err, ErrUnavailable) {
		return inDoubt(op, hint)
	}
	return hint
}
