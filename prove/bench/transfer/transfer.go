// Package transfer measures how fast Meridian moves bytes, side by side with
// others that move bytes on the same machine in the same minutes. Hand-offs are
// measured here, too: they are compared with plain transfers of the same bytes in
// the same run, between the same two processes.
//
//	          ┌ ours ─────┬── serving process (the command itself, again), or
//	          │           │   both sides in this process: inproc, file
//	          ├ nixl ─────┼── two Python processes
//	rounds ─► ├ mooncake ─┼── two Python processes
//	          ├ iperf3 ───┼── client and server
//	          └ memcpy ───┘   this process, one goroutine a core
//
// A row is one operation, block size and layout. Everybody in turn moves the
// row's bytes once, then everybody again, round by round, so that a machine
// that slows down slows all of them down. A contender that waits for its turn is stopped:
// some of them spin. Contents depend on their position, the destination is
// cleared before the last round and read after it: a block that is missing,
// swapped or too long fails the run.
//
// RunHandOff measures hand-offs of whole requests in the same way, between a
// prefill engine in a process of its own and a decode engine in this one, beside
// a plain transfer of as many bytes.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/prove/bench"
)

// Options says what to measure.
type Options struct {
	Fabrics []string     `name:"fabric" default:"tcp" placeholder:"NAME" help:"Fabrics to measure (${fabrics}); default ${default}."`
	Ops     []string     `name:"op" default:"read,write" placeholder:"OP" help:"Operations: read, write; default both."`
	Blocks  []bench.Size `name:"block" default:"4KiB,16KiB,64KiB,256KiB,1MiB" placeholder:"SIZE" help:"Block sizes; default ${default}."`
	Total   bench.Size   `default:"256MiB" placeholder:"SIZE" help:"Bytes that one round moves; default ${default}."`
	Layouts []Layout     `name:"layout" default:"scattered,dense" placeholder:"NAME" help:"How blocks lie in memory: scattered, dense; default both."`
	// Streams: 0 means one per core, at most 8.
	Streams   int      `placeholder:"N" help:"Connections of tcp; transfers at a time of inproc and file, which move each with one core. Default one per core, at most 8."`
	Checksums []string `name:"checksum" default:"on" placeholder:"on|off" help:"Whether Meridian checksums: on, off, or on,off for a row of each; default ${default}. Peers never do."`
	// Protect: empty means none.
	Protect    []string `default:"none" placeholder:"HOW" help:"How Meridian's memory is protected: some of none, grants, tls, each with a row of its own; default ${default}. grants has agents check a grant of the row's blocks, tls is that over TLS 1.3 (tcp only). Peers never are."`
	Rounds     int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Peers      []string `default:"auto" placeholder:"NAME" help:"Who to measure beside: auto for all that are installed, none, or some of ${peers}; default ${default}."`
	Pin        bool     `help:"Give each of Meridian's two processes half of the cores. Peers are pinned if they are faster so."`
	Latency    bool     `help:"Measure the latency of a 4 KiB write with notification instead."`
	Dir        string   `type:"existingdir" placeholder:"DIR" help:"Where host makes its sockets and file its file (default: the system's directory for temporary files)."`
	PeersDir   string   `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put NIXL and Mooncake; default ${default}."`
	CPUProfile string   `name:"cpuprofile" placeholder:"DIR" help:"Write CPU profiles of both of Meridian's processes there."`
	// ServeCommand runs Serve with its standard input and output.
	ServeCommand  []string `kong:"-"`
	bench.Setting `kong:"-"`
}

