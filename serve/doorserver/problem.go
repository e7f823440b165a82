package doorserver

import (
	"errors"
	"fmt"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

func busy(message string) *door.Problem {
	return &door.Problem{Code: door.CodeBusy, Message: message, Hint: "end some of them, or raise the limit"}
}

func problem(code, format string, args ...any) *door.Problem {
	return &door.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// codes are for why hand-offs are refused or fail; what is not among them is
// internal.
var codes = []struct {
	err  error
	code string
}{
	{handoff.ErrTicket, "ticket"},
	{handoff.ErrForged, "forged"},
	{handoff.ErrExpired, "expired"},
	{handoff.ErrUsed, "used"},
	{handoff.ErrTaken, "taken"},
	{handoff.ErrElsewhere, "elsewhere"},
	{handoff.ErrOtherModel, "other_model"},
	{handoff.ErrOtherPrompt, "other_prompt"},
	{handoff.ErrOtherSalt, "other_salt"},
	{handoff.ErrVersion, door.CodeVersion},
	{handoff.ErrUnable, "unable"},
	{handoff.ErrDeclined, "declined"},
	{handoff.ErrWithdrawn, "withdrawn"},
	{handoff.ErrCancelled, "cancelled"},
	{handoff.ErrDeadline, "deadline"},
	{handoff.ErrDigest, "digest"},
	{handoff.ErrTerms, door.CodeTerms},
	{handoff.ErrMember, "member"},
	{handoff.ErrLapsed, "lapsed"},
	{handoff.ErrGone, door.CodeGone},
	{handoff.ErrMove, "move"},
	{handoff.ErrContradiction, "contradiction"},
	{reshard.ErrIncompatible, "incompatible"},
	{reshard.ErrRequest, door.CodeRequest},
	{kv.ErrShape, "shape"},
	{mem.ErrGone, door.CodeGone},
	{mem.ErrBounds, door.CodeSize},
	{trust.ErrProof, door.CodeLeg},
	{transceiver.ErrClosed, door.CodeFenced},
	{door.ErrFrame, door.CodeMalformed},
}

// problemOf finds the code of an error; nil is no problem.
func problemOf(err error) *door.Problem {
	if err == nil {
		return nil
	}
	var told *door.Problem
	if errors.As(err, &told) {
		return told
	}
	for _, w := range codes {
		if errors.Is(err, w.err) {
			return &door.Problem{Code: w.code, Message: err.Error()}
		}
	}
	return &door.Problem{Code: door.CodeInternal, Message: err.Error()}
}

// orProblem is the problem that an error is, or one of this code.
func orProblem(err error, code string) *door.Problem {
	var told *door.Problem
	if errors.As(err, &told) {
		return told
	}
	return &door.Problem{Code: code, Message: err.Error()}
}

// replyFrame answers a request.
func replyFrame(request uint64, p *door.Problem) []byte {
	m := &doorpb.Reply{Request: request}
	if p != nil {
		m.Problem = door.ProblemMessage(p)
	}
	return frame(doorpb.FrameType_FRAME_TYPE_REPLY, m)
}
