package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/transceiver/handoff"
	"meridian/see/dash"
	"meridian/see/history"
	"meridian/see/ledger"
)

// The page shows what agents of other hosts have done, and tells of each that does not
// answer; only on this host, and under its own name.
func TestPageShowsTheCell(t *testing.T) {
	h := newHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prefill, decode := h.agent(t, "p", &Door{}), h.agent(t, "d", &Door{})
	_, _, _, id := handOver(t, ctx, prefill, decode)
	o := gatewayOptions(t)
	o.Backends, o.StateDir, o.DirectoryEndpoints = nil, h.stateDir(t), []string{h.endpoint}
	g, err := OpenGateway(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	g.records.Add(&ledger.Record{
		ID: id.String(), Outcome: ledger.Finished, Latency: ledger.Latency{TotalMs: 7},
		Legs: []ledger.Leg{{Kind: ledger.PrefillLeg, Engine: "p"}, {Kind: ledger.DecodeLeg, Engine: "d", Transfer: id.String(), KV: "handoff"}},
	})
	until.True(t, "the gateway has joined", func() bool { _, err := g.Member(); return err == nil })

	c := dash.CellOf(front{g, "v1"}, g.book)
	view := c.Look(ctx)
	if len(view.Requests) != 1 || view.Requests[0].Prefill != "p" || view.Requests[0].Decode != "d" || view.Requests[0].KV != "handoff" || view.Problem != "" {
		t.Errorf("requests %+v, problem %q", view.Requests, view.Problem)
	}
	if len(view.HandOffs) != 2 || view.HandOffs[0].ID != id.String() || view.HandOffs[0].TotalMs <= 0 || len(view.HandOffs[0].Stages) == 0 || view.LeftOut != (dash.LeftOut{}) {
		t.Errorf("hand-offs %+v, left out %+v", view.HandOffs, view.LeftOut)
	}
	if len(view.Flows) != 1 || view.Flows[0].From != "p" || view.Flows[0].To != "d" || view.Flows[0].Bytes == 0 {
		t.Errorf("flows %+v", view.Flows)
	}
	kinds := make(map[string]int)
	for _, m := range view.Members {
		kinds[m.Kind]++
		if m.Problem != "" || m.Kind == history.AgentMember && len(m.Memory) != 1 {
			t.Errorf("%+v", m)
		}
	}
	if kinds[history.AgentMember] != 2 || kinds[history.GatewayMember] != 1 {
		t.Errorf("members %v", kinds)
	}
	decode.handOffEnded(&handoff.Record{Transfer: kv.ID{9}, As: handoff.Source, OfStore: true, Unused: true, Problem: "handoff: cancelled"})
	if again := c.Look(ctx); len(again.Requests) != 0 || len(again.HandOffs) != 0 || len(again.Flows) != 1 {
		t.Errorf("told twice: %+v", again)
	}
	if err := decode.Questions.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Look(ctx).Members {
		if (m.Problem != "") != (m.Name == "d") || m.Name == "d" && m.HandOffs != 1 {
			t.Errorf("%+v", m)
		}
	}

	admin := "http://" + g.AdminAddr()
	if status, text := fetch(t, admin+dash.Prefix+"explain?id="+id.String()[:8], "", ""); status != 200 || !strings.Contains(text, "as source for engine p") || !strings.Contains(text, `"silent":["d: `) {
		t.Errorf("%d, %s", status, text)
	}
	if status, text := fetch(t, admin+"/", "", ""); status != 200 || !strings.Contains(text, "<title>Meridian</title>") {
		t.Errorf("%d, %.100s", status, text)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+dash.Prefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host, request.Close = "evil.example", true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("under another name: %d", response.StatusCode)
	}
}

// A gateway of listed engines has no agents to ask: the page shows what it knows itself.
func TestPageWithoutAgents(t *testing.T) {
	g, err := OpenGateway(t.Context(), gatewayOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	record := &ledger.Record{ID: strings.Repeat("ab", 16), Outcome: ledger.Finished}
	g.records.Add(record)
	c := dash.CellOf(front{g: g}, g.book)
	view := c.Look(t.Context())
	if len(view.Requests) != 1 || len(view.Workers) != 1 || !strings.Contains(view.Problem, "not joined") {
		t.Errorf("%+v", view)
	}
	for range 3 * dash.RowsTold {
		g.records.Add(record)
	}
	if view = c.Look(t.Context()); len(view.Requests) != dash.RowsTold || view.LeftOut.Requests != 2*dash.RowsTold {
		t.Errorf("%d requests, left out %+v", len(view.Requests), view.LeftOut)
	}
	if story, err := c.Explain(t.Context(), "abab"); err != nil || !strings.Contains(story.Text, record.ID) {
		t.Errorf("%v, %+v", err, story)
	}
}
