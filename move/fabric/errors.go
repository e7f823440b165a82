package fabric

import (
	"errors"
	"fmt"

	"meridian/internal/clip"
	"meridian/internal/fault"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// What can go wrong. Errors of this room wrap one of these.
var (
	ErrUnknownRegion = errors.New("fabric: no such region")
	ErrStaleEpoch    = errors.New("fabric: the region has another epoch")
	ErrOverlap       = errors.New("fabric: the destination names a byte twice")
	ErrLengths       = errors.New("fabric: the two lists have different lengths")
	ErrChecksum      = errors.New("fabric: bytes changed on the way")
	ErrBusy          = errors.New("fabric: queue is full")
	ErrCancelled     = errors.New("fabric: cancelled")
	ErrDeadline      = errors.New("fabric: deadline passed")
	ErrPeerGone      = errors.New("fabric: the peer is gone")
	ErrStalePeer     = errors.New("fabric: another incarnation of the peer answered")
	ErrVersion       = errors.New("fabric: no common version")
	ErrClosed        = errors.New("fabric: closed")
	ErrRefused       = errors.New("fabric: refused by the peer")
	ErrUnsupported   = errors.New("fabric: not supported by this fabric")
	ErrReleased      = errors.New("fabric: the prepared request was released")
	ErrUnconnected   = errors.New("fabric: there is no connection yet")
	ErrUnproven      = errors.New("fabric: the peer has not proven who it is")
)

// Why a grant does not open what a peer asks for.
var (
	ErrNoGrant      = errors.New("fabric: there is no such grant")
	ErrGrantSpans   = errors.New("fabric: the request goes beyond its grant")
	ErrGrantPeer    = errors.New("fabric: the grant is another peer's")
	ErrGrantOp      = errors.New("fabric: the grant is for another operation")
	ErrGrantExpired = errors.New("fabric: the grant has expired")
	ErrGrantRevoked = errors.New("fabric: the grant was revoked")
)

// Error is an error of one operation with one peer. Its hint says what to do,
// where that is more than Hint knows of Err.
type Error = fault.Error[room]

type room struct{}

// Name is none: operations and errors of this room say whose they are, and
// texts stand beside their hints.
func (room) Name() string { return "" }

var hints = fault.Hints{
	{ErrStalePeer, "the peer was started anew; look it up again"},
	{ErrVersion, "run versions of Meridian on both sides that speak a common one"},
	{ErrPeerGone, "see that the peer runs and can be reached from here; `meridian peers` lists those that live"},
	{ErrNoGrant, "ask the owner of the memory for a grant"},
	{ErrGrantExpired, "ask the owner of the memory for another grant"},
	{ErrGrantRevoked, "the owner of the memory took the grant back; ask it for another"},
	{ErrStaleEpoch, "the owner has fenced that memory; load its metadata again"},
	{ErrChecksum, "see to the memory and the network of both machines; nothing of this was reported as done"},
	{ErrBusy, "wait until something that runs has ended, and post again"},
}

// Hint says what to do about an error; empty where nothing can be done.
func Hint(err error) string {
	var e *Error
	for at := err; errors.As(at, &e); at = e.Err {
		if e.Hint != "" {
			return e.Hint
		}
	}
	return hints.For(err)
}

// WithOp says of an error which operation with which peer it ended, unless it
// says so already.
func WithOp(op string, p Peer, err error) error {
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	return &Error{Op: op, Subject: p.Name, Err: err}
}

// sentinels in the order in which ToCode looks for them: an error that wraps
// two has the code of the first.
var sentinels = []struct {
	code mrdn.Code
	err  error
}{
	{mrdn.CodeVersion, ErrVersion},
	{mrdn.CodeStalePeer, ErrStalePeer},
	{mrdn.CodeUnknownRegion, ErrUnknownRegion},
	{mrdn.CodeStaleEpoch, ErrStaleEpoch},
	{mrdn.CodeBounds, mem.ErrBounds},
	{mrdn.CodeOverlap, ErrOverlap},
	{mrdn.CodeChecksum, ErrChecksum},
	{mrdn.CodeBusy, ErrBusy},
	{mrdn.CodeCancelled, ErrCancelled},
	{mrdn.CodeClosed, ErrClosed},
	{mrdn.CodeRefused, ErrRefused},
	{mrdn.CodeBroken, mem.ErrGone},
	{mrdn.CodeNoGrant, ErrNoGrant},
	{mrdn.CodeGrantSpans, ErrGrantSpans},
	{mrdn.CodeGrantPeer, ErrGrantPeer},
	{mrdn.CodeGrantOp, ErrGrantOp},
	{mrdn.CodeGrantExpired, ErrGrantExpired},
	{mrdn.CodeGrantRevoked, ErrGrantRevoked},
	{mrdn.CodeUnproven, ErrUnproven},
}

// MaxTold bounds, in bytes, what is kept of a text that a stranger wrote.
const MaxTold = 1 << 10

// Told is a stranger's text as far as it is kept: at most MaxTold bytes.
func Told(text string) string { return clip.Text(text, MaxTold, "…") }

// FromCode turns what a peer said into an error; OK is nil. Of a long message
// it keeps what Told does.
func FromCode(code mrdn.Code, message string) error {
	if code == mrdn.OK {
		return nil
	}
	sentinel := ErrRefused
	for _, s := range sentinels {
		if s.code == code {
			sentinel = s.err
		}
	}
	if message == "" {
		return sentinel
	}
	return fmt.Errorf("%w: %s", sentinel, Told(message))
}

// ToCode turns an error into what a peer is told, which keeps no more of it than
// Told does.
func ToCode(err error) (mrdn.Code, string) {
	if err == nil {
		return mrdn.OK, ""
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code, Told(err.Error())
		}
	}
	return mrdn.CodeRefused, Told(err.Error())
}
