package protocol

import (
	"errors"
	"fmt"

	"meridian/internal/clip"
	"meridian/internal/fields"
	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
)

// What can come of a request besides what owner and master say.
var (
	// ErrUnavailable means that no owner or master answered in time. A put or a
	// remove may have happened.
	ErrUnavailable = errors.New("store: no answer in time")
	// ErrTooSmall means that the buffer does not hold the object.
	ErrTooSmall = errors.New("store: the buffer is smaller than the object")
	// ErrRefused means that a peer may not ask that, or not so.
	ErrRefused = errors.New("store: refused")
	// ErrMessage means that bytes are no message.
	ErrMessage = errors.New("store: bad message")
)

// problems are the errors that travel, by their number. A number keeps its meaning.
var problems = []error{
	1:  owner.ErrExists,
	2:  owner.ErrBusy,
	3:  owner.ErrCollision,
	4:  owner.ErrMissing,
	5:  owner.ErrFull,
	6:  owner.ErrTooLarge,
	7:  owner.ErrStale,
	8:  master.ErrTaken,
	9:  master.ErrUnsettled,
	10: master.ErrSilent,
	11: master.ErrOldTerm,
	12: ErrUnavailable,
	13: ErrTooSmall,
	14: ErrRefused,
	15: ErrName,
	16: master.ErrMissing,
	17: errTorn,
	18: master.ErrCrowded,
	19: arena.ErrTorn,
	20: owner.ErrOverloaded,
	21: errNotReady,
}

// errTorn is an object that is missing because its bytes were found to be broken.
var errTorn = fmt.Errorf("%w: %w", owner.ErrMissing, arena.ErrTorn)

// errNotReady is an object that is missing because it is still being written.
var errNotReady = fmt.Errorf("%w: %w", owner.ErrMissing, owner.ErrBusy)

const maxProblem = 256

// Problem is an error that came from another process. The zero value is none.
type Problem struct {
	Code uint8
	Text string
}

// problemOf makes an error ready to travel.
func problemOf(err error) Problem {
	if err == nil {
		return Problem{}
	}
	if errors.Is(err, arena.ErrTorn) && errors.Is(err, owner.ErrMissing) {
		return Problem{17, clip.Text(err.Error(), maxProblem, "…")}
	}
	if errors.Is(err, errNotReady) {
		return Problem{21, clip.Text(err.Error(), maxProblem, "…")}
	}
	for code, known := range problems {
		if known != nil && errors.Is(err, known) {
			return Problem{uint8(code), clip.Text(err.Error(), maxProblem, "…")}
		}
	}
	return Problem{14, clip.Text(err.Error(), maxProblem, "…")}
}

// Refuse is the answer of a shell that cannot let its machine take a request.
func Refuse(err error) *Reply { return &Reply{problemOf(err)} }

// Err is the error, for errors.Is; nil if there is none.
func (p Problem) Err() error {
	if p.Code == 0 {
		return nil
	}
	if int(p.Code) >= len(problems) {
		return fmt.Errorf("%w: %s", ErrRefused, p.Text)
	}
	return &remoteError{problems[p.Code], p.Text}
}

// remoteError reads as its sender wrote it, and is what it was there.
type remoteError struct {
	is   error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func (p *Problem) each(c fields.Codec) {
	c.U8(&p.Code)
	c.Text(maxProblem, &p.Text)
}
