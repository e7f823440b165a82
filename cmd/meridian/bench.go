package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"meridian/bench"
)

type benchCommands struct {
	Transfer benchTransfer `cmd:"" help:"How fast bytes move from memory to memory, beside NIXL, Mooncake, iperf3 and memcpy."`
	Serve    benchServe    `cmd:"" name:"__serve" hidden:""`
}

type benchTransfer struct {
	Fabric     []string       `default:"tcp" placeholder:"NAME" help:"Fabrics to measure (${fabrics}); default ${default}."`
	Op         []string       `default:"read,write" placeholder:"OP" help:"Operations: read, write; default both."`
	Block      []bench.Size   `default:"4KiB,16KiB,64KiB,256KiB,1MiB" placeholder:"SIZE" help:"Block sizes; default ${default}."`
	Total      bench.Size     `default:"256MiB" placeholder:"SIZE" help:"Bytes that one round moves; default ${default}."`
	Layout     []bench.Layout `default:"scattered,dense" placeholder:"NAME" help:"How blocks lie in memory: scattered, dense; default both."`
	Streams    int            `placeholder:"N" help:"Connections of tcp; transfers at a time of inproc and file, which move each with one core. Default one per core, at most 8."`
	Checksum   []string       `default:"on" placeholder:"on|off" help:"Whether Meridian checksums: on, off, or on,off for a row of each; default ${default}. Peers never do."`
	Rounds     int            `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Peers      []string       `default:"auto" placeholder:"NAME" help:"Who to measure beside: auto for all that are installed, none, or some of ${peers}; default ${default}."`
	JSON       string         `placeholder:"FILE" help:"Write the rows to this file; - for standard output, without the table."`
	Pin        bool           `help:"Give each of Meridian's two processes half of the cores. Peers are pinned if they are faster so."`
	Dir        string         `type:"existingdir" placeholder:"DIR" help:"Where host makes its sockets and file its file (default: the system's directory for temporary files)."`
	Latency    bool           `help:"Measure the latency of a 4 KiB write with notification instead."`
	PeersDir   string         `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put NIXL and Mooncake; default ${default}."`
	CPUProfile string         `name:"cpuprofile" placeholder:"DIR" help:"Write CPU profiles of both of Meridian's processes there."`
}

func (c *benchTransfer) Help() string {
	return "Everybody moves the same bytes in turn, round by round, between two processes on this machine; over inproc and file, " +
		"within one. What arrives is compared with what was sent. Ratios from one run can be compared; figures from two runs can not.\n\n" +
		"With --cpuprofile,\n\n  go tool pprof -tagignore=bench -top DIR/serving-tcp.pprof\n\n" +
		"leaves out what is not part of a transfer."
}

func (c *benchTransfer) Run(std *stdio) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := bench.Run(ctx, bench.Options{
		Fabrics: c.Fabric, Ops: c.Op, Blocks: c.Block, Total: c.Total, Layouts: c.Layout, Checksums: c.Checksum,
		Streams: c.Streams, Rounds: c.Rounds, Peers: c.Peers, Dir: c.Dir, PeersDir: c.PeersDir, Pin: c.Pin, Latency: c.Latency,
		CPUProfile: c.CPUProfile, ServeCommand: []string{self, "bench", "__serve"}, Version: thisBuild().Version,
		Progress: progressOn(std.err),
	})
	if f, isFile := std.err.(*os.File); isFile && isTerminal(f) {
		fmt.Fprint(std.err, "\r\x1b[K")
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: what was measured until then is not reported")
	case errors.Is(err, bench.ErrOptions):
		return &failure{err: err, hint: "`meridian bench transfer --help` lists what it takes", status: exitInvalid}
	case errors.Is(err, bench.ErrPeer):
		return &failure{err: err, hint: "--peers auto measures beside what is there", status: exitFailure}
	case err != nil:
		return err
	}
	return c.print(std, report)
}

func (c *benchTransfer) print(std *stdio, report *bench.Report) error {
	switch c.JSON {
	case "-":
		return report.WriteJSON(std.out)
	case "":
		return report.WriteText(std.out)
	}
	return errors.Join(report.WriteText(std.out), writeWhole(c.JSON, report.WriteJSON))
}

// progressOn shows where a run is: on a terminal in one line that is written
// over, elsewhere in a line for each row.
func progressOn(w io.Writer) func(bench.Progress) {
	if f, isFile := w.(*os.File); isFile && isTerminal(f) {
		return func(p bench.Progress) { fmt.Fprintf(w, "\r\x1b[K%s", p) }
	}
	said := ""
	return func(p bench.Progress) {
		if p.What != said {
			said = p.What
			fmt.Fprintf(w, "[%d/%d] %s\n", p.Row, p.Rows, p.What)
		}
	}
}

// benchServe is the other side of a measurement; bench transfer starts it.
type benchServe struct{}

func (c *benchServe) Run(std *stdio) error { return bench.Serve(std.in, std.out) }
