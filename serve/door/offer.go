package door

import (
	"fmt"
	"math"
	"time"

	"meridian/kv"
	"meridian/serve/door/doorpb"
)

// Offer says that a request's cache may be taken. The blocks are not the
// engine's until the event Freed.
type Offer struct {
	Transfer [16]byte // the request's id; a new one for every offer
	Scope    kv.Scope // what is not the publication's
	Tokens   []uint32
	// Tables is one block table for each group of layers, or one for all.
	Tables [][]uint32
	// DP is the attention-DP group that serves the request.
	DP     int
	Layers int           // computed by now; Progress tells of more
	Whole  int           // tokens, from the first on, that have all layers by now
	Keep   time.Duration // 0: the agent's default
	Leg    []byte        // what a gateway made, if there is one
}

func (o *Offer) message() *doorpb.Offer {
	return &doorpb.Offer{
		Transfer: o.Transfer[:], Scope: scopeMessage(o.Scope), Tokens: o.Tokens, Tables: tableMessages(o.Tables), Dp: uint32(o.DP),
		Layers: uint32(o.Layers), ComputedTokens: uint32(o.Whole), KeepMs: milliseconds(o.Keep), Leg: o.Leg,
	}
}

// ParseOffer reads what a prefill engine offers. Whether there is such a cache
// the hand-off checks.
func ParseOffer(m *doorpb.Offer) (Offer, error) {
	transfer, err := ParseTransfer(m.GetTransfer())
	return Offer{
		Transfer: transfer, Scope: parseScope(m.GetScope()), Tokens: m.GetTokens(), Tables: parseTables(m.GetTables()), DP: int(m.GetDp()),
		Layers: int(m.GetLayers()), Whole: int(m.GetComputedTokens()), Keep: duration(m.GetKeepMs()), Leg: m.GetLeg(),
	}, err
}

// Accept asks for the cache of a ticket. The blocks are not the engine's until
// the event Ready, or Freed.
type Accept struct {
	Ticket  []byte // or a promise of one
	Scope   kv.Scope
	Tokens  []uint32
	Tables  [][]uint32
	DP      int
	Present int  // tokens that the engine has already
	Push    bool // the source writes, instead of being read from
	// Deadline is of the whole hand-off; 0: the agent's default.
	Deadline time.Duration
	Leg      []byte
	// Begun, where given, is called like Events with the transfer's id, before
	// the first event of it: Accept itself may return later than that.
	Begun func(transfer [16]byte)
}

func (a *Accept) message() *doorpb.Accept {
	return &doorpb.Accept{
		Ticket: a.Ticket, Scope: scopeMessage(a.Scope), Tokens: a.Tokens, Tables: tableMessages(a.Tables), Dp: uint32(a.DP),
		PresentTokens: uint32(a.Present), Push: a.Push, DeadlineMs: milliseconds(a.Deadline), Leg: a.Leg,
	}
}

// ParseAccept reads what a decode engine asks for.
func ParseAccept(m *doorpb.Accept) Accept {
	return Accept{
		Ticket: m.GetTicket(), Scope: parseScope(m.GetScope()), Tokens: m.GetTokens(), Tables: parseTables(m.GetTables()), DP: int(m.GetDp()),
		Present: int(m.GetPresentTokens()), Push: m.GetPush(), Deadline: duration(m.GetDeadlineMs()), Leg: m.GetLeg(),
	}
}

// ParseTransfer reads the id of a transfer.
func ParseTransfer(b []byte) (id kv.ID, err error) {
	if len(b) != len(id) || kv.ID(b) == id {
		return id, fmt.Errorf("%w: the id of a transfer has %d bytes that are not all zero; %d came", ErrFrame, len(id), len(b))
	}
	return kv.ID(b), nil
}

// milliseconds is a time as messages have it: at least one, unless there is none.
func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min(max(d.Milliseconds(), 1), math.MaxUint32))
}

// duration is a time of a message; the longest, 49 days, is far from a Duration's.
func duration(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

func tableMessages(tables [][]uint32) []*doorpb.Table {
	all := make([]*doorpb.Table, len(tables))
	for i, blocks := range tables {
		all[i] = &doorpb.Table{Blocks: blocks}
	}
	return all
}

func parseTables(all []*doorpb.Table) [][]uint32 {
	tables := make([][]uint32, len(all))
	for i, t := range all {
		tables[i] = t.GetBlocks()
	}
	return tables
}
