package doorserver

import (
	"context"
	"time"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// PrefixCache is where prefixes go that engines keep, and come from that they find. Its
// calls end soon after their contexts do.
type PrefixCache interface {
	// Join lets an engine keep and find from now on. After an error it goes on
	// without: its cache cannot be kept.
	Join(engine string, side reshard.Side) error
	Leave(engine string)
	// Keep lets a prefix be kept, and does not wait. After an error the blocks are
	// the engine's; else Relay.Events hears once that they are freed, as of an offer.
	Keep(ctx context.Context, k Prefix) error
	// CancelKeep ends a Keep: its blocks are freed as soon as nothing reads them.
	CancelKeep(transfer kv.ID)
	// Find looks for the longest run of a prefix. Who does not use its tickets
	// declines them.
	Find(ctx context.Context, w Wanted) (Run, error)
}

// Prefix is what an engine lets be kept.
type Prefix struct {
	Engine   string
	Request  string // what the engine calls the request, of any length
	Tenant   string // whose request it is, by its leg; empty: the engine's own
	Transfer kv.ID
	Content  handoff.Content
	Holding  reshard.Holding
}

// Wanted is what an engine looks for.
type Wanted struct {
	Engine  string
	Request string // what the engine calls the request, of any length
	Tenant  string // as Prefix has it
	Content handoff.Content
	// Present is how many of the first tokens the engine has already.
	Present int
	// TokenTime is what computing one takes it; 0: not known.
	TokenTime time.Duration
}

// Run is what was found: from the first token on, in segments that follow one
// another. No tokens: compute them.
type Run struct {
	Tokens   int
	Segments []Segment
	Reason   string // why there are not more
}

// Segment is tokens of one holder, from whom a hand-off of its own brings them.
type Segment struct {
	Ticket     []byte
	Start, End int
}
