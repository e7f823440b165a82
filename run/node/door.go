package node

import (
	"cmp"
	"context"
	"sync/atomic"

	"meridian/member/trust"
	"meridian/move/transceiver"
	"meridian/serve/door"
	"meridian/serve/doorserver"
	"meridian/serve/doorstore"
	"meridian/serve/governing"
)

// Door says who may come in where engines do.
type Door struct {
	// Socket is its path; empty means door.Socket in the state directory.
	Socket string
	// AllowUIDs are the users besides the agent's own whose engines may come.
	AllowUIDs []uint32
	// RequireLeg refuses hand-offs that no gateway of the cell has asked for, RequireCacheLeg to
	// keep and find without one.
	RequireLeg, RequireCacheLeg bool
	// Governor is what engines are governed by that tell of their steps; nil: none is. The
	// clock, the store and the sizes of blocks are filled in.
	Governor *governing.Options
}

// openDoor opens the transceiver, and the door whose engines it speaks for.
func (n *Agent) openDoor(ctx context.Context, o AgentOptions) error {
	var relay doorserver.Relay
	var err error
	n.Transceiver, err = transceiver.Open(ctx, transceiver.Options{
		Ended: n.handOffEnded,
		Agent: n.Agent, TicketKey: n.identity.Key.Derive(trust.ForTickets), PromiseKey: n.identity.Key.Derive(trust.ForGatewayLegs), Events: relay.Events, NotifyRanks: relay.Passed, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	if o.Door == nil {
		return nil
	}
	if err := n.openPrefixes(ctx, o, relay.Events); err != nil {
		return err
	}
	socket := cmp.Or(o.Door.Socket, door.Socket(o.StateDir, o.Name))
	var objects doorserver.Cache
	var kept doorserver.PrefixCache
	var terms door.CacheTerms
	if n.Store != nil {
		n.objects = doorstore.NewCache(n.Store, o.Name, o.Store.DirectMap, o.Logger)
		objects, kept = n.objects, doorstore.Prefixes{Cache: n.Prefixes}
		terms = door.CacheTerms{BlockTokens: n.Prefixes.BlockTokens(), FindWait: o.Store.Prefixes.FindWait}
	}
	var opened atomic.Pointer[doorserver.Server] // engines may come before Open returns
	governor, err := n.openGovernor(o.Door.Governor, &opened)
	if err != nil {
		return err
	}
	n.Door, err = doorserver.Open(ctx, doorserver.Options{
		Agent: n.Agent, Cache: objects, Offload: kept, CacheTerms: terms, Transceiver: n.Transceiver, Relay: &relay, Directory: n.Directory, Socket: socket, VRAM: n.gpus,
		AllowUIDs: o.Door.AllowUIDs, RequireLeg: o.Door.RequireLeg, RequireCacheLeg: o.Door.RequireCacheLeg, LegKey: n.identity.Key.Derive(trust.ForGatewayLegs), Asked: n.History.LegAsked, Governor: governor, Logger: o.Logger,
	})
	opened.Store(n.Door)
	return err
}
