package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"meridian/prove/bench"
	"meridian/prove/bench/transfer"
)

type benchCommands struct {
	Transfer benchTransfer `cmd:"" help:"How fast bytes move from memory to memory, beside NIXL, Mooncake, iperf3 and memcpy."`
	Handoff  benchHandoff  `cmd:"" help:"How fast the KV cache of requests moves from a prefill engine to a decode engine that is cut differently."`
	Store    benchStore    `cmd:"" help:"How fast objects are put and got, beside Mooncake's store, Redis, plain transfers and memcpy."`
	Cache    benchCache    `cmd:"" help:"What the shared cache of prefixes finds, what a run costs from each tier, and what of a disk it uses."`
	Gateway  benchGateway  `cmd:"" help:"What the gateway adds to a request, and how many it serves on one core."`
	Turns    benchTurns    `cmd:"" help:"What a second turn's first token takes, for a model that thinks, with gateway.warm_next_turn and without."`
	Moves    benchMoves    `cmd:"" help:"What a client notices of an answer that moves to another engine, beside one whose engine is lost."`
	Policies benchPolicies `cmd:"" help:"What each scheduling policy does to a mixed load on a cell: latencies by phase, throughput, preemptions."`
	Forcing  benchForcing  `cmd:"" help:"How many tokens the ends that a governor forces save, on scripted entropies, and how soon they come."`
	VLLM     benchVLLM     `cmd:"" name:"vllm" help:"What a hand-off between servers of vLLM adds to the first token, beside vLLM's own connectors."`
	Step     benchStep     `cmd:"" help:"What it costs an engine to tell of a step and to hear what is decided, over the engine door."`
	CUDA     benchCUDA     `cmd:"" name:"cuda" help:"How fast GPU memory moves between two processes, beside CUDA's own copies."`
	GPU      benchGPU      `cmd:"" name:"__gpu" hidden:""`
	Serve    benchServe    `cmd:"" name:"__serve" hidden:""`
	Own      benchOwn      `cmd:"" name:"__own" hidden:""`
	Phase    movedBench    `cmd:"" hidden:"" passthrough:""`
	Block    movedBench    `cmd:"" hidden:"" passthrough:""`
	Replay   movedBench    `cmd:"" hidden:"" passthrough:""`
	Probe    movedBench    `cmd:"" hidden:"" passthrough:""`
	Sched    movedBench    `cmd:"" hidden:"" passthrough:""`
}

type benchTransfer struct {
	transfer.Options
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchTransfer) Help() string {
	return "Everybody moves the same bytes in turn, round by round, between two processes on this machine; over inproc and file, " +
		"within one. What arrives is compared with what was sent. Ratios from one run can be compared; figures from two runs can not.\n\n" +
		"With --cpuprofile,\n\n  go tool pprof -tagignore=bench -top DIR/serving-tcp.pprof\n\n" +
		"leaves out what is not part of a transfer."
}

func (c *benchTransfer) Run(std *stdio) error {
	var err error
	if c.ServeCommand, err = ourselves("bench", "__serve"); err != nil {
		return err
	}
	c.Setting = settingOf(std)
	return measure(std, "bench transfer", transfer.Run, c.Options, c.JSON)
}

// ourselves is a command of this program.
func ourselves(words ...string) ([]string, error) {
	self, err := os.Executable()
	return append([]string{self}, words...), err
}

// measure measures until it is done or interrupted, and prints what came out.
func measure[O any, F findings](std *stdio, command string, run func(context.Context, O) (F, error), options O, file rowsFile) error {
	ctx, stop := untilStopped()
	defer stop()
	found, err := run(ctx, options)
	if err := measured(ctx, std, err, command); err != nil {
		return err
	}
	return printReport(std, found, file)
}

// measured ends the line of progress and says why a run failed.
func measured(ctx context.Context, std *stdio, err error, command string) error {
	endLine(std.err)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: what was measured until then is not reported")
	case errors.Is(err, bench.ErrOptions):
		return &failure{err: err, hint: "`meridian " + command + " --help` lists what it takes", status: exitInvalid}
	case errors.Is(err, bench.ErrPeer):
		return &failure{err: err, hint: "--peers auto measures beside what is there", status: exitFailure}
	}
	return err
}

// rowsFile is where rows go: - is standard output, which a flag without a value
// means, too; empty means that there is a table only.
type rowsFile string

// Decode lets kong take `--json` and `--json FILE`.
func (f *rowsFile) Decode(ctx *kong.DecodeContext) error {
	*f = "-"
	if !ctx.Scan.Peek().IsValue() {
		return nil
	}
	return ctx.Scan.PopValueInto("file", (*string)(f))
}

// findings is what a measurement found.
type findings interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// printReport writes a table, or rows into a file, or both.
func printReport(std *stdio, r findings, file rowsFile) error {
	switch file {
	case "-":
		return r.WriteJSON(std.out)
	case "":
		return r.WriteText(std.out)
	}
	return errors.Join(r.WriteText(std.out), writeAtomic(string(file), r.WriteJSON))
}

type benchHandoff struct {
	transfer.HandOffOptions
	JSON     rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
	Observed bool     `help:"Measure what being watched costs instead: the page open and 1 % traced, against neither; and a scrape of metrics."`
}

func (c *benchHandoff) Help() string {
	return "A prefill engine in a process of its own offers requests; a decode engine in this one accepts and reads them, with tickets, plans, grants " +
		"and checksums as in service, from real memory to real memory. In the same rounds a plain transfer reads as many bytes, unguarded, " +
		"in scattered blocks as large as the prefill engine's are in one layer of one rank; several requests also go one by one. Time " +
		"counts from accepting to having every byte; offers stand before. What arrives in the last round is compared with a direct shard.\n\n" +
		"A cache that does not fit into --memory is sized down, first to fewer layers, then to fewer tokens, and the report says so.\n\n" +
		"With --observed the engines have agents of a cell with a directory and a gateway, each in a process of its own. Rounds with the page open and traces sent " +
		"take turns with rounds that have neither. What comes of the page and of spans is counted, and a run in which nothing came fails.\n\n" +
		"A SIDE is a list of NAME=VALUE, as for `meridian plan`: tp, pp, block and layout are measured."
}

func (c *benchHandoff) Run(std *stdio) error {
	var err error
	if c.ServeCommand, err = ourselves("bench", "__serve"); err != nil {
		return err
	}
	c.Setting = settingOf(std)
	if c.Observed {
		return measure(std, "bench handoff", transfer.RunObserved, c.HandOffOptions, c.JSON)
	}
	return measure(std, "bench handoff", transfer.RunHandOff, c.HandOffOptions, c.JSON)
}

// settingOf is what every measurement that this program starts is told.
func settingOf(std *stdio) bench.Setting {
	return bench.Setting{Version: thisBuild().Version, Progress: progressOn(std.err)}
}

// progressOn shows where a run is: on a terminal in one line that is written
// over, elsewhere in a line for each row.
func progressOn(w io.Writer) func(bench.Progress) {
	if onTerminal(w) {
		return func(p bench.Progress) { fmt.Fprintf(w, "\r\x1b[K%s", p) }
	}
	said := ""
	return func(p bench.Progress) {
		if p.What != said {
			said = p.What
			if p.Rows == 0 {
				fmt.Fprintln(w, p.What)
				return
			}
			fmt.Fprintf(w, "[%d/%d] %s\n", p.Row, p.Rows, p.What)
		}
	}
}

// benchServe is the other side of a measurement; bench transfer starts it.
type benchServe struct{}

func (c *benchServe) Run(std *stdio) error { return transfer.Serve(std.in, std.out) }
