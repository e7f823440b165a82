package doorserver

import (
	"errors"
	"fmt"

	"meridian/door"
	"meridian/door/doorpb"
	"meridian/kv"
	"meridian/mem"
	"meridian/reshard"
	"meridian/transceiver"
	"meridian/transceiver/handoff"
	"meridian/trust"
)

// Codes of the door's own. Those of hand-offs are in words.
const (
	codeMalformed   = "malformed"   // what came cannot be read
	codeVersion     = "version"     // no version in common
	codeOrder       = "order"       // not now, or not from this connection
	codeDenied      = "denied"      // this user's engines may not come
	codePresent     = "present"     // an engine or rank of that name is there
	codeTerms       = "terms"       // what an engine says of itself cannot be
	codeUnsupported = "unsupported" // a kind of memory that this agent does not take
	codeSeal        = "seal"        // a memfd that could change its size, or none
	codeSize        = "size"        // memory of another size than was said, or than is needed
	codeBusy        = "busy"        // a limit is reached
	codeUnknown     = "unknown"     // no such transfer here
	codeLeg         = "leg"         // no leg of a gateway, or not one for this
	codeFenced      = "fenced"      // the engine is being fenced
	codeInternal    = "internal"
)

func busy(message string) *door.Problem {
	return &door.Problem{Code: codeBusy, Message: message, Hint: "end some of them, or raise the limit"}
}

func problem(code, format string, args ...any) *door.Problem {
	return &door.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// words are the codes for why hand-offs are refused or fail.
var words = []struct {
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
	{handoff.ErrVersion, "version"},
	{handoff.ErrUnable, "unable"},
	{handoff.ErrDeclined, "declined"},
	{handoff.ErrWithdrawn, "withdrawn"},
	{handoff.ErrCancelled, "cancelled"},
	{handoff.ErrDeadline, "deadline"},
	{handoff.ErrDigest, "digest"},
	{handoff.ErrTerms, "terms"},
	{handoff.ErrMember, "member"},
	{handoff.ErrLapsed, "lapsed"},
	{handoff.ErrGone, "gone"},
	{handoff.ErrMove, "move"},
	{handoff.ErrContradiction, "contradiction"},
	{reshard.ErrIncompatible, "incompatible"},
	{reshard.ErrRequest, "request"},
	{kv.ErrShape, "shape"},
	{mem.ErrGone, "gone"},
	{mem.ErrBounds, codeSize},
	{trust.ErrProof, codeLeg},
	{transceiver.ErrClosed, codeFenced},
	{door.ErrFrame, codeMalformed},
}

// problemOf puts an error into words; nil is none.
func problemOf(err error) *door.Problem {
	if err == nil {
		return nil
	}
	for _, w := range words {
		if errors.Is(err, w.err) {
			return &door.Problem{Code: w.code, Message: err.Error()}
		}
	}
	return &door.Problem{Code: codeInternal, Message: err.Error()}
}

func problemMessage(p *door.Problem) *doorpb.Problem {
	return &doorpb.Problem{Code: p.Code, Message: p.Message, Hint: p.Hint}
}

// replyFrame answers a request.
func replyFrame(request uint64, p *door.Problem) []byte {
	m := &doorpb.Reply{Request: request}
	if p != nil {
		m.Problem = problemMessage(p)
	}
	return frame(doorpb.FrameType_FRAME_TYPE_REPLY, m)
}
