package history

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/mem"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
	"meridian/see/telemetry"
)

// Kinds of members.
const (
	AgentMember   = "agent"
	GatewayMember = "gateway"
)

// About is what a member of a cell tells of itself.
type About struct {
	Kind    string  `json:"kind"`
	Version string  `json:"version"`
	Commit  string  `json:"commit,omitempty"`
	UpMs    float64 `json:"up_ms"`

	Transfers TransferCounts `json:"transfers,omitzero"`
	HandOffs  HandOffCounts  `json:"handoffs,omitzero"`
	// Engines that have come in at its door, and those of them that serve.
	Engines int           `json:"engines,omitempty"`
	Serving int           `json:"serving,omitempty"`
	Memory  []MemoryTotal `json:"memory,omitempty"`
	Objects *ObjectCounts `json:"objects,omitempty"`
	// Prefixes is what came of its engines' asking the cell for prompts.
	Prefixes *PrefixCounts `json:"prefixes,omitempty"`
	// Flows are the pairs of ranks with the most bytes, MoreFlows how many others
	// there are.
	Flows     []FlowTotal `json:"flows,omitempty"`
	MoreFlows int         `json:"more_flows,omitempty"`
}

// TransferCounts are an agent's since its start.
type TransferCounts struct {
	Posted           uint64 `json:"posted"`
	Done             uint64 `json:"done"`
	Failed           uint64 `json:"failed"`
	BytesRead        uint64 `json:"bytes_read"`
	BytesWritten     uint64 `json:"bytes_written"`
	ChecksumFailures uint64 `json:"checksum_failures"`
}

// HandOffCounts are an agent's since its start; Offers and Accepts are under way.
type HandOffCounts struct {
	Offered uint64 `json:"offered"`
	Ready   uint64 `json:"ready"`
	Failed  uint64 `json:"failed"`
	Bytes   uint64 `json:"bytes"`
	Offers  int    `json:"offers"`
	Accepts int    `json:"accepts"`
}

// MemoryTotal is memory of one kind that engines have lent.
type MemoryTotal struct {
	Kind  string `json:"kind"`
	Bytes uint64 `json:"bytes"`
}

// ObjectCounts is how an agent's part of the object cache stands.
type ObjectCounts struct {
	Used      uint64 `json:"used"`
	Total     uint64 `json:"total"`
	Ready     uint64 `json:"ready"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Evictions uint64 `json:"evictions"`
	Master    bool   `json:"master"`
	// Tiers are what it has below its memory, the nearest first.
	Tiers []TierCounts `json:"tiers,omitempty"`
}

// TierCounts is how a tier of an agent's part of the object cache stands. Total is 0 where
// nothing bounds it.
type TierCounts struct {
	Name    string `json:"name"`
	Down    bool   `json:"down,omitempty"`
	Used    uint64 `json:"used"`
	Total   uint64 `json:"total,omitempty"`
	Objects uint64 `json:"objects"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
}

// PrefixCounts are of tokens of prompts that an agent's engines asked the cell for.
type PrefixCounts struct {
	Asked uint64 `json:"tokens_asked"`
	Found uint64 `json:"tokens_found"`
}

// BookOptions says what an agent tells others of.
type BookOptions struct {
	Agent       *agent.Agent
	Transceiver *transceiver.Transceiver
	// Store and Prefixes are its parts in the object cache and the shared cache; nil: none.
	Store    *store.Store
	Prefixes *prefix.Cache
	// Survey tells of prefixes that are kept.
	Survey *survey.Survey
	// Engines counts those that have come in at its door, and those of them that serve; nil
	// where there is no door.
	Engines func() (all, serving int)
	Build   telemetry.Build
}

// agentBook is what an agent tells others of what it remembers.
type agentBook struct {
	*Records
	BookOptions
	started time.Time

	mu sync.Mutex // held while files are read: one question at a time makes the disk work
}

// Book tells others of the records.
func (r *Records) Book(o BookOptions) peerquery.Source {
	return &agentBook{Records: r, BookOptions: o, started: time.Now()}
}

// Answer finds what a question is about.
func (b *agentBook) Answer(ctx context.Context, q peerquery.Question) (peerquery.Answer, error) {
	switch q.Kind {
	case peerquery.About:
		return peerquery.Found(q, []About{b.about()}), nil
	case peerquery.Transfers:
		if id, err := kv.ParseID(q.Beginning); err == nil {
			return b.transfer(q, id)
		}
		return page(q, b.transfers, func(r *agent.Record) bool { return strings.HasPrefix(r.ID.String(), q.Beginning) }), nil
	case peerquery.HandOffs:
		if id, err := kv.ParseID(q.Beginning); err == nil {
			return b.handOff(q, id)
		}
		return page(q, b.handOffs, func(r *handoff.Record) bool { return strings.HasPrefix(r.Transfer.String(), q.Beginning) }), nil
	case peerquery.Requests: // are a gateway's
		return peerquery.Answer{}, nil
	case peerquery.Prefixes:
		return b.ofPrefix(q)
	case peerquery.Keepers, peerquery.Uses, peerquery.Objects:
		return b.Survey.Answer(ctx, q)
	}
	return peerquery.Answer{}, fmt.Errorf("this agent, of version %s, knows nothing of kind %d", b.Build.Version, q.Kind)
}

