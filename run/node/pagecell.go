package node

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
	"time"

	"meridian/internal/clip"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/dash"
	"meridian/see/ledger"
	"meridian/serve/gateway"
)

// pageCell is the cell as its gateway sees it, for the page. It remembers what it has
// told; one goroutine looks.
type pageCell struct {
	g       *Gateway
	version string

	requests uint64               // number of the next that is to be told
	handOffs map[kv.Member]uint64 // of those of each agent
	about    map[kv.Member]About  // as each told last
	looked   bool
}

// Bounds of what one look tells.
const (
	rowsToldFirst = 200
	rowsTold      = 128
	maxFlowRows   = 2048
	maxToldText   = 256
	maxTiers      = 4 // below the memory of an owner
)

// Look tells how the cell is. Agents that hang cost as much as one of them.
func (c *pageCell) Look(ctx context.Context) dash.View {
	view := dash.View{Gateway: c.gateway(), Workers: c.workers()}
	view.Requests, view.LeftOut.Requests = c.endedRequests()
	n, err := c.g.Member()
	if err != nil {
		view.Problem = err.Error()
		return view
	}
	members, err := n.Questions.Members(ctx)
	if err != nil {
		view.Problem = "the directory does not answer: " + err.Error()
		return view
	}
	c.ask(ctx, n, members, &view)
	c.flows(&view)
	return view
}

func (c *pageCell) gateway() dash.Gateway {
	m := c.g.Metrics()
	scheme := "http"
	if c.g.HasTLS() {
		scheme = "https"
	}
	shown := dash.Gateway{
		Version: c.version, URL: scheme + "://" + c.g.Addr(), Ready: c.g.IsReady(), Running: m.Running, Waiting: m.Waiting, Connections: m.Connections,
		DirectoryKnown: m.DirectoryKnown, Outcomes: m.Requests, KV: m.KV, PromptTokens: m.PromptTokens, OutputTokens: m.OutputTokens, Resumed: m.Resumed,
	}
	for i, name := range gateway.Phases {
		p := dash.Phase{Name: name, Bounds: slices.Sorted(maps.Keys(m.Phases[i].Buckets))}
		for _, bound := range p.Bounds {
			p.Counts = append(p.Counts, m.Phases[i].Buckets[bound])
		}
		p.Counts = append(p.Counts, m.Phases[i].Count)
		shown.Phases = append(shown.Phases, p)
	}
	return shown
}

func (c *pageCell) workers() []dash.Worker {
	workers := []dash.Worker{}
	for _, e := range c.g.Engines() {
		workers = append(workers, dash.Worker{
			ID: cmp.Or(e.ID, e.URL), Role: e.Role, Kind: e.Kind, Models: e.Models, Cut: e.Cut, Agent: e.Agent, URL: e.URL, Up: e.Up, Problem: e.Problem,
			Running: e.Running, Waiting: e.Waiting, Served: e.Served, Failed: e.Failed,
		})
	}
	slices.SortFunc(workers, func(a, b dash.Worker) int {
		return cmp.Or(strings.Compare(b.Role, a.Role), strings.Compare(a.ID, b.ID))
	})
	return workers
}

