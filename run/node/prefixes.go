package node

import (
	"context"
	"time"

	"meridian/keep/prefix"
	"meridian/member/trust"
	"meridian/move/transceiver/handoff"
)

// Prefixes says how engines keep and find what they computed. Zero values mean the
// defaults.
type Prefixes struct {
	// BlockTokens is how many tokens of a prefix are one object.
	BlockTokens int
	// FindWait is how long an engine's scheduler may stand still for an answer,
	// FindTimeout how long a prefix is looked for.
	FindWait, FindTimeout time.Duration
	// Replicas is how many copies there are to be of what is used often.
	Replicas int
	// MaxBytesInFlight bounds what is on its way to be kept.
	MaxBytesInFlight uint64
}

// openPrefixes opens what engines keep and find, where the process has a part in the
// object cache and lets engines in.
func (n *Agent) openPrefixes(ctx context.Context, o AgentOptions, events func(handoff.Event)) (err error) {
	if n.Store == nil || o.Door == nil {
		return nil
	}
	p := o.Store.Prefixes
	n.Prefixes, err = prefix.Open(ctx, prefix.Options{
		Agent: n.Agent, Transceiver: n.Transceiver, Store: n.Store, TicketKey: n.identity.Key.Derive(trust.ForTickets), Events: events,
		BlockTokens: p.BlockTokens, Replicas: p.Replicas, MaxBytesInFlight: p.MaxBytesInFlight, FindTimeout: p.FindTimeout, Ended: n.History.PrefixEnded, Logger: o.Logger,
	})
	return err
}
