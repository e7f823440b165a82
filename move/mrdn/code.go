package mrdn

import "fmt"

// Code says across the wire why something was refused. The numbers never
// change; docs/wire.md lists them.
type Code uint16

// The codes.
const (
	OK Code = iota
	CodeVersion
	CodeStalePeer
	CodeUnknownRegion
	CodeStaleEpoch
	CodeBounds
	CodeOverlap
	CodeChecksum
	CodeBusy
	CodeCancelled
	CodeClosed
	CodeRefused
	CodeBroken
	CodeNoGrant
	CodeGrantSpans
	CodeGrantPeer
	CodeGrantOp
	CodeGrantExpired
	CodeGrantRevoked
	CodeUnproven
)

var codeNames = [...]string{
	OK: "ok", CodeVersion: "no common version", CodeStalePeer: "another incarnation", CodeUnknownRegion: "unknown region",
	CodeStaleEpoch: "stale epoch", CodeBounds: "out of bounds", CodeOverlap: "overlapping destination",
	CodeChecksum: "checksum mismatch", CodeBusy: "queue full", CodeCancelled: "cancelled", CodeClosed: "closing",
	CodeRefused: "refused", CodeBroken: "memory cannot be reached",
	CodeNoGrant: "no grant", CodeGrantSpans: "beyond its grant", CodeGrantPeer: "another's grant", CodeGrantOp: "not what it was granted for",
	CodeGrantExpired: "grant expired", CodeGrantRevoked: "grant revoked", CodeUnproven: "not proven",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}
