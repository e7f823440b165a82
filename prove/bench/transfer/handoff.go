package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/prove/bench"
)

// HandOffOptions says which hand-offs to measure.
type HandOffOptions struct {
	Models []string `name:"model" sep:"none" default:"llama-3.1-70b" placeholder:"MODEL" help:"A model by name, or its shape, e.g. layers=7,kv_heads=4,head_dim=8,dtype=bf16; may be given several times; default ${default}."`
	Tokens []Tokens `default:"1k,8k" placeholder:"N" help:"Tokens of a request; 8k means 8 × 1024; default ${default}."`
	// From and To are as reshard.ParseSide takes them.
	From       string   `default:"tp=4,pp=1,block=16" placeholder:"SIDE" help:"How the prefill engine cuts and keeps the cache; default ${default}."`
	To         string   `default:"tp=2,pp=2,block=64" placeholder:"SIDE" help:"The same for the decode engine; default ${default}."`
	Fabrics    []string `name:"fabric" default:"tcp" placeholder:"NAME" help:"Fabrics to measure (tcp, host); default ${default}."`
	Concurrent []int    `default:"1" placeholder:"N" help:"Hand-offs at a time, e.g. 1,64; default ${default}."`
	Rounds     int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	// Models are sized down to Memory.
	Memory bench.Size `default:"1GiB" placeholder:"SIZE" help:"What the cache of either side may take; default ${default}. A run takes about six times that."`
	// Streams: 0 means one per core, at most 8.
	Streams int           `placeholder:"N" help:"Connections of tcp. Default one per core, at most 8."`
	Round   time.Duration `default:"5s" placeholder:"TIME" help:"For how long a round goes on, with --observed; default ${default}."`
	Dir     string        `type:"existingdir" placeholder:"DIR" help:"Where host makes its sockets (default: the system's directory for temporary files)."`
	// ServeCommand runs Serve with its standard input and output.
	ServeCommand  []string `kong:"-"`
	bench.Setting `kong:"-"`
}

const (
	maxConcurrent = 1024
	minMemory     = 1 << 20
)

// errands lists the rows, sized down to fit.
func (o *HandOffOptions) errands() (all []Errand, err error) {
	for _, model := range o.Models {
		g, err := kv.ParseGeometry(model)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
		}
		for _, tokens := range o.Tokens {
			for _, concurrent := range o.Concurrent {
				e := Errand{Model: model, Layers: len(g.Layers), Tokens: tokens.Count, Concurrent: concurrent, From: o.From, To: o.To}
				if err = e.check(); err == nil {
					e, err = e.sizedDown(o.Memory.Bytes)
				}
				if err == nil {
					_, _, err = e.load()
				}
				if err != nil {
					return nil, fmt.Errorf("%w: %v: %w", bench.ErrOptions, e, err)
				}
				all = append(all, e)
			}
		}
	}
	return all, nil
}

func (o *HandOffOptions) validate() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("%w: %d rounds; at least 1", bench.ErrOptions, o.Rounds)
	case o.Streams < 0 || o.Streams > 64:
		return fmt.Errorf("%w: %d streams; 1 to 64, or 0 for one per core", bench.ErrOptions, o.Streams)
	case len(o.Models) == 0 || len(o.Tokens) == 0 || len(o.Concurrent) == 0:
		return fmt.Errorf("%w: nothing to hand over: name a model, tokens and how many at a time", bench.ErrOptions)
	case o.Memory.Bytes < minMemory:
		return fmt.Errorf("%w: %s of memory; at least %d bytes", bench.ErrOptions, o.Memory, minMemory)
	}
	for _, n := range o.Concurrent {
		if n < 1 || n > maxConcurrent {
			return fmt.Errorf("%w: %d hand-offs at a time; 1 to %d", bench.ErrOptions, n, maxConcurrent)
		}
	}
	return bench.Known("fabric", o.Fabrics, []string{"tcp", "host"})
}

// fill sets what was left open.
func (o *HandOffOptions) fill() {
	if o.Streams == 0 {
		o.Streams = defaultStreams()
	}
}

