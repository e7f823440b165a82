package doorstore

import (
	"context"

	"meridian/internal/clip"
	"meridian/keep/prefix"
	"meridian/kv"
	"meridian/move/reshard"
	"meridian/serve/doorserver"
)

// maxRequestID is how much counts of what an engine calls a request.
const maxRequestID = 128

// Prefixes are what engines keep and find, as the door reaches it.
type Prefixes struct{ Cache *prefix.Cache }

func (p Prefixes) Join(engine string, side reshard.Side) error { return p.Cache.Join(engine, side) }
func (p Prefixes) Leave(engine string)                         { p.Cache.Leave(engine) }

func (p Prefixes) Keep(ctx context.Context, k doorserver.Prefix) error {
	return p.Cache.Keep(ctx, prefix.Keep{Engine: k.Engine, Tenant: k.Tenant, Request: clip.Text(k.Request, maxRequestID, ""), Transfer: k.Transfer, Content: k.Content, Holding: k.Holding})
}

func (p Prefixes) CancelKeep(transfer kv.ID) { p.Cache.CancelKeep(transfer) }

func (p Prefixes) Find(ctx context.Context, w doorserver.Wanted) (doorserver.Run, error) {
	found, err := p.Cache.Find(ctx, prefix.Find{Engine: w.Engine, Tenant: w.Tenant, Request: clip.Text(w.Request, maxRequestID, ""), Content: w.Content, Present: w.Present, TokenTime: w.TokenTime})
	run := doorserver.Run{Tokens: found.Tokens, Reason: found.Reason}
	for _, s := range found.Segments {
		run.Segments = append(run.Segments, doorserver.Segment{Ticket: s.Ticket, Start: s.Start, End: s.End})
	}
	return run, err
}
