package dash

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"meridian/internal/clip"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
	"meridian/see/ledger"
)

// Front is the gateway that serves the page.
type Front interface {
	Gateway() Gateway
	Workers() []Worker
	// Questions lets members of the cell be asked, or says why none can.
	Questions() (*peerquery.Service, error)
}

// cell is the cell as its gateway sees it. It remembers what it has told; one goroutine looks.
type cell struct {
	front Front
	book  *history.GatewayBook

	requests uint64                      // number of the next that is to be told
	handOffs map[kv.Member]uint64        // of those of each agent
	about    map[kv.Member]history.About // as each told last
}

// CellOf is the cell of a gateway, which remembers requests in a book.
func CellOf(front Front, book *history.GatewayBook) Cell { return &cell{front: front, book: book} }

// Bounds of what one look tells.
const (
	rowsToldFirst = 200
	RowsTold      = 128
	maxFlowRows   = 2048
	maxToldText   = 256
	maxTiers      = 4 // below the memory of an owner
)

// Look tells how the cell is. Agents that hang cost as much as one of them.
func (c *cell) Look(ctx context.Context) View {
	view := View{Gateway: c.front.Gateway(), Workers: c.front.Workers()}
	view.Requests, view.LeftOut.Requests = c.endedRequests()
	asks, err := c.front.Questions()
	if err != nil {
		view.Problem = err.Error()
		return view
	}
	members, err := asks.Members(ctx)
	if err != nil {
		view.Problem = "the directory does not answer: " + err.Error()
		return view
	}
	c.ask(ctx, asks, members, &view)
	c.flows(&view)
	return view
}

// endedRequests are those that have ended since, or the last of them.
func (c *cell) endedRequests() (rows []Request, leftOut uint64) {
	records, _, end := c.book.Records.Since(c.requests, math.MaxInt32)
	most := RowsTold
	if c.requests == 0 {
		most = rowsToldFirst
	}
	if n := len(records) - most; n > 0 {
		records = records[n:]
		if c.requests > 0 {
			leftOut = uint64(n)
		}
	}
	c.requests = end
	for _, r := range records {
		rows = append(rows, requestRow(r))
	}
	return rows, leftOut
}

func requestRow(r *ledger.Record) Request {
	row := Request{
		ID: r.ID, Began: r.Began, Model: r.Model, Outcome: r.Outcome, Problem: r.Problem, Status: r.Status, Prompt: r.PromptTokens, Output: r.OutputTokens,
		Think: r.ThinkTokens, Resumed: r.Resumed, TTFTMs: r.Latency.TTFTMs, TotalMs: r.Latency.TotalMs,
	}
	for _, leg := range r.Legs {
		if leg.Kind == ledger.PrefillLeg {
			row.Prefill = leg.Engine
		} else {
			row.Decode, row.KV = leg.Engine, cmp.Or(leg.KV, row.KV)
		}
	}
	return row
}

