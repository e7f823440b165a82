package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
)

// VLLMModel is what requests call the model.
const VLLMModel = "random"

const (
	alone    = "alone"
	meridian = "meridian"
)

// route is one way from a prompt to its first token.
type route struct {
	name string
	url  string
	pids []int // of everything that works for it
	// sleepers are those of them that are stopped while others have their turn:
	// some connectors compute without end, and there may be few cores.
	sleepers []int
	// decode is the part that generates, whose count of tokens from elsewhere
	// is read.
	decode string
	cell   *cell.Cell
}

func (r *route) cpu() (total time.Duration) {
	for _, pid := range r.pids {
		total += bench.CPUTime(pid)
	}
	return total
}

func (r *route) handed(ctx context.Context) (int64, error) {
	stats, err := r.cell.Stats(ctx, r.decode)
	if err != nil {
		return 0, err
	}
	return stats.Tokens.HandedOver, nil
}

// rest stops its clock between its turns; wake goes on.
func (r *route) rest() { r.signal(syscall.SIGSTOP) }
func (r *route) wake() { r.signal(syscall.SIGCONT) }

func (r *route) signal(s syscall.Signal) {
	for _, pid := range r.sleepers {
		_ = syscall.Kill(pid, s) // one that has ended is noticed when it does not answer
	}
}

// routes are all that is measured: a cell, and beside it one server alone and
// pairs of servers with other connectors.
type routes struct {
	all  []*route
	cell *cell.Cell
}

func (r *routes) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cellsStop)
	defer cancel()
	asking.CloseIdleConnections()
	for _, route := range r.all {
		route.wake() // who sleeps does not hear that he is to end
	}
	return r.cell.Close(ctx)
}

func (r *routes) pids() (all []int) {
	for _, route := range r.all {
		all = append(all, route.pids...)
	}
	return all
}

// surveyor starts routes.
type surveyor struct {
	options VLLMOptions
	scratch string
	spec    cell.Spec
	cell    *cell.Cell
}

// WithServerArgs is a vLLM whose servers take contexts of so many tokens, and have room
// for a few of these.
func WithServerArgs(v *cell.VLLM, longest int) *cell.VLLM {
	with := *v
	with.Args = slices.Concat(v.Args, []string{
		"--dtype", "float32", "--enforce-eager", "--max-model-len", strconv.Itoa(longest), "--max-num-batched-tokens", strconv.Itoa(max(2048, longest)),
		"--max-num-seqs", "8", "--num-gpu-blocks-override", strconv.Itoa(vllmShare * (longest/VLLMBlock + 1)), "--generation-config", "vllm",
	})
	return &with
}

// openRoutes starts everything, one pair after the other. A peer that does not
// work here is noted.
func openRoutes(ctx context.Context, o VLLMOptions, scratch, model string, report *VLLMReport) (_ *routes, err error) {
	v := WithServerArgs(o.VLLM, slices.Max(o.Tokens)+vllmAnswer+1)
	spec := cell.DefaultVLLMSpec()
	spec.Model, spec.ServedName, spec.VLLM, spec.DirectTokens = model, VLLMModel, v, 1
	c, err := (&trial{Setting: o.Setting, scratch: scratch}).open(ctx, "cell", spec) // the routes close it
	if err != nil {
		return nil, err
	}
	s := &routes{cell: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	open := &surveyor{options: o, scratch: scratch, spec: spec, cell: c}
	single, err := open.alone(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := open.route(meridian, c.Record().Gateway, "decode-0", "prefill-0", "agent-prefill", "agent-decode", "gateway", "directory")
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, single, ours)
	for _, kind := range vllmPeers {
		if !o.wants(kind.name) {
			continue
		}
		peer, err := open.pair(ctx, kind)
		if err == nil {
			err = peer.proves(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !slices.Contains(o.Peers, "auto"):
			return nil, fmt.Errorf("%w: %s: %w", bench.ErrPeer, kind.name, err)
		case err != nil:
			report.Absent = append(report.Absent, bench.Absence{Peer: kind.title, Why: firstLine(err)})
		default:
			s.all = append(s.all, peer)
		}
	}
	for _, route := range s.all {
		route.rest()
	}
	return s, nil
}

func (o *VLLMOptions) wants(peer string) bool {
	return slices.Contains(o.Peers, "auto") || slices.Contains(o.Peers, peer)
}

// route gathers what works for it.
func (o *surveyor) route(name, url, decode string, more ...string) (*route, error) {
	s := &route{name: name, url: url, decode: decode, cell: o.cell}
	for _, part := range append([]string{decode}, more...) {
		r := o.cell.Record().Part(part)
		if r == nil || r.Process == nil {
			return nil, fmt.Errorf("bench: %s does not run", part)
		}
		pids, err := r.Process.PIDs()
		if err != nil {
			return nil, err
		}
		s.pids = append(s.pids, pids...)
		if r.Kind != cell.Agent && r.Kind != cell.Directory { // there are leases to keep
			s.sleepers = append(s.sleepers, pids...)
		}
	}
	return s, nil
}

func (o *surveyor) alone(ctx context.Context) (*route, error) {
	plan, err := o.spec.Alone(alone)
	if err != nil {
		return nil, err
	}
	server, err := o.cell.Add(ctx, plan)
	if err != nil {
		return nil, err
	}
	gateway, err := addGateway(ctx, o.cell, o.scratch, alone, "", "--both", server.URL, "--direct-tokens", strconv.Itoa(maxVLLMTokens))
	if err != nil {
		return nil, err
	}
	return o.route(alone, gateway.URL, alone, gateway.Name)
}

// pair starts two servers with another connector, and a gateway before them.
func (o *surveyor) pair(ctx context.Context, kind vllmPeer) (*route, error) {
	setting, err := kind.prepare(o)
	if err != nil {
		return nil, err
	}
	urls := make(map[cell.Kind]string)
	var names []string
	for i, k := range []cell.Kind{cell.Prefill, cell.Decode} {
		name := fmt.Sprintf("%s-%s", kind.name, k)
		plan, err := o.spec.VLLM.Serve(cell.Server{
			Name: name, Kind: cell.Beside, Model: o.spec.Model, ServedName: VLLMModel, Cut: o.spec.Decode, Together: 2,
			Transfer: setting.transfer, Environment: setting.environment(i),
		})
		if err != nil {
			return nil, err
		}
		server, err := o.cell.Add(ctx, plan)
		if err != nil {
			return nil, err
		}
		urls[k], names = server.URL, append(names, name)
	}
	gateway, err := addGateway(ctx, o.cell, o.scratch, kind.name, "", "--prefill", urls[cell.Prefill], "--decode", urls[cell.Decode], "--direct-tokens", "1")
	if err != nil {
		return nil, err
	}
	return o.route(kind.name, gateway.URL, names[1], names[0], gateway.Name)
}

// proves has one prompt handed over: a route that computes everything twice
// would be measured for something else.
func (r *route) proves(ctx context.Context) error {
	_, err := r.take(ctx, NewPrompts(0, 0, 1, 4*VLLMBlock))
	return err
}
