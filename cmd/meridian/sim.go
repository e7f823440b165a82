package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"meridian/prove/sim"
)

type simCommand struct {
	World   string  `default:"" enum:",agents,handoff,store,all" placeholder:"KIND" help:"Which worlds: agents, handoff, store, or all, one after the other; default all, or agents with --seed or --faults."`
	Seed    *uint64 `xor:"what" placeholder:"N" help:"Live through the world of this seed and tell what became of it."`
	Seeds   uint64  `xor:"what" placeholder:"N" help:"Live through so many worlds (default 1000, or as many as --minutes allow)."`
	From    uint64  `placeholder:"N" help:"The first seed of --seeds; default 0."`
	Minutes float64 `placeholder:"M" help:"Stop after so many minutes."`
	Jobs    int     `short:"j" placeholder:"N" help:"Worlds at a time; default one per core."`
	Faults  string  `default:"all" placeholder:"NAMES" help:"Faults that worlds may have: all, none, or some of ${faults}; default ${default}."`
	Trace   string  `placeholder:"FILE" help:"With --seed: write every event to this file; - for standard output."`
	Replay  string  `xor:"what" placeholder:"FILE" help:"Live through the world of a trace again, and compare every event."`
}

func (c *simCommand) Help() string {
	return "Real agents work together over a network, a directory, memory and clocks that are made up, under faults, all from one seed. " +
		"In worlds of another kind, engines of many ranks hand caches over to one another; in those of a third, clients, owners and masters share an object cache. " +
		"Every byte that moves and every end of a transfer is checked against what Meridian promises. A seed that breaks a promise " +
		"tells its story, and tells it again whenever it is asked: docs/simulation.md says how to read one."
}

func (c *simCommand) Run(std *stdio) error {
	faults, err := sim.ParseFaults(c.Faults)
	if err != nil {
		return &failure{err: err, hint: "`meridian sim --help` lists them", status: exitInvalid}
	}
	switch {
	case faults != nil && c.World != "" && c.World != string(sim.Agents):
		return invalid("leave one of them out", "--faults chooses for worlds of agents; the others draw their trouble from the seed")
	case c.Trace != "" && c.World == worldsAll:
		return invalid("name one with --world", "--trace writes the events of one world")
	case c.Replay != "":
		return c.replay(std)
	case c.Seed != nil:
		return c.each(faults, func(kind sim.Kind) error {
			return c.one(std, sim.Run(sim.Options{World: kind, Seed: *c.Seed, Faults: faults}))
		})
	case c.Trace != "":
		return invalid("name the world with --seed", "--trace writes the events of one world")
	case c.Minutes < 0 || c.Jobs < 0:
		return invalid("leave them out for the defaults", "--minutes and --jobs cannot be negative")
	}
	return c.huntAll(std, faults)
}

// worldsAll is the value of --world that is no kind.
const worldsAll = "all"

// kinds is which kinds of worlds are asked for.
func (c *simCommand) kinds(faults []sim.Fault) []sim.Kind {
	switch {
	case c.World == worldsAll, c.World == "" && c.Seed == nil && faults == nil:
		return sim.Kinds()
	case c.World == "":
		return []sim.Kind{sim.Agents}
	}
	return []sim.Kind{sim.Kind(c.World)}
}

