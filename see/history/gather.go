package history

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/survey"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
)

// Gathered is what the members of a cell remember under an id.
type Gathered struct {
	Requests  []ledger.Record  `json:"requests,omitempty"`
	HandOffs  []handoff.Record `json:"handoffs,omitempty"`
	Transfers []agent.Record   `json:"transfers,omitempty"`
	Objects   []survey.Object  `json:"objects,omitempty"`
	// Prefixes are what requests found and kept in the shared cache.
	Prefixes []prefix.Record `json:"prefixes,omitempty"`
	// Asked is how many answered, Silent who did not.
	Asked  int                     `json:"asked"`
	Silent []peerquery.Unreachable `json:"silent,omitempty"`
}

// Empty reports whether no member remembers anything.
func (g *Gathered) Empty() bool {
	return len(g.Requests) == 0 && len(g.HandOffs) == 0 && len(g.Transfers) == 0 && len(g.Objects) == 0 && len(g.Prefixes) == 0
}

// Gather asks all members for what is remembered under an id, which may be how it
// begins, or what a client called its request; and for the hand-offs of requests that
// are found. A key of a piece of a prefix, or how it begins, is asked for by itself.
func Gather(ctx context.Context, asks *peerquery.Service, id string) (*Gathered, error) {
	members, err := asks.Members(ctx)
	if err != nil {
		return nil, err
	}
	g := &Gathered{}
	var mu sync.Mutex // protects g
	ask := func(id string, kinds ...peerquery.Kind) {
		silent := asks.Each(ctx, members, func(ctx context.Context, m kv.Member) error {
			for _, kind := range kinds {
				if err := asks.Pages(ctx, m, peerquery.Question{Kind: kind, Beginning: id}, func(record []byte) {
					mu.Lock()
					defer mu.Unlock()
					g.Admit(kind, record)
				}); err != nil {
					return err
				}
			}
			return nil
		})
		// Who kept silent once is not waited for again.
		members = slices.DeleteFunc(members, func(m kv.Member) bool {
			return slices.ContainsFunc(silent, func(s peerquery.Unreachable) bool { return s.Name == m.Name })
		})
		g.Silent = append(g.Silent, silent...)
	}
	if strings.HasPrefix(id, survey.KeptKeys) {
		ask(id, peerquery.Objects)
	} else { // one of an earlier version answers no more after what it does not know: that comes last
		ask(id, peerquery.Requests, peerquery.HandOffs, peerquery.Transfers, peerquery.Prefixes)
	}
	if len(g.Requests) == 1 {
		if of := g.Requests[0].ID; of != id {
			ask(of, peerquery.Prefixes)
		}
		for _, transfer := range limited(g.Requests[0].Transfers(), 8) {
			if transfer != id {
				ask(transfer, peerquery.HandOffs, peerquery.Transfers, peerquery.Prefixes)
			}
		}
	}
	for _, transfer := range fetchesOf(g.Prefixes) {
		if text := transfer.String(); text != id {
			ask(text, peerquery.HandOffs)
		}
	}
	g.Asked = len(members)
	g.sort()
	g.sortPrefixes()
	return g, ctx.Err()
}

