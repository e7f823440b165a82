package handoff

import (
	"errors"
	"fmt"
	"slices"

	"meridian/internal/clip"
	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// Why a ticket is refused.
var (
	ErrTicket      = errors.New("handoff: this is not a ticket")
	ErrForged      = errors.New("handoff: the ticket was not made by this cell")
	ErrExpired     = errors.New("handoff: the ticket has expired")
	ErrUsed        = errors.New("handoff: the ticket was used before")
	ErrTaken       = errors.New("handoff: another decode engine is taking this cache")
	ErrElsewhere   = errors.New("handoff: the ticket is for another agent, or another start of it")
	ErrOtherModel  = errors.New("handoff: the cache is of another model, revision or adapter")
	ErrOtherPrompt = errors.New("handoff: the cache is of another prompt")
	ErrOtherSalt   = errors.New("handoff: the cache has another salt")
)

// Why a hand-off fails.
var (
	ErrVersion       = errors.New("handoff: no common version")
	ErrUnable        = errors.New("handoff: the other side cannot do this")
	ErrDeclined      = errors.New("handoff: declined")
	ErrWithdrawn     = errors.New("handoff: the prefill engine withdrew its offer")
	ErrCancelled     = errors.New("handoff: cancelled")
	ErrDeadline      = errors.New("handoff: the deadline passed")
	ErrDigest        = errors.New("handoff: the two sides made different plans")
	ErrTerms         = errors.New("handoff: what the other side says of itself cannot be")
	ErrMember        = errors.New("handoff: not a member of this engine")
	ErrLapsed        = errors.New("handoff: nothing was heard for too long")
	ErrGone          = errors.New("handoff: an agent of the hand-off is gone")
	ErrMove          = errors.New("handoff: bytes did not arrive")
	ErrContradiction = errors.New("handoff: contradictory results")
)

// Code says across the wire why something failed. The numbers never change.
type Code uint8

var errorOf = [...]error{
	1: ErrTicket, 2: ErrForged, 3: ErrExpired, 4: ErrUsed, 5: ErrTaken, 6: ErrElsewhere, 7: ErrOtherModel, 8: ErrOtherPrompt,
	9: ErrOtherSalt, 10: ErrVersion, 11: ErrUnable, 12: ErrDeclined, 13: ErrWithdrawn, 14: ErrCancelled, 15: ErrDeadline,
	16: ErrDigest, 17: ErrTerms, 18: ErrMember, 19: ErrLapsed, 20: ErrGone, 21: ErrMove, 22: ErrContradiction,
	23: reshard.ErrIncompatible, 24: reshard.ErrRequest, 25: kv.ErrShape,
}

// Problem is why something failed, in a form that can be sent; the zero Problem
// is none.
type Problem struct {
	Code Code
	Text string
	// Differences go with reshard.ErrIncompatible.
	Differences []reshard.Difference
}

// Limits on a problem's words. A message may bring maxDifferences of four texts;
// what is kept of it, perhaps for thousands of hand-offs, is a text and
// differences of maxProblemText each.
const (
	maxProblemText = 1 << 10
	maxDifferences = 1 << 6
)

// ProblemOf turns an error into a Problem; nil is none.
func ProblemOf(err error) Problem {
	if err == nil {
		return Problem{}
	}
	p := Problem{Text: err.Error()}
	for code, sentinel := range errorOf {
		if sentinel != nil && errors.Is(err, sentinel) {
			p.Code = Code(code)
			break
		}
	}
	if p.Code == 0 {
		p.Code = codeOf(ErrMove)
	}
	var unfit *reshard.Incompatible
	if errors.As(err, &unfit) {
		p.Differences = unfit.Differences
	}
	p.cut()
	return p
}

// cut bounds what the problem holds. The text names the differences too, so none
// is lost that is not lost there.
func (p *Problem) cut() {
	p.Text = clip.Text(p.Text, maxProblemText, "")
	left := maxProblemText
	for i, d := range p.Differences {
		if left -= len(d.Field) + len(d.Src) + len(d.Dst) + len(d.Why); left < 0 || i == maxDifferences {
			p.Differences = slices.Clone(p.Differences[:i])
			return
		}
	}
}

func codeOf(sentinel error) Code {
	for code, e := range errorOf {
		if e == sentinel {
			return Code(code)
		}
	}
	return 0
}

// None reports whether nothing is wrong.
func (p Problem) None() bool { return p.Code == 0 }

// Err is the problem as an error that errors.Is knows; nil for none.
func (p Problem) Err() error {
	switch {
	case p.None():
		return nil
	case len(p.Differences) > 0:
		return &reshard.Incompatible{Differences: p.Differences}
	case int(p.Code) >= len(errorOf) || errorOf[p.Code] == nil:
		return fmt.Errorf("%w: %s", ErrUnable, p.Text)
	}
	return &remoteError{errorOf[p.Code], p.Text}
}

// remoteError is an error that another machine put into words; its text begins with
// the sentinel's already.
type remoteError struct {
	sentinel error
	text     string
}

func (e *remoteError) Error() string {
	if e.text == "" {
		return e.sentinel.Error()
	}
	return e.text
}

func (e *remoteError) Unwrap() error { return e.sentinel }

func (p *Problem) each(c fields.Codec) {
	if fields.Enum(c, &p.Code); p.None() {
		return
	}
	c.Text(maxProblemText, &p.Text)
	fields.List(c, maxDifferences, &p.Differences, func(d *reshard.Difference) {
		c.Text(maxProblemText, &d.Field, &d.Src, &d.Dst, &d.Why)
	})
	if c.Reads() {
		p.cut()
	}
}