// page answers with those that are wanted of what is kept.
func page[T any](q peerquery.Question, from *ledger.Log[T], wanted func(*T) bool) peerquery.Answer {
	records, first, end := from.Since(q.After, math.MaxInt32)
	p := peerquery.NewPage(q, first, end)
	for _, r := range records {
		if q.Beginning != "" && !wanted(r) {
			p.Pass()
		} else if !p.Add(r) {
			break
		}
	}
	return p.Answer()
}

// transfer finds the transfer of an id, and the transfers of the hand-off of that id.
func (b *agentBook) transfer(q peerquery.Question, id kv.ID) (peerquery.Answer, error) {
	var records []agent.Record
	if r, err := b.Agent.Explain(id); err == nil {
		records = append(records, r)
	}
	kept, _, _ := b.transfers.Since(0, keptRecords)
	for _, r := range kept {
		if r.PartOf == id {
			records = append(records, *r)
		}
	}
	if len(records) == 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		written, err := TransferIn(b.options.Dir, id)
		if err != nil {
			return peerquery.Answer{}, err
		}
		if written != nil {
			records = append(records, *written)
		}
	}
	return peerquery.Found(q, records), nil
}

// handOff finds the sides of a hand-off that this agent knows.
func (b *agentBook) handOff(q peerquery.Question, id kv.ID) (peerquery.Answer, error) {
	records, err := b.Transceiver.Explain(id)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if records, err = HandOffsIn(b.options.Dir, id); err != nil {
			return peerquery.Answer{}, err
		}
	}
	for i := range records {
		records[i] = *withFlows(&records[i], maxFlowsAsked)
	}
	return peerquery.Found(q, records), nil
}

// maxFlowsAsked is how much of a matrix fits an answer.
const maxFlowsAsked = 1024

func (b *agentBook) about() About {
	m, h := b.Agent.Metrics(), b.Transceiver.Metrics()
	a := About{
		Kind: AgentMember, Version: b.Build.Version, Commit: b.Build.Commit, UpMs: float64(time.Since(b.started)) / float64(time.Millisecond),
		Transfers: TransferCounts{Posted: m.Posted, Done: m.Done, Failed: m.Failed, BytesRead: m.BytesRead, BytesWritten: m.BytesWritten, ChecksumFailures: m.Audit.ChecksumFailures},
		HandOffs:  HandOffCounts{Offered: h.Offered, Ready: h.Ready, Failed: h.Failed, Bytes: h.BytesReady, Offers: h.Offers, Accepts: h.Accepts},
		Memory:    b.memory(),
	}
	if b.Engines != nil {
		a.Engines, a.Serving = b.Engines()
	}
	if b.Store != nil {
		if kept, is := b.Store.Kept(); is {
			a.Objects = &ObjectCounts{
				Used: kept.HeapUsed, Total: kept.HeapTotal, Ready: kept.Ready, Hits: kept.Hits, Misses: kept.Misses, Evictions: kept.Evictions,
				Master: b.Store.Metrics().Master,
			}
			_, tiers := b.Store.Cold()
			for _, t := range tiers {
				a.Objects.Tiers = append(a.Objects.Tiers, TierCounts{Name: t.Name, Down: t.Down, Used: t.Bytes, Total: t.Limit, Objects: t.Objects, Hits: t.Hits, Misses: t.Misses})
			}
		}
	}
	if b.Prefixes != nil {
		m := b.Prefixes.Metrics()
		a.Prefixes = &PrefixCounts{Asked: m.TokensAsked, Found: m.TokensFound}
	}
	a.Flows, a.MoreFlows = b.flows.largest()
	return a
}

// memory is what is registered, by kind. What the agent itself keeps objects in is
// told as such.
func (b *agentBook) memory() []MemoryTotal {
	totals := make(map[mem.Kind]uint64)
	for _, r := range b.Agent.Regions() {
		if r.Info != "store" && r.Info != "store buffer" { // as the object cache calls its own
			totals[r.Kind] += r.Length
		}
	}
	var all []MemoryTotal
	for kind, bytes := range totals {
		all = append(all, MemoryTotal{kind.String(), bytes})
	}
	slices.SortFunc(all, func(x, y MemoryTotal) int { return strings.Compare(x.Kind, y.Kind) })
	return all
}
