package node

import (
	"context"
	"log/slog"
	"sync/atomic"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
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
	// RequireLeg refuses requests that no gateway of the cell has sent.
	RequireLeg bool
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
		Agent: n.Agent, TicketKey: n.identity.Key.Derive(trust.ForTickets), Events: relay.Events, NotifyRanks: relay.Passed, Logger: o.Logger,
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
	socket := o.Door.Socket
	if socket == "" {
		socket = door.Socket(o.StateDir, o.Name)
	}
	var objects doorserver.Cache
	var kept doorserver.PrefixCache
	var terms door.CacheTerms
	if n.Store != nil {
		objects, kept = doorstore.NewCache(n.Store, o.Name, o.Store.DirectMap), doorstore.Prefixes{Cache: n.Prefixes}
		terms = door.CacheTerms{BlockTokens: n.Prefixes.BlockTokens(), FindWait: o.Store.Prefixes.FindWait}
	}
	var opened atomic.Pointer[doorserver.Server] // engines may come before Open returns
	governor, err := n.openGovernor(o.Door.Governor, &opened)
	if err != nil {
		return err
	}
	n.Door, err = doorserver.Open(ctx, doorserver.Options{
		Agent: n.Agent, Cache: objects, Offload: kept, CacheTerms: terms, Transceiver: n.Transceiver, Relay: &relay, Directory: n.Directory, Socket: socket, VRAM: n.gpus,
		AllowUIDs: o.Door.AllowUIDs, RequireLeg: o.Door.RequireLeg, LegKey: n.identity.Key.Derive(trust.ForGatewayLegs), Asked: n.asked.add, Governor: governor, Logger: o.Logger,
	})
	opened.Store(n.Door)
	return err
}

// handOffEnded writes a hand-off down, and tells it to the collector of traces, and to
// what measures how long fetches take.
func (n *Agent) handOffEnded(r *handoff.Record) {
	if n.records != nil {
		n.records.addHandOff(r)
	}
	if n.Prefixes != nil { // it was there before any engine
		n.Prefixes.Ended(r)
	}
	leg, known := n.asked.take(r)
	level, line := slog.LevelInfo, []any{"audit", true, "transfer", r.Transfer.String(), "as", r.As.String(), "engine", r.Engine, "peer", r.Peer, "peer_engine", r.PeerEngine, "tokens", r.Tokens, "bytes", r.Bytes, "ms", float64(r.Stages.Ended-r.Stages.Begun) / float64(handoff.Millisecond)}
	if known && leg.Request != [16]byte{} {
		line = append(line, "request", kv.ID(leg.Request).String())
	}
	if r.Problem != "" {
		level, line = slog.LevelWarn, append(line, "error", r.Problem)
	}
	if r.Unused { // as often as engines ask, and no reason to look
		n.logger.Debug("an offer was given back before it was taken", line...)
	} else {
		n.logger.Log(context.Background(), level, "hand-off ended", line...)
	}
	if t := n.shown.Load(); known && leg.Trace.Sampled && t != nil {
		t.Trace(handOffSpans(r, leg.Trace, n.Name())...)
	}
}
