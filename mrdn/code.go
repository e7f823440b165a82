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
)

var codeNames = [...]string{
	OK: "ok", CodeVersion: "no common version", CodeStalePeer: "another incarnation", CodeUnknownRegion: "unknown region",
	CodeStaleEpoch: "stale epoch", CodeBounds: "out of bounds", CodeOverlap: "overlapping destination",
	CodeChecksum: "checksum mismatch", CodeBusy: "queue full", CodeCancelled: "cancelled", CodeClosed: "closing",
	CodeRefused: "refused", CodeBroken: "memory cannot be reached",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}