func (o *Options) validate() error {
	if o.Rounds < 1 {
		return fmt.Errorf("%w: %d rounds; at least 1", bench.ErrOptions, o.Rounds)
	}
	if o.Streams < 0 || o.Streams > 64 {
		return fmt.Errorf("%w: %d streams; 1 to 64, or 0 for one per core", bench.ErrOptions, o.Streams)
	}
	if err := errors.Join(
		bench.Known("fabric", o.Fabrics, FabricNames()), bench.Known("operation", o.Ops, []string{"read", "write"}),
		bench.Known("checksum setting", o.Checksums, []string{"on", "off"}), bench.Known("layout", o.Layouts, []Layout{Scattered, Dense}),
		bench.Known("protection", o.Protect, Protections()),
		o.validatePeers(),
	); err != nil {
		return err
	}
	if err := errors.Join(o.validateKinds(), o.validateProtection()); err != nil {
		return err
	}
	if len(o.Blocks) == 0 || o.Total.Bytes == 0 {
		return fmt.Errorf("%w: nothing to move", bench.ErrOptions)
	}
	for _, block := range o.Blocks {
		if block.Bytes == 0 || block.Bytes%wordBytes != 0 || o.Total.Bytes%block.Bytes != 0 {
			return fmt.Errorf("%w: blocks of %s in a total of %s; a block is a multiple of %d bytes and divides the total",
				bench.ErrOptions, block, o.Total, wordBytes)
		}
	}
	return nil
}

// validateKinds refuses what a fabric cannot do.
func (o *Options) validateKinds() error {
	for _, name := range o.Fabrics {
		kind := fabricByName(name)
		if o.Latency && kind.onDisk {
			return fmt.Errorf("%w: the latency of a write with notification over %s: no peer is there to be notified", bench.ErrOptions, name)
		}
		for _, peer := range o.Peers {
			if why := kind.unfit[peer]; why != "" {
				return fmt.Errorf("%w: no %s beside %s: %s", bench.ErrOptions, peer, name, why)
			}
		}
	}
	return nil
}

// Case is one row's work.
type Case struct {
	Op     string `json:"op"`
	Block  uint64 `json:"block"`
	Total  uint64 `json:"total"`
	Layout Layout `json:"layout"`
}

func (o *Options) cases() (all []Case, blocks []bench.Size) {
	for _, op := range o.Ops {
		for _, layout := range o.Layouts {
			for _, block := range o.Blocks {
				all = append(all, Case{Op: op, Block: block.Bytes, Total: o.Total.Bytes, Layout: layout})
				blocks = append(blocks, block)
			}
		}
	}
	return all, blocks
}

// contender is one that can do a row's work.
type contender interface {
	bench.Contender
	// load makes ready for a row: contents in the source, none in the
	// destination.
	load(ctx context.Context, c Case) error
	// round moves the row's bytes once and says how fast, in GB/s.
	round(ctx context.Context, pinned bool) (gbps float64, err error)
	// clear empties the destination; verify reads it.
	clear(ctx context.Context) error
	verify(ctx context.Context) error
	// rest and wake come around everybody else's turn.
	rest()
	wake()
}

// roundLimit bounds one round of one contender: far more than the slowest
// takes, so that one that hangs is given up instead of waited for.
const roundLimit = 2 * time.Minute

// Run measures. The report is complete or there is an error; a peer that fails
// on the way is left out from there on, and the report says why.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Protect) == 0 {
		o.Protect = []string{noProtection}
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Streams == 0 {
		o.Streams = defaultStreams()
	}
	stop, err := bench.StartProfile(o.CPUProfile, "posting")
	if err != nil {
		return nil, err
	}
	report, err := measure(ctx, o)
	return report, errors.Join(err, stop())
}

func measure(ctx context.Context, o Options) (*Report, error) {
	report := newReport(o)
	meter := bench.StartMeter(nil)
	for _, name := range o.Fabrics {
		var err error
		if o.Latency {
			err = measureLatency(ctx, o, name, report)
		} else {
			err = measureThroughput(ctx, o, name, report)
		}
		if err != nil {
			return nil, err
		}
	}
	report.Others = meter.Others()
	return report, nil
}

// defaultStreams is one per core, at most 8.
func defaultStreams() int { return min(8, len(bench.UsableCores())) }