// each measures every errand, by its number, over every fabric, and tells how far it is;
// how says in which way.
func (o *HandOffOptions) each(errands []Errand, how string, measure func(fabric string, k int, progress func(round int, who string)) error) error {
	for i, name := range o.Fabrics {
		for k, e := range errands {
			what := fmt.Sprintf("%s %v%s", name, e, how)
			progress := func(round int, who string) {
				o.Tell(bench.Progress{
					Row: i*len(errands) + k + 1, Rows: len(errands) * len(o.Fabrics), What: what, Round: round, Rounds: o.Rounds, Who: who,
				})
			}
			if err := measure(name, k, progress); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	return nil
}

// RunHandOff measures hand-offs: a prefill engine in a process of its own, a
// decode engine in this one that reads. Beside them, round by round, the same
// number of bytes is moved as a plain transfer between two processes, and
// several requests also go one by one. The destination is cleared before the
// last round and compared after it with a direct shard of the cache.
func RunHandOff(ctx context.Context, o HandOffOptions) (*HandOffReport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	errands, err := o.errands()
	if err != nil {
		return nil, err
	}
	o.fill()
	report := newHandOffReport(o)
	meter := bench.StartMeter(nil)
	err = o.each(errands, "", func(name string, k int, progress func(int, string)) error {
		row, err := handOver(ctx, o, name, errands[k], progress)
		if err == nil {
			report.add(row, o.Tokens[k/len(o.Concurrent)%len(o.Tokens)])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	report.Others = meter.Others()
	return report, nil
}

// mover is one that moves an errand's bytes; see contender.
type mover interface {
	Name() string
	round(ctx context.Context, pinned bool) (gbps float64, err error)
	clear(ctx context.Context) error
	verify(ctx context.Context) error
}

// handOver measures one row.
func handOver(ctx context.Context, o HandOffOptions, fabricName string, e Errand, progress func(int, string)) (row HandOffRow, err error) {
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	kind := fabricByName(fabricName)
	r, err := openRelay(opening, o, kind, e, nil)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, r.CloseWithin(closeLimit)) }()
	plain, err := openPlain(opening, o, kind, e)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, plain.CloseWithin(closeLimit)) }()
	movers := []mover{runner{r, true}, plain}
	if e.Concurrent > 1 {
		movers = append(movers, runner{r, false})
	}
	meter := bench.StartMeter([]int{r.child.PID(), plain.child.PID()})
	scores := make([][]float64, len(movers))
	for round := range o.Rounds + 1 {
		if round == 1 {
			r.records = nil // what warmed up
		}
		for i, m := range movers {
			progress(round, m.Name())
			got, err := moveOnce(ctx, m, round == o.Rounds)
			if err != nil {
				return row, fmt.Errorf("round %d, %s: %w", round, m.Name(), err)
			}
			if round > 0 {
				scores[i] = append(scores[i], got)
			}
		}
	}
	row = r.row(fabricName, e, scores)
	row.PlainBlock, row.others = plain.current.Block, meter.Others()
	return row, nil
}

// moveOnce is one turn of one mover; the last one starts with an empty
// destination and must leave the right one.
func moveOnce(ctx context.Context, m mover, last bool) (got float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	if last {
		if err := m.clear(ctx); err != nil {
			return 0, err
		}
	}
	if got, err = m.round(ctx, false); err == nil && last {
		err = m.verify(ctx)
	}
	return got, err
}

// openPlain makes ready to read as many bytes, in scattered blocks as large as
// the source's are in one layer of one rank, with nothing to agree on before.
func openPlain(ctx context.Context, o HandOffOptions, kind fabricKind, e Errand) (*ours, error) {
	bytes, block, err := e.load()
	if err != nil {
		return nil, err
	}
	total := max(block, bytes/block*block)
	m, err := openOurs(ctx, Options{
		Streams: o.Streams, Total: bench.Size{Bytes: total}, Dir: o.Dir, ServeCommand: o.ServeCommand,
	}, kind, variant{checksum: "on", protect: noProtection})
	if err != nil {
		return nil, err
	}
	if err := m.load(ctx, Case{Op: "read", Block: block, Total: total, Layout: Scattered}); err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}
