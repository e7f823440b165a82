package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/deciding"
)

// benchDeciding is what all measurements of deciding rooms take.
type benchDeciding struct {
	Rounds int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	JSON   rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

// run measures with one of package deciding's functions.
func (c *benchDeciding) run(std *stdio, name string, measure func(context.Context, deciding.Options) (*deciding.Report, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := measure(ctx, deciding.Options{Rounds: c.Rounds, Version: thisBuild().Version, Progress: progressOn(std.err)})
	if err := measured(ctx, std, err, "bench "+name); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}

type benchBlock struct {
	benchDeciding
	Blocks int `default:"1048576" placeholder:"N" help:"Blocks of the table; default ${default}."`
}

func (c *benchBlock) Help() string {
	return "A table full of requests with 256 blocks each: what it takes to end one and hold blocks for another, and to choose and evict victims, " +
		"beside a table of maps and lists that knows tiers and nothing else."
}

func (c *benchBlock) Run(std *stdio) error {
	return c.run(std, "block", func(ctx context.Context, o deciding.Options) (*deciding.Report, error) {
		return deciding.RunBlock(ctx, deciding.BlockOptions{Options: o, Blocks: c.Blocks})
	})
}

type benchPhase struct {
	benchDeciding
	Sequences int `default:"256" placeholder:"N" help:"Sequences that the engine has at once; default ${default}."`
	Tokens    int `default:"4000000" placeholder:"N" help:"Tokens of a round, at least; default ${default}."`
}

func (c *benchPhase) Help() string {
	return "Streams of 1,024 tokens, half of them a thought, through the map of one engine, for each way in which models mark thoughts, beside a map under a lock " +
		"that knows single ids only; and a whole step of the governor, in nanoseconds a sequence, with entropies and the policy stock."
}

func (c *benchPhase) Run(std *stdio) error {
	return c.run(std, "phase", func(ctx context.Context, o deciding.Options) (*deciding.Report, error) {
		return deciding.RunPhase(ctx, deciding.PhaseOptions{Options: o, Sequences: c.Sequences, Tokens: c.Tokens})
	})
}

type benchSched struct {
	benchDeciding
	Requests int `default:"1000" placeholder:"N" help:"Requests that run; a quarter as many wait; default ${default}."`
}

func (c *benchSched) Help() string {
	return "One decision of each scheduling policy, with memory to spare, with no free block, and where half of the requests ask for more than there is, beside one that sorts all requests and fills the step from the front."
}

func (c *benchSched) Run(std *stdio) error {
	return c.run(std, "sched", func(ctx context.Context, o deciding.Options) (*deciding.Report, error) {
		return deciding.RunSched(ctx, deciding.SchedOptions{Options: o, Requests: c.Requests})
	})
}
