package door

import (
	"fmt"
	"strings"

	"meridian/serve/door/doorpb"
)

// Problem is why the agent refuses something or a hand-off failed.
type Problem struct {
	// Code is a word that programs may look at: one of Codes.
	Code string
	// Message says what was wrong, and Hint what to do.
	Message, Hint string
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("door: %s (%s)", p.Message, p.Code)
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// Codes of what the door itself refuses. Codes has those of hand-offs, too.
const (
	CodeMalformed   = "malformed"
	CodeVersion     = "version"
	CodeOrder       = "order"
	CodeDenied      = "denied"
	CodePresent     = "present"
	CodeTerms       = "terms"
	CodeUnsupported = "unsupported"
	CodeSeal        = "seal"
	CodeSize        = "size"
	CodeBusy        = "busy"
	CodeUnknown     = "unknown"
	CodeLeg         = "leg"
	CodeFenced      = "fenced"
	CodeRequest     = "request"
	CodeGone        = "gone"
	CodeInternal    = "internal"
)

// Codes of the object cache.
const (
	CodeExists      = "exists"
	CodeMissing     = "missing"
	CodeNotReady    = "not_ready"
	CodeTooSmall    = "too_small"
	CodeTooLarge    = "too_large"
	CodeFull        = "full"
	CodeUnavailable = "unavailable"
	CodeStale       = "stale"
	CodeDeadline    = "deadline"
)

// Codes is every code that a Problem may have, and what it means. The table of
// docs/wire.md is this one.
var Codes = []struct{ Code, Means string }{
	{CodeMalformed, "what came cannot be read"},
	{CodeVersion, "no version in common"},
	{CodeOrder, "not now, or not from this connection"},
	{CodeDenied, "not this user, or memory that the kernel keeps from the agent"},
	{CodePresent, "an engine or rank of that name is there"},
	{CodeTerms, "what an engine says of itself cannot be"},
	{"shape", "a geometry or a cut that cannot be"},
	{CodeUnsupported, "a frame, a choice within one or a kind of memory that this agent does not know"},
	{CodeSeal, "a memfd that could change its size, or none"},
	{CodeSize, "memory of another size than was said, or than is needed"},
	{CodeBusy, "a limit is reached"},
	{CodeUnknown, "no such hand-off that runs"},
	{CodeLeg, "no leg of a gateway, or not one for this"},
	{CodeFenced, "the engine is being fenced"},
	{CodeInternal, "a fault of the agent; its log says more"},
	{"ticket", "this is not a ticket"},
	{"forged", "the ticket was not made by this cell"},
	{"expired", "the ticket has expired"},
	{"used", "the ticket was used before"},
	{"taken", "another decode engine is taking this cache"},
	{"elsewhere", "the ticket is for another agent, or another start of it"},
	{"other_model", "the cache is of another model, revision or adapter"},
	{"other_prompt", "the cache is of another prompt"},
	{"other_salt", "the cache has another salt"},
	{"unable", "the other side cannot do this"},
	{"declined", "the agent does not take the offer; decode computes for itself"},
	{"withdrawn", "the prefill engine withdrew its offer"},
	{"cancelled", "the decode engine gave it up"},
	{CodeDeadline, "the deadline passed"},
	{"digest", "the two sides made different plans"},
	{"member", "an agent that is not a member of the engine"},
	{"lapsed", "nothing was heard for too long"},
	{CodeGone, "an agent or a process of the hand-off is gone"},
	{"move", "bytes did not arrive"},
	{"contradiction", "the same thing was said before, otherwise"},
	{"incompatible", "the two caches differ in what cannot be reshaped"},
	{CodeRequest, "blocks or tokens that do not fit the cache"},
	{CodeExists, "an object of that key is there, or is being written"},
	{CodeMissing, "no object of that key"},
	{CodeNotReady, "the object is being written, or was waited for in vain"},
	{CodeTooSmall, "the memory does not hold the object"},
	{CodeTooLarge, "an object of that size fits no owner"},
	{CodeFull, "the owner has no room, and nothing that may leave"},
	{CodeUnavailable, "no owner, or none that answered in time; what changes something may have happened"},
	{CodeStale, "what was being written is not stored: its time was over, or its bytes changed on the way"},
}

// maxProblemBytes bounds each text of a problem: a peer may have written it.
const maxProblemBytes = 1 << 10

// ProblemMessage is a problem as the door has it; of nil it is the empty one. It
// can always be written: texts that other machines wrote are cut, and what is no
// UTF-8 in them is replaced.
func ProblemMessage(p *Problem) *doorpb.Problem {
	if p == nil {
		return &doorpb.Problem{}
	}
	return &doorpb.Problem{Code: writable(p.Code), Message: writable(p.Message), Hint: writable(p.Hint)}
}

func writable(text string) string {
	if len(text) > maxProblemBytes {
		text = text[:maxProblemBytes]
	}
	return strings.ToValidUTF8(text, "?")
}

func problemOf(p *doorpb.Problem) *Problem {
	if p.GetCode() == "" {
		return nil
	}
	return &Problem{Code: p.GetCode(), Message: p.GetMessage(), Hint: p.GetHint()}
}
