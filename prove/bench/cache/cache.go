// Package cache measures the shared cache of prefixes: what it finds of a recorded day and
// what that does to the first token, what a run costs from each tier, and how much of a
// disk's speed objects reach. Each part stands by itself:
//
//	trace  Mooncake's conversations ─► gateway ─► two reference engines ─► store     beside models of caches
//	tiers  one prompt: computed, from memory, from disk, from S3
//	disk   keep/store/disk beside a plain file
//	vllm   a prompt that one server of vLLM computed, at another one       beside ExampleConnector, and computing
//
// Ratios are of one run; figures of two runs cannot be compared.
package cache

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"meridian/prove/bench"
)

// The parts of a measurement.
const (
	PartTrace = "trace"
	PartTiers = "tiers"
	PartDisk  = "disk"
	PartVLLM  = "vllm"
)

// Parts are all of them, in the order in which they are measured.
func Parts() []string { return []string{PartTrace, PartTiers, PartDisk, PartVLLM} }

// Options says what to measure.
type Options struct {
	Parts    []string     `name:"part" default:"${cache_parts}" placeholder:"NAME" help:"What to measure: some of ${cache_parts}; default all."`
	Trace    string       `type:"existingfile" placeholder:"FILE" help:"Requests to send: a trace of Mooncake's, or a workload (default: a generated one in the manner of Mooncake's conversations)."`
	Requests int          `default:"200" placeholder:"N" help:"Requests of the trace that are sent, at most: whole conversations of it; default ${default}."`
	Model    string       `default:"small" placeholder:"NAME" help:"Model of the engines that serve the trace: tiny, which computes as fast as a cache can answer, or small; default ${default}."`
	Memory   bench.Size   `default:"512MiB" placeholder:"SIZE" help:"Memory of the store that serves the trace; a quarter of it where there is a tier below; default ${default}."`
	Tokens   int          `default:"900" placeholder:"N" help:"Tokens of the prompts that come from tiers; default ${default}."`
	Prompts  int          `default:"12" placeholder:"N" help:"Prompts that come from each tier; default ${default}."`
	Objects  []bench.Size `name:"object" default:"256KiB,1MiB,4MiB" placeholder:"SIZE" help:"Sizes of objects on disk; default ${default}."`
	Total    bench.Size   `default:"512MiB" placeholder:"SIZE" help:"Bytes that a round writes to the disk and reads; default ${default}."`
	Rounds   int          `default:"5" placeholder:"N" help:"Rounds that each ratio is the median of; default ${default}."`
	Dir      string       `type:"existingdir" placeholder:"DIR" help:"Where cells and disks of the measurement are (default: the system's directory for temporary files)."`
	PeersDir string       `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put versitygw, an S3 server; default ${default}."`
	Venv     string       `placeholder:"DIR" help:"Virtual environment with vLLM and Meridian's Python package (default: the active one, else .peers/vllm, else vllm on PATH)."`

	bench.Setting `kong:"-"`
}

const (
	maxTokens = 4000 // what the small model takes, less an answer
	leastRun  = 64
	// leastPrompts is more than an engine of the tiers has room for.
	leastPrompts = 6
	leastDisk    = 1 << 20
)

func (o *Options) validate() error {
	if err := bench.Known("part", o.Parts, Parts()); err != nil {
		return err
	}
	if err := bench.Known("model", []string{o.Model}, Models()); err != nil {
		return err
	}
	switch {
	case o.Rounds < 1 || o.Prompts < leastPrompts:
		return fmt.Errorf("%w: %d rounds and %d prompts; at least 1 and %d", bench.ErrOptions, o.Rounds, o.Prompts, leastPrompts)
	case o.Requests < 1:
		return fmt.Errorf("%w: %d requests; at least 1", bench.ErrOptions, o.Requests)
	case o.Memory.Bytes < 8<<20:
		return fmt.Errorf("%w: memory of %s; at least 8MiB", bench.ErrOptions, o.Memory)
	case o.Tokens < leastRun || o.Tokens > maxTokens:
		return fmt.Errorf("%w: prompts of %d tokens; %d to %d", bench.ErrOptions, o.Tokens, leastRun, maxTokens)
	case len(o.Objects) == 0:
		return fmt.Errorf("%w: no objects: say how large they are", bench.ErrOptions)
	}
	for _, size := range o.Objects {
		if size.Bytes < 4<<10 || size.Bytes > 64<<20 || size.Bytes > o.Total.Bytes {
			return fmt.Errorf("%w: objects of %s; 4KiB to 64MiB, and no more than --total, %s", bench.ErrOptions, size, o.Total)
		}
	}
	if o.Total.Bytes < leastDisk {
		return fmt.Errorf("%w: %s a round; at least 1MiB", bench.ErrOptions, o.Total)
	}
	return nil
}

// Run measures the parts that were asked for, one after the other.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Report{Head: bench.NewHead(o.Version), Machine: bench.Machine()}
	for _, part := range Parts() {
		if !slices.Contains(o.Parts, part) {
			continue
		}
		var err error
		switch part {
		case PartTrace:
			r.Trace, err = runTrace(ctx, o, r)
		case PartTiers:
			r.Tiers, err = runTiers(ctx, o, r)
		case PartDisk:
			r.Disk, err = runDisk(ctx, o)
		case PartVLLM:
			r.VLLM, err = runVLLM(ctx, o, r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
	}
	return r, nil
}

// say tells what is done between rows.
func (o *Options) say(part, what string) { o.Tell(bench.Progress{What: part + ": " + what}) }

// built has what is known of the models that engines bring along.
type built struct {
	bytesPerToken uint64
	context       int
}

var models = map[string]built{"tiny": {2 << 10, 2048}, "small": {16 << 10, 4096}}

// Models are those that a trace can be served by.
func Models() []string { return slices.Sorted(maps.Keys(models)) }

// ratio is 0 where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return bench.Rounded(a / b)
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
