package gpu

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"strings"
	"time"

	"meridian/prove/bench"
)

//go:embed peers/*.py
var drivers embed.FS

// peerTotal bounds a round of a peer's: the slowest move a quarter of a gigabyte a
// second, and what they reach does not depend on it.
const peerTotal = 64 << 20

// contender is another program that moves such memory between two processes.
type contender struct {
	// name is the fabric of its rows.
	name   string
	driver string
	// environment is for its processes.
	environment []string
	// fabrics are ours that its rows stand beside.
	fabrics []string
	// kinds are the memory of the serving side that it is measured with; the posting
	// side's is a GPU's.
	kinds []string
}

var contenders = []contender{
	{
		name: "nixl", driver: "nixl_gpu.py", fabrics: []string{"host"}, kinds: []string{onGPU, onHost},
		environment: []string{"NIXL_LOG_LEVEL=ERROR", "UCX_LOG_LEVEL=error", "UCX_TLS=all"},
	},
	{
		name: "nixl tcp", driver: "nixl_gpu.py", fabrics: []string{"tcp"}, kinds: []string{onGPU},
		environment: []string{"NIXL_LOG_LEVEL=ERROR", "UCX_LOG_LEVEL=error", "UCX_TLS=tcp,cuda_copy", "UCX_NET_DEVICES=lo"},
	},
	{name: "torch", driver: "torch_gpu.py", fabrics: []string{"host"}, kinds: []string{onGPU}},
}

func (p contender) cases(o Options) (all []Case) {
	for _, kind := range p.kinds {
		for _, b := range o.Blocks {
			for _, op := range []string{"read", "write"} {
				all = append(all, Case{Fabric: p.name, Op: op, Local: onGPU, Remote: kind, Shape: Scattered, Block: b.Text, block: b.Bytes, total: min(peerTotal, o.Total.Bytes)})
			}
		}
	}
	return all
}

// beside measures what a matmul loop loses, and the contenders. Who is not there, or
// fails, is named as absent: the rest of the report is none the worse for it.
func (r *Report) beside(ctx context.Context, near *side, far introduction, o Options) error {
	if err := r.matmul(ctx, near, far, o); err != nil {
		r.miss("matmul", o, err)
	}
	for _, p := range contenders {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rows, err := p.measure(ctx, o)
		r.Rows = append(r.Rows, rows...)
		if err != nil {
			r.miss(p.name, o, err)
		}
	}
	return context.Cause(ctx)
}

func (r *Report) miss(name string, o Options, err error) {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	why := lines[len(lines)-1] // of a Python traceback the last line says it
	r.Absent = append(r.Absent, bench.Absence{Peer: name, Why: o.Python + ": " + why, Fix: "--python PYTHON with torch and nixl"})
}

// measure has two processes of a contender move the bytes of its rows, and compares
// what lies at the destination.
func (p contender) measure(ctx context.Context, o Options) (rows []Row, err error) {
	pair, err := openPair(ctx, p, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pair.CloseWithin(stopLimit) }() // its figures are taken: how it ends is its own business
	cases := p.cases(o)
	for i, c := range cases {
		figure, err := pair.figure(ctx, c, o, func(round int) {
			o.Tell(bench.Progress{Row: i + 1, Rows: len(cases), What: c.String(), Round: round, Rounds: o.Rounds, Who: p.name})
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, Row{Case: c, Figure: figure})
	}
	return rows, nil
}

// The sides by the numbers that the drivers know.
const (
	postingSide = 1
	servingSide = 2
)

// patience is how long a contender's process may take to answer: importing torch takes
// many seconds where a disk is cold.
const patience = 3 * time.Minute

// stopLimit is how long a process, or a side, may take to end.
const stopLimit = 10 * time.Second

func openPair(ctx context.Context, p contender, o Options) (_ *pair, err error) {
	processes, err := bench.OpenPair(p.name, drivers, o.Python, p.driver, p.environment)
	both := &pair{processes}
	defer func() {
		if err != nil {
			err = errors.Join(both.CloseWithin(stopLimit), err)
		}
	}()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	open := func(side int) map[string]any {
		return map[string]any{"do": "open", "device": o.device(), "bytes": min(peerTotal, o.Total.Bytes), "side": side}
	}
	_, err = both.Introduce(ctx, open(postingSide), open(servingSide))
	return both, err
}

// pair is the two processes of a contender.
type pair struct{ *bench.Pair }

// device is what torch calls the memory of the side: tests have no GPU.
func (o Options) device() string { return cmp.Or(o.torchDevice, "cuda") }

func (p *pair) figure(ctx context.Context, c Case, o Options, tell func(round int)) (bench.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	load := map[string]any{"op": c.Op, "local": c.Local, "remote": c.Remote, "block": c.block, "total": c.total}
	if err := p.Both(ctx, map[string]any{"do": "load", "case": load}); err != nil {
		return bench.Figure{}, err
	}
	var scores []float64
	for round := range o.Rounds + 1 { // the first one is the warm-up
		tell(round)
		seconds, err := p.Round(ctx)
		if err != nil {
			return bench.Figure{}, err
		}
		if round > 0 {
			scores = append(scores, float64(c.total)/seconds/1e9)
		}
	}
	return bench.NewFigure(scores), p.Both(ctx, map[string]any{"do": "check"})
}
