// Package door is the engine door as an engine sees it: the frames, and a client
// that registers an engine with the agent of its host and keeps it registered.
//
//	engine process                                agent's process
//	┌────────────────────────────┐                ┌─────────────┐
//	│ scheduler ──► control ═════╪═ Unix socket ══╪═► its door  │
//	│ rank 0 memory ─► rank 0 ═══╪═ + memfd ══════╪═►           │
//	│ rank 1 memory ─► rank 1 ═══╪════════════════╪═►           │
//	└────────────────────────────┘                └─────────────┘
//
//	         Open                 Serving                  connection lost
//	(none) ───────► registering ───────────► serving ─────────────────────┐
//	                     ▲                                Failed, Freed of all, Fenced
//	                     └──── with backoff ◄─────────────────────────────┘
//
// The end of a connection means that its memory is quiet: the agent ends one
// only then, and a dead agent touches nothing.
package door

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
)

// MaxFrameBytes bounds a frame's type and message.
const MaxFrameBytes = 16 << 20

// Socket is where the agent of that name opens its door.
func Socket(stateDir, agentName string) string {
	return filepath.Join(stateDir, "door-"+agentName+".sock")
}

var (
	// ErrClosed means that the client is closing or closed.
	ErrClosed = errors.New("door: closed")
	// ErrLost means that the connection to the agent ended before it answered.
	ErrLost = errors.New("door: the agent is gone")
	// ErrNotServing means that the engine is not registered, or not all of its
	// ranks are.
	ErrNotServing = errors.New("door: the engine is not serving")
)

// IsPromise tells a gateway's promise from a ticket: what it is for may still have
// to be computed. Agents make tickets of promises; to engines both are opaque.
func IsPromise(ticket []byte) bool { return bytes.HasPrefix(ticket, []byte("MRDP")) }

// Cancel names what is not wanted any more: exactly one of its fields is set.
type Cancel struct {
	Offered  [16]byte // an offer to withdraw
	Accepted [16]byte // an accept to cancel
	Ticket   []byte   // a ticket that will not be used
}

// EventKind is what has happened.
type EventKind uint8

// The kinds. Of an accept: Ready once, or Failed once and then Freed once. Of an
// offer: Freed once.
const (
	// Serving: the engine is complete; offers and accepts are taken.
	Serving EventKind = iota + 1
	// Ready: an accepted cache is there, every byte checked.
	Ready
	// Failed: an accepted cache will not come. The blocks come back with Freed.
	Failed
	// Freed: the blocks are the engine's again.
	Freed
	// Fenced: the engine does not serve until it has registered anew, which the
	// client does by itself.
	Fenced
)

var eventNames = [...]string{Serving: "serving", Ready: "ready", Failed: "failed", Freed: "freed", Fenced: "fenced"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is one thing that has happened.
type Event struct {
	Kind     EventKind
	Transfer [16]byte
	// Accepted: of an accept; else of an offer.
	Accepted bool
	// Problem says why; nil where all went well.
	Problem *Problem
}
