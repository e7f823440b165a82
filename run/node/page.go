package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"meridian/move/agent/peerquery"
	"meridian/see/dash"
	"meridian/serve/gateway"
)

// front is the gateway as its page sees it.
type front struct {
	g       *Gateway
	version string
}

func (f front) Gateway() dash.Gateway {
	m := f.g.Metrics()
	scheme := "http"
	if f.g.HasTLS() {
		scheme = "https"
	}
	shown := dash.Gateway{
		Version: f.version, URL: scheme + "://" + f.g.Addr(), Ready: f.g.IsReady(), Running: m.Running, Waiting: m.Waiting, Connections: m.Connections,
		DirectoryKnown: m.DirectoryKnown, Outcomes: m.Requests, KV: m.KV, PromptTokens: m.PromptTokens, OutputTokens: m.OutputTokens, Resumed: m.Resumed,
	}
	for _, name := range gateway.Phases {
		phase := m.Phases[name]
		p := dash.Phase{Name: name, Bounds: slices.Sorted(maps.Keys(phase.Buckets))}
		for _, bound := range p.Bounds {
			p.Counts = append(p.Counts, phase.Buckets[bound])
		}
		p.Counts = append(p.Counts, phase.Count)
		shown.Phases = append(shown.Phases, p)
	}
	return shown
}

func (f front) Workers() []dash.Worker {
	workers := []dash.Worker{}
	for _, e := range f.g.Engines() {
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

func (f front) Questions() (*peerquery.Service, error) {
	n, err := f.g.Member()
	if err != nil {
		return nil, err
	}
	return n.Questions, nil
}
