package transfer

import (
	"context"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/member/directory/etcd/embedded"
	"meridian/member/trust"
	"meridian/prove/bench"
	"meridian/run/node"
	"meridian/see/telemetry"
	"meridian/serve/gateway"
)

// cellSetup is what processes of a cell need to find one another.
type cellSetup struct {
	StateDir string `json:"state_dir"`
	// Collector is where spans and metrics are sent.
	Collector string `json:"collector"`
}

const (
	// spareBlocks has an engine of a cell keep most of its memory to itself, as agents
	// demand: they hold less than a third of its blocks for others.
	spareBlocks = 4
	// traceEvery is of how many hand-offs one is traced: 1 %.
	traceEvery = 100
)

// openInCell opens the agent of an engine as `meridian agent` does: found by the
// directory, with records that are written down, metrics, questions and traces.
func (e *engine) openInCell(ctx context.Context, s staging) (err error) {
	e.node, err = node.OpenAgent(ctx, node.AgentOptions{
		Name: agentName(e.which), Fabrics: []string{s.Fabric}, Listen: "127.0.0.1:0", Streams: s.Streams, StateDir: s.Cell.StateDir, Door: &node.Door{},
		Metrics: "127.0.0.1:0", OTLPEndpoint: s.Cell.Collector, Build: telemetry.Build{Version: "bench"},
	})
	if err != nil {
		return err
	}
	e.Closes(e.node.Close) // with both
	e.agent, e.transceiver = e.node.Agent, e.node.Transceiver
	return nil
}

// trace has this side's part of a hand-off traced. Only an engine of a cell can.
func (e *engine) trace(id kv.ID, kind trust.LegKind) {
	e.node.History.LegAsked(trust.Leg{Kind: kind, ID: id, Engine: e.agent.Name(), Trace: trust.Trace{ID: id, Span: telemetry.NewSpanID(), Sampled: true}})
}

// restOfCell is what a cell has beside the agents of its engines: a directory, and a
// gateway with its page.
type restOfCell struct {
	bench.Opened
	gateway *node.Gateway
}

// openRest opens both, in a process of their own.
func openRest(ctx context.Context, c cellSetup) (_ *restOfCell, err error) {
	r := &restOfCell{}
	defer r.Unless(ctx, &err)
	directory, err := embedded.Open(ctx, embedded.Options{Dir: c.StateDir})
	if err != nil {
		return nil, err
	}
	r.Closes(directory.Close)
	r.gateway, err = node.OpenGateway(ctx, node.GatewayOptions{
		Options: gateway.Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0"}, StateDir: c.StateDir, OTLPEndpoint: c.Collector,
		Build: telemetry.Build{Version: "bench"}, PageLinger: time.Nanosecond,
	})
	if err == nil {
		r.Closes(r.gateway.Close)
	}
	return r, err
}

// unwatched waits until the gateway does not look at the cell any more.
func (r *restOfCell) unwatched(ctx context.Context) error {
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for r.gateway.IsWatched() {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("bench: the gateway goes on looking at its cell: %w", ctx.Err())
		}
	}
	return nil
}

// watched answers what is asked of the gateway's process, and of the watcher's.
func (s *server) watched(ctx context.Context, r request) (a answer, err error) {
	if (r.Do == "unwatched") != (s.rest != nil) && r.Do != "cell" || (s.watcher == nil) && (r.Do == "watch" || r.Do == "leave") {
		return a, fmt.Errorf("%q is not for this process", r.Do)
	}
	switch r.Do {
	case "cell":
		if s.rest, err = openRest(ctx, *r.Cell); err != nil {
			return a, err
		}
		s.opened.Closes(s.rest.Close)
		return answer{Address: s.rest.gateway.AdminAddr()}, nil
	case "unwatched":
		return a, s.rest.unwatched(ctx)
	case "collect":
		if s.watcher, err = openWatcher(ctx); err != nil {
			return a, err
		}
		s.opened.Closes(s.watcher.close)
		return answer{Address: s.watcher.address()}, nil
	case "watch":
		return a, s.watcher.watch(ctx, r.URL)
	}
	return answer{Seen: new(s.watcher.leave())}, nil
}