// ask has every member tell of itself, and of hand-offs that have ended since.
func (c *cell) ask(ctx context.Context, asks *peerquery.Service, members []kv.Member, view *View) {
	var mu sync.Mutex // protects view and what c remembers
	if c.handOffs == nil {
		c.handOffs = make(map[kv.Member]uint64)
	}
	known, about := maps.Clone(c.handOffs), make(map[kv.Member]history.About, len(members))
	silent := asks.Each(ctx, members, func(ctx context.Context, m kv.Member) error {
		a, err := asks.Ask(ctx, m, peerquery.Question{Kind: peerquery.About})
		if err != nil {
			return err
		}
		var told history.About
		if len(a.Records) != 1 || json.Unmarshal(a.Records[0], &told) != nil {
			return errors.New("what it tells of itself cannot be read")
		}
		rows, leftOut, next, err := recentHandOffs(ctx, asks, m, known)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		about[m], c.handOffs[m] = told, next
		view.HandOffs = append(view.HandOffs, rows...)
		view.LeftOut.HandOffs += leftOut
		return nil
	})
	for _, m := range members {
		if told, has := about[m]; has {
			view.Members = append(view.Members, MemberRow(m, &told))
		}
	}
	for _, s := range silent {
		i := slices.IndexFunc(members, func(m kv.Member) bool { return m.Name == s.Name })
		was := c.about[members[i]] // what it told last is better than nothing
		row := MemberRow(members[i], &was)
		row.Problem = clip.Text(s.Why, maxToldText, "…")
		row.Kind = cmp.Or(row.Kind, history.AgentMember)
		view.Members = append(view.Members, row)
		about[members[i]] = was
	}
	maps.DeleteFunc(c.handOffs, func(m kv.Member, _ uint64) bool { return !slices.Contains(members, m) })
	c.about = about
	slices.SortFunc(view.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(view.HandOffs, func(a, b HandOff) int { return cmp.Compare(a.EndedMs, b.EndedMs) })
}

// recentHandOffs asks for those that have ended since they were asked for last; the
// first time for the last few.
func recentHandOffs(ctx context.Context, asks *peerquery.Service, m kv.Member, known map[kv.Member]uint64) (rows []HandOff, leftOut, next uint64, err error) {
	after, asked := known[m]
	most := RowsTold
	if !asked {
		a, err := asks.Ask(ctx, m, peerquery.Question{Kind: peerquery.HandOffs, After: math.MaxUint64, Most: 1})
		if err != nil {
			return nil, 0, 0, err
		}
		after, most = a.End-min(a.End, rowsToldFirst), rowsToldFirst
	}
	a, err := asks.Ask(ctx, m, peerquery.Question{Kind: peerquery.HandOffs, After: after, Most: most})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, line := range a.Records {
		var r handoff.Record
		if json.Unmarshal(line, &r) == nil && history.CanBe(&r) && !r.Unused { // nothing moved, and nothing went wrong
			rows = append(rows, handOffRow(m.Name, &r))
		}
	}
	return rows, a.End - a.Next + (a.First - after), a.End, nil
}

func handOffRow(of string, r *handoff.Record) HandOff {
	text := func(s string) string { return clip.Text(s, maxToldText, "…") }
	row := HandOff{
		ID: r.Transfer.String(), As: r.As.String(), Agent: of, Engine: text(r.Engine), Peer: text(r.Peer), PeerName: text(r.PeerEngine), Tokens: r.Tokens, Bytes: r.Bytes,
		Ranks: fmt.Sprintf("%d×%d", r.SrcRanks, r.DstRanks), Retries: r.Retries, Push: r.Push, Promised: r.Promised, EndedMs: float64(r.EndedUnixUs) / 1000, Problem: text(r.Problem),
	}
	var fabrics []string
	for _, f := range r.Flows {
		if f.Fabric != "" && !slices.Contains(fabrics, f.Fabric) && len(fabrics) < 4 {
			fabrics = append(fabrics, text(f.Fabric))
		}
	}
	row.Fabric = strings.Join(fabrics, ", ")
	for _, s := range r.Stages.Each() {
		ms := float64(s.To-s.From) / float64(handoff.Millisecond)
		if s.Name == "total" {
			row.TotalMs = ms
		} else {
			row.Stages = append(row.Stages, Stage{Name: s.Name, Ms: ms})
		}
	}
	return row
}

// MemberRow is how a member is shown that tells so of itself.
func MemberRow(m kv.Member, a *history.About) Member {
	text := func(s string) string { return clip.Text(s, maxToldText, "…") }
	row := Member{
		Name: m.Name, Incarnation: m.Incarnation.String(), Kind: text(a.Kind), Version: text(a.Version), UpMs: a.UpMs, Engines: a.Engines, Transfers: a.Transfers.Done, TransfersFailed: a.Transfers.Failed,
		ChecksumFailures: a.Transfers.ChecksumFailures, Bytes: a.Transfers.BytesRead + a.Transfers.BytesWritten, HandOffs: a.HandOffs.Ready,
		HandOffsFailed: a.HandOffs.Failed, HandOffBytes: a.HandOffs.Bytes, UnderWay: a.HandOffs.Accepts, Prefixes: a.Prefixes,
	}
	for i, total := range a.Memory {
		if i < 8 {
			row.Memory = append(row.Memory, Memory{Tier: text(total.Kind), Bytes: total.Bytes})
		}
	}
	if o := a.Objects; o != nil {
		row.Objects = &Objects{Ready: o.Ready, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Master: o.Master}
		row.Objects.Tiers = append(row.Objects.Tiers, history.TierCounts{Name: store.Memory, Used: o.Used, Total: o.Total, Objects: o.Ready, Hits: o.Hits, Misses: o.Misses})
		for _, t := range o.Tiers[:min(len(o.Tiers), maxTiers)] {
			t.Name = text(t.Name)
			row.Objects.Tiers = append(row.Objects.Tiers, t)
		}
	}
	return row
}

// flows are those of all agents, the largest first.
func (c *cell) flows(view *View) {
	for _, a := range c.about {
		view.Flows = append(view.Flows, a.Flows[:min(len(a.Flows), history.MaxFlowsTold)]...)
		view.MoreFlows += max(0, a.MoreFlows)
	}
	slices.SortFunc(view.Flows, history.CompareFlows)
	if n := len(view.Flows) - maxFlowRows; n > 0 {
		view.Flows, view.MoreFlows = view.Flows[:maxFlowRows], view.MoreFlows+n
	}
}

// Explain asks all members; where none can be asked, what the gateway itself
// remembers has to do.
func (c *cell) Explain(ctx context.Context, id string) (Explanation, error) {
	asks, err := c.front.Questions()
	if err != nil {
		return c.own(id)
	}
	found, err := history.Gather(ctx, asks, id)
	if err != nil {
		return c.own(id)
	}
	return ExplanationOf(id, found), nil
}

// own is what the gateway itself remembers.
func (c *cell) own(id string) (Explanation, error) {
	found := &history.Gathered{}
	a, err := c.book.Answer(context.Background(), peerquery.Question{Kind: peerquery.Requests, Beginning: id})
	for _, line := range a.Records {
		found.Admit(peerquery.Requests, line)
	}
	return ExplanationOf(id, found), err
}

// ExplanationOf tells what was gathered under an id.
func ExplanationOf(id string, found *history.Gathered) Explanation {
	s := Explanation{ID: id, Text: found.String(), Requests: found.Requests, HandOffs: found.HandOffs, Transfers: found.Transfers, Objects: found.Objects, Asked: found.Asked}
	if ids := found.IDs(); len(found.Requests) > 1 || len(found.Requests) == 0 && len(found.HandOffs) > 0 && !found.OneHandOff() || len(found.Requests)+len(found.HandOffs) == 0 && len(ids) > 1 {
		s.IDs = ids
	}
	for _, silent := range found.Silent {
		s.Silent = append(s.Silent, silent.Name+": "+clip.Text(silent.Why, maxToldText, "…"))
	}
	return s
}
