package protocol

import (
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// Effect is what a machine wants to be done. Each says which event answers it.
type Effect interface{ effect() }

// Send delivers a message, or not.
type Send struct {
	To      kv.Member
	Request uint64
	Message Message
}

// Grant opens the bytes of a reservation to a writer: Server.Granted.
type Grant struct {
	Write  uint64
	To     kv.Member
	Offset uint64 // in the arena
	Bytes  uint64
	For    kv.Instant
}

// Revoke takes a grant back: Server.Revoked, when nothing writes under it any more.
type Revoke struct {
	Write uint64
	Grant kv.ID
}

// Seal sums the bytes of a reservation, after copying Data there if it has any:
// Server.Sealed.
type Seal struct {
	Write uint64
	Plan  owner.Plan
	Data  []byte
}

// Fetch copies the bytes of a reservation out of its writer's memory, and sums them:
// Server.Fetched. Nothing may write to the reservation after that.
type Fetch struct {
	Write  uint64
	From   kv.Member
	Plan   owner.Plan
	Source Span
	For    kv.Instant
}

// Deliver takes an object to its reader, with a Value as the answer to Request: in
// the message, or into Landing: Server.Delivered. Nothing may read the object after that.
type Deliver struct {
	Read     owner.LeaseID
	To       kv.Member
	Request  uint64
	Location owner.Location
	Inline   bool
	Landing  Span
	For      kv.Instant
}

// Verify sums an object that a reader calls broken, where it lies: Server.Looked.
// Nothing may read the object after that.
type Verify struct {
	Read     owner.LeaseID
	To       kv.Member
	Request  uint64
	Location owner.Location
}

// Mark writes down for other masters whether an owner is away:
// Coordinator.Marked.
type Mark struct{ master.Effect }

// Continue wants to go on with what takes longer than one event may, after events that came
// meanwhile: Server.Continue.
type Continue struct{}

func (Continue) effect() {}
func (Send) effect()     {}
func (Grant) effect()    {}
func (Revoke) effect()   {}
func (Seal) effect()     {}
func (Fetch) effect()    {}
func (Deliver) effect()  {}
func (Verify) effect()   {}
func (Mark) effect()     {}
