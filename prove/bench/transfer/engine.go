package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/prove/bench"
	"meridian/run/node"
)

// engine is one side of a hand-off: ranks with real memory, an agent that moves
// it and a transceiver. On the posting side it decodes, on the serving side it
// has computed the prompts.
type engine struct {
	bench.Opened
	which       side
	errand      Errand
	side        reshard.Side
	tables      [][]uint32 // by request
	ranks       []*mem.Arena
	agent       *agent.Agent
	transceiver *transceiver.Transceiver
	node        *node.Agent                // that both are of, in a cell; nil where they stand alone
	other       atomic.Pointer[agent.Peer] // once they have met
	standing    []*transceiver.OfferHandle
	traceable   int // offers of which one in traceEvery was traced, the first among them
}

// staging is what both sides of a hand-off open.
type staging struct {
	setup
	Errand Errand      `json:"errand"`
	Key    handoff.Key `json:"key"` // of tickets
	// Cell has engines with the agents of a cell, as they run in service.
	Cell *cellSetup `json:"cell,omitempty"`
}

func openEngine(ctx context.Context, which side, s staging, open opener) (_ *engine, err error) {
	e := &engine{which: which, errand: s.Errand}
	defer e.Unless(ctx, &err)
	e.Closes(e.closeRanks) // when nothing moves their memory any more
	if e.side, err = s.Errand.of(which); err != nil {
		return e, err
	}
	if s.Cell != nil {
		e.side.Blocks *= spareBlocks
		e.tables = s.Errand.tables(e.side, which)
		if err = e.openInCell(ctx, s); err != nil {
			return e, err
		}
		return e, e.join()
	}
	e.tables = s.Errand.tables(e.side, which)
	fabricOf := func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		return open(ctx, fabricOptions{
			Agent: self.Name, Incarnation: self.Incarnation, Streams: s.Streams, Checksums: true, Events: self.Events, Dir: s.Dir,
			Guard: self.Guard,
		})
	}
	if e.agent, err = agent.Open(ctx, agent.Options{Name: agentName(which), Fabrics: []agent.Opener{fabricOf}}); err != nil {
		return e, err
	}
	e.Closes(e.agent.Close)
	e.transceiver, err = transceiver.Open(ctx, transceiver.Options{
		Agent: e.agent, TicketKey: s.Key, Find: e.find, MaxHeldFraction: 1,
	})
	if err != nil {
		return e, err
	}
	e.Closes(e.transceiver.Close)
	return e, e.join()
}

// join lends the memory of all ranks.
func (e *engine) join() error {
	self := kv.Member{Name: e.agent.Name(), Incarnation: e.agent.Incarnation()}
	joined := handoff.Engine{ID: self.Name, Side: e.side}
	for rank := range e.side.Parallelism.Ranks() {
		bytes, err := e.side.MemoryBytes(rank)
		if err != nil {
			return err
		}
		arena, err := mem.NewArena(mem.ArenaOptions{Name: fmt.Sprintf("%s-rank-%d", self.Name, rank), SizeBytes: uint64(bytes), NUMANode: -1})
		if err != nil {
			return err
		}
		e.ranks = append(e.ranks, arena)
		region, err := e.agent.Register(arena.Section, fmt.Sprintf("rank %d", rank))
		if err != nil {
			return err
		}
		memory := handoff.Memory{{Region: region.ID, Epoch: region.Epoch, Length: uint64(bytes)}}
		joined.Ranks = append(joined.Ranks, handoff.Rank{Agent: self, Memory: memory})
	}
	return e.transceiver.Join(joined)
}

// meet takes what the other side's agent says of itself.
func (e *engine) meet(metadata []byte) error {
	peer, err := e.agent.LoadMetadata(metadata)
	e.other.Store(peer)
	return err
}

func (e *engine) find(_ context.Context, name string) (*agent.Peer, error) {
	if other := e.other.Load(); other != nil && other.Name == name {
		return other, nil
	}
	return nil, fmt.Errorf("bench: %s has not met %q", e.agent.Name(), name)
}

// offer offers every request, and returns the tickets. Where traced is true, one of
// traceEvery is traced; which ones, the other side has to know, too.
func (e *engine) offer(traced bool) (tickets [][]byte, sampled []kv.ID, err error) {
	for i, table := range e.tables {
		id := agent.NewID()
		if traced {
			if e.traceable%traceEvery == 0 {
				e.trace(id, trust.LegPrefill)
				sampled = append(sampled, id)
			}
			e.traceable++
		}
		out, err := e.transceiver.Offer(transceiver.Offer{
			Transfer: id, Engine: e.agent.Name(), Content: e.errand.prompt(i), Holding: holding(table),
			Layers: e.errand.Layers, Keep: roundLimit,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("bench: offering request %d of %d: %w", i, len(e.tables), err)
		}
		e.standing = append(e.standing, out)
		tickets = append(tickets, out.Ticket)
	}
	return tickets, sampled, nil
}

// settle waits until every offer was taken and its blocks are free again.
func (e *engine) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	var errs []error
	for _, out := range e.standing {
		errs = append(errs, out.Wait(ctx))
	}
	e.standing = nil
	return errors.Join(errs...)
}

// accept takes a request.
func (e *engine) accept(ctx context.Context, request int, content handoff.Content, ticket []byte) (*transceiver.AcceptHandle, error) {
	opened, err := e.transceiver.OpenTicket(ticket, &content)
	if err != nil {
		return nil, err
	}
	return e.transceiver.Accept(ctx, transceiver.Accept{
		Ticket: opened, Engine: e.agent.Name(), Holding: holding(e.tables[request]), Tokens: kv.TokenRange{End: len(content.Tokens)},
	})
}

func (e *engine) closeRanks(ctx context.Context) error {
	var errs []error
	for _, arena := range e.ranks {
		errs = append(errs, arena.Close(ctx))
	}
	return errors.Join(errs...)
}