// endedRequests are those that have ended since, or the last of them.
func (c *pageCell) endedRequests() (rows []dash.Request, leftOut uint64) {
	records, _, end := c.g.records.Since(c.requests, math.MaxInt32)
	most := rowsTold
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

func requestRow(r *ledger.Record) dash.Request {
	row := dash.Request{
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
func (c *pageCell) ask(ctx context.Context, n *Agent, members []kv.Member, view *dash.View) {
	var mu sync.Mutex // protects view and what c remembers
	if c.handOffs == nil {
		c.handOffs = make(map[kv.Member]uint64)
	}
	known, about := maps.Clone(c.handOffs), make(map[kv.Member]About, len(members))
	heard := make(map[string]bool)
	silent := n.Questions.Each(ctx, members, func(ctx context.Context, m kv.Member) error {
		a, err := n.Questions.Ask(ctx, m, peerquery.Question{Kind: peerquery.About})
		if err != nil {
			return err
		}
		var told About
		if len(a.Records) != 1 || json.Unmarshal(a.Records[0], &told) != nil {
			return errors.New("what it tells of itself cannot be read")
		}
		rows, leftOut, next, err := recentHandOffs(ctx, n, m, known)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		heard[m.Name], about[m], c.handOffs[m] = true, told, next
		view.HandOffs = append(view.HandOffs, rows...)
		view.LeftOut.HandOffs += leftOut
		return nil
	})
	for _, m := range members {
		if told, has := about[m]; has {
			view.Members = append(view.Members, memberRow(m, &told))
		}
	}
	for _, s := range silent {
		i := slices.IndexFunc(members, func(m kv.Member) bool { return m.Name == s.Name })
		was := c.about[members[i]] // what it told last is better than nothing
		row := memberRow(members[i], &was)
		row.Problem = clip.Text(s.Why, maxToldText, "…")
		row.Kind = cmp.Or(row.Kind, AgentMember)
		view.Members = append(view.Members, row)
		about[members[i]] = was
	}
	maps.DeleteFunc(c.handOffs, func(m kv.Member, _ uint64) bool { return !slices.Contains(members, m) })
	c.about, c.looked = about, true
	slices.SortFunc(view.Members, func(a, b dash.Member) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(view.HandOffs, func(a, b dash.HandOff) int { return cmp.Compare(a.EndedMs, b.EndedMs) })
}

// recentHandOffs asks for those that have ended since they were asked for last; the
// first time for the last few.
func recentHandOffs(ctx context.Context, n *Agent, m kv.Member, known map[kv.Member]uint64) (rows []dash.HandOff, leftOut, next uint64, err error) {
	after, asked := known[m]
	most := rowsTold
	if !asked {
		a, err := n.Questions.Ask(ctx, m, peerquery.Question{Kind: peerquery.HandOffs, After: math.MaxUint64, Most: 1})
		if err != nil {
			return nil, 0, 0, err
		}
		after, most = a.End-min(a.End, rowsToldFirst), rowsToldFirst
	}
	a, err := n.Questions.Ask(ctx, m, peerquery.Question{Kind: peerquery.HandOffs, After: after, Most: most})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, line := range a.Records {
		var r handoff.Record
		if json.Unmarshal(line, &r) == nil && canBe(&r) && !r.Unused { // nothing moved, and nothing went wrong
			rows = append(rows, handOffRow(m.Name, &r))
		}
	}
	return rows, a.End - a.Next + (a.First - after), a.End, nil
}

func handOffRow(of string, r *handoff.Record) dash.HandOff {
	text := func(s string) string { return clip.Text(s, maxToldText, "…") }
	row := dash.HandOff{
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
			row.Stages = append(row.Stages, dash.Stage{Name: s.Name, Ms: ms})
		}
	}
	return row
}

func memberRow(m kv.Member, a *About) dash.Member {
	text := func(s string) string { return clip.Text(s, maxToldText, "…") }
	row := dash.Member{
		Name: m.Name, Incarnation: m.Incarnation.String(), Kind: text(a.Kind), Version: text(a.Version), UpMs: a.UpMs, Engines: a.Engines, Transfers: a.Transfers.Done, TransfersFailed: a.Transfers.Failed,
		ChecksumFailures: a.Transfers.ChecksumFailures, Bytes: a.Transfers.BytesRead + a.Transfers.BytesWritten, HandOffs: a.HandOffs.Ready,
		HandOffsFailed: a.HandOffs.Failed, HandOffBytes: a.HandOffs.Bytes, UnderWay: a.HandOffs.Accepts,
	}
	for i, total := range a.Memory {
		if i < 8 {
			row.Memory = append(row.Memory, dash.Memory{Tier: text(total.Kind), Bytes: total.Bytes})
		}
	}
	if o := a.Objects; o != nil {
		row.Objects = &dash.Objects{Ready: o.Ready, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Master: o.Master}
		row.Objects.Tiers = append(row.Objects.Tiers, dash.Tier{Name: store.Memory, Used: o.Used, Total: o.Total, Objects: o.Ready, Hits: o.Hits, Misses: o.Misses})
		for _, t := range limited(o.Tiers, maxTiers) {
			shown := dash.Tier(t)
			shown.Name = text(t.Name)
			row.Objects.Tiers = append(row.Objects.Tiers, shown)
		}
	}
	if p := a.Prefixes; p != nil {
		row.Prefixes = &dash.Prefixes{Asked: p.Asked, Found: p.Found}
	}
	return row
}

// flows are those of all agents, the largest first.
func (c *pageCell) flows(view *dash.View) {
	for _, a := range c.about {
		for _, f := range limited(a.Flows, maxFlowsTold) {
			view.Flows = append(view.Flows, dash.Flow(f))
		}
		view.MoreFlows += max(0, a.MoreFlows)
	}
	slices.SortFunc(view.Flows, func(a, b dash.Flow) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	if n := len(view.Flows) - maxFlowRows; n > 0 {
		view.Flows, view.MoreFlows = view.Flows[:maxFlowRows], view.MoreFlows+n
	}
}

// Explain asks all members; where none can be asked, what the gateway itself
// remembers has to do.
func (c *pageCell) Explain(ctx context.Context, id string) (dash.Explanation, error) {
	n, err := c.g.Member()
	if err != nil {
		return c.own(id)
	}
	found, err := n.Gather(ctx, id)
	if err != nil {
		return c.own(id)
	}
	return storyOf(id, found), nil
}

// own is what the gateway itself remembers.
func (c *pageCell) own(id string) (dash.Explanation, error) {
	found := &Gathered{}
	book := &gatewayRecords{records: c.g.records, dir: c.g.stateDir, started: time.Now()}
	a, err := book.Answer(context.Background(), peerquery.Question{Kind: peerquery.Requests, Beginning: id})
	for _, line := range a.Records {
		found.admit(peerquery.Requests, line)
	}
	return storyOf(id, found), err
}

func storyOf(id string, found *Gathered) dash.Explanation {
	s := dash.Explanation{ID: id, Text: found.String(), Requests: found.Requests, HandOffs: found.HandOffs, Transfers: found.Transfers, Objects: found.Objects, Asked: found.Asked}
	if ids := found.IDs(); len(found.Requests) > 1 || len(found.Requests) == 0 && len(found.HandOffs) > 0 && !found.OneHandOff() || len(found.Requests)+len(found.HandOffs) == 0 && len(ids) > 1 {
		s.IDs = ids
	}
	for _, silent := range found.Silent {
		s.Silent = append(s.Silent, silent.Name+": "+clip.Text(silent.Why, maxToldText, "…"))
	}
	return s
}