func limited[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// maxGathered bounds what is kept of each kind.
const maxGathered = 4096

// Admit takes a record that a member sent. What cannot be a record is passed over.
func (g *Gathered) Admit(kind peerquery.Kind, record []byte) {
	switch kind {
	case peerquery.Requests:
		take(record, &g.Requests, func(*ledger.Record) bool { return true })
	case peerquery.HandOffs:
		take(record, &g.HandOffs, CanBe)
	case peerquery.Transfers:
		take(record, &g.Transfers, func(*agent.Record) bool { return true })
	case peerquery.Objects:
		take(record, &g.Objects, (*survey.Object).Bound)
	case peerquery.Prefixes:
		take(record, &g.Prefixes, canBePrefix)
	}
}

func take[T any](record []byte, into *[]T, can func(*T) bool) {
	var r T
	if len(*into) < maxGathered && json.Unmarshal(record, &r) == nil && can(&r) {
		*into = append(*into, r)
	}
}

// maxRanks is more than any engine of a hand-off has: to draw a matrix is work.
const maxRanks = 1024

// CanBe refuses a record whose matrix cannot be one.
func CanBe(r *handoff.Record) bool {
	if r.SrcRanks < 0 || r.SrcRanks > maxRanks || r.DstRanks < 0 || r.DstRanks > maxRanks {
		return false
	}
	return !slices.ContainsFunc(r.Flows, func(f handoff.FlowRecord) bool {
		return f.Src < 0 || f.Src >= r.SrcRanks || f.Dst < 0 || f.Dst >= r.DstRanks
	})
}

// sort puts everything in the order of time, and what two members told twice once.
func (g *Gathered) sort() {
	slices.SortStableFunc(g.Requests, func(a, b ledger.Record) int { return a.Began.Compare(b.Began) })
	g.Requests = slices.CompactFunc(g.Requests, func(a, b ledger.Record) bool { return a.ID == b.ID })
	slices.SortStableFunc(g.HandOffs, func(a, b handoff.Record) int {
		return cmp.Or(strings.Compare(a.Transfer.String(), b.Transfer.String()), cmp.Compare(a.As, b.As), strings.Compare(a.Engine, b.Engine))
	})
	g.HandOffs = slices.CompactFunc(g.HandOffs, sameSide)
	slices.SortStableFunc(g.Transfers, func(a, b agent.Record) int {
		return cmp.Or(a.Times.Posted.Compare(b.Times.Posted), strings.Compare(a.ID.String(), b.ID.String()))
	})
	g.Transfers = slices.CompactFunc(g.Transfers, func(a, b agent.Record) bool { return a.ID == b.ID })
	slices.SortFunc(g.Objects, func(a, b survey.Object) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Owner, b.Owner))
	})
}

// sortPrefixes does so with what the shared cache did.
func (g *Gathered) sortPrefixes() {
	slices.SortStableFunc(g.Prefixes, func(a, b prefix.Record) int {
		return cmp.Or(cmp.Compare(a.EndedUnixUs, b.EndedUnixUs), strings.Compare(a.Engine, b.Engine))
	})
	g.Prefixes = slices.CompactFunc(g.Prefixes, SamePrefix)
}

// sameSide tells whether two records are of one side of one hand-off.
func sameSide(a, b handoff.Record) bool {
	return a.Transfer == b.Transfer && a.As == b.As && a.Engine == b.Engine
}

// OneHandOff reports whether everything that was gathered is of one hand-off.
func (g *Gathered) OneHandOff() bool {
	if len(g.HandOffs) == 0 {
		return false
	}
	id := g.HandOffs[0].Transfer
	return !slices.ContainsFunc(g.HandOffs, func(h handoff.Record) bool { return h.Transfer != id }) &&
		!slices.ContainsFunc(g.Transfers, func(t agent.Record) bool { return t.PartOf != id && t.ID != id })
}

// IDs are the ids of everything that was gathered, each once.
func (g *Gathered) IDs() []string {
	var ids []string
	add := func(id string) {
		if !slices.Contains(ids, id) && len(ids) < 64 {
			ids = append(ids, id)
		}
	}
	for i := range g.Requests {
		add(g.Requests[i].ID)
	}
	for i := range g.HandOffs {
		add(g.HandOffs[i].Transfer.String())
	}
	for i := range g.Transfers {
		add(g.Transfers[i].ID.String())
	}
	for i := range g.Objects {
		key, _, _ := strings.Cut(g.Objects[i].Key, "#") // copies are told with what they are copies of
		add(key)
	}
	return ids
}

// String tells of everything that was gathered, to a person.
func (g *Gathered) String() string {
	var b strings.Builder
	for i := range g.Requests {
		b.WriteString(g.Requests[i].String())
	}
	for i := range g.Prefixes {
		b.WriteString(TellPrefix(&g.Prefixes[i], g.HandOffs))
	}
	for i := range g.HandOffs {
		b.WriteString(TellHandOff(&g.HandOffs[i]))
	}
	if b.Len() == 0 { // else they are told by the hand-offs that they were part of
		for i := range g.Transfers {
			b.WriteString(g.Transfers[i].String())
		}
	}
	for i := range g.Objects {
		b.WriteString(g.Objects[i].String())
	}
	for _, s := range g.Silent {
		fmt.Fprintf(&b, "%s was asked and did not answer: %s\n", s.Name, s.Why)
	}
	return b.String()
}

// TellHandOff tells of a hand-off, with when it ended.
func TellHandOff(r *handoff.Record) string {
	text := r.String()
	if r.EndedUnixUs > 0 {
		text += fmt.Sprintf("  ended     %s\n", time.UnixMicro(r.EndedUnixUs).Format(time.RFC3339Nano))
	}
	return text
}