// each goes through the kinds, all of them whatever one shows.
func (c *simCommand) each(faults []sim.Fault, do func(sim.Kind) error) error {
	var failed error
	for _, kind := range c.kinds(faults) {
		if err := do(kind); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// tellMost is how many events a story has at most.
const tellMost = 200

// one reports on a single world.
func (c *simCommand) one(std *stdio, r *sim.Result) error {
	if c.Trace == "-" {
		return r.WriteTrace(std.out)
	}
	if c.Trace != "" {
		if err := writeAtomic(c.Trace, r.WriteTrace); err != nil {
			return err
		}
	}
	if r.Violation != nil {
		return errors.Join(r.Tell(std.out, tellMost), broken(1))
	}
	world, keep := "seed", "keeps"
	switch r.Options.World {
	case sim.HandOffs:
		world, keep = "the hand-offs of seed", "keep"
	case sim.Store:
		world = "the object cache of seed"
	}
	fmt.Fprintf(std.out, "%s %d %s every promise: %d events in %v of its own time\n", world,
		r.Options.Seed, keep, r.Tally.Events, r.Tally.Simulated.Round(time.Millisecond))
	return nil
}

func broken(worlds int) error {
	return &failure{err: fmt.Errorf("promises are broken in %d of these worlds", worlds), status: exitFailure}
}

func (c *simCommand) replay(std *stdio) error {
	f, err := os.Open(c.Replay)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := sim.Replay(f)
	if errors.Is(err, sim.ErrTrace) {
		return &failure{err: err, hint: "`meridian sim --seed N --trace FILE` writes one", status: exitInvalid}
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(std.out, "every event is as it was")
	return c.one(std, r)
}

// huntAll hunts in one kind of worlds after the other; they share --minutes.
func (c *simCommand) huntAll(std *stdio, faults []sim.Fault) error {
	if c.Seeds == 0 && c.Minutes == 0 {
		c.Seeds = 1000
	}
	ctx, stop := untilStopped()
	defer stop()
	debug.SetGCPercent(400) // worlds leave much garbage, and little else
	kinds := c.kinds(faults)
	o := sim.SeedOptions{
		From: c.From, Seeds: c.Seeds, For: time.Duration(c.Minutes*float64(time.Minute)) / time.Duration(len(kinds)), Faults: faults, Jobs: c.Jobs,
		Failures: mostFailures,
	}
	return c.each(faults, func(kind sim.Kind) error {
		if ctx.Err() != nil {
			return nil
		}
		if kind != kinds[0] {
			fmt.Fprintln(std.out)
		}
		o.World = kind
		return hunt(ctx, std, o)
	})
}

func hunt(ctx context.Context, std *stdio, o sim.SeedOptions) error {
	progress, done := simProgress(std.err, o.World)
	o.Progress = progress
	report, err := sim.RunSeeds(ctx, o)
	done()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintf(std.out, "%d worlds of %s, seeds from %d, in %v: %d events, %v of their own time\n\n", report.Tally.Worlds, inhabitants[o.World], o.From,
		report.Took.Round(time.Millisecond), report.Tally.Events, report.Tally.Simulated.Round(time.Second))
	if err := report.Tally.Write(std.out); err != nil {
		return err
	}
	if len(report.Failures) == 0 {
		fmt.Fprintln(std.out, "\nevery promise was kept")
		return nil
	}
	fmt.Fprintln(std.out)
	for _, r := range report.Failures {
		what, _, _ := strings.Cut(r.Violation.What, "\n")
		fmt.Fprintf(std.out, "seed %d: %s: %s\n", r.Options.Seed, r.Violation.Rule, what)
	}
	fmt.Fprintln(std.out)
	return errors.Join(report.Failures[0].Tell(std.out, tellMost), broken(len(report.Failures)))
}

// inhabitants says what a kind of world is of.
var inhabitants = map[sim.Kind]string{sim.Agents: "agents", sim.HandOffs: "hand-offs", sim.Store: "the object cache"}

// mostFailures is when a run has found enough.
const mostFailures = 10

// simProgress draws a line on a terminal, and nothing anywhere else.
func simProgress(w io.Writer, kind sim.Kind) (show func(sim.Progress), done func()) {
	if !onTerminal(w) {
		return nil, func() {}
	}
	var drawn time.Time
	show = func(p sim.Progress) {
		if time.Since(drawn) < 100*time.Millisecond {
			return
		}
		drawn = time.Now()
		of := ""
		if p.Seeds > 0 {
			of = fmt.Sprintf(" of %d", p.Seeds)
		}
		if p.For > 0 {
			of += fmt.Sprintf(", %v left", (p.For - p.Took).Round(time.Second))
		}
		fmt.Fprintf(w, "\r\x1b[K%d worlds of %s%s, %.0f a second, %d failures", p.Worlds, inhabitants[kind], of, float64(p.Worlds)/p.Took.Seconds(), p.Failures)
	}
	return show, func() { fmt.Fprint(w, "\r\x1b[K") }
}
