package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/decide/policy"
	"meridian/prove/bench"
	"meridian/prove/bench/serving"
)

type benchPolicies struct {
	Model      string   `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	Policy     []string `placeholder:"NAME" help:"Policies to measure beside stock (default: all)."`
	Requests   int      `default:"48" placeholder:"N" help:"Requests of a round; every other one thinks long; default ${default}."`
	Thought    int      `default:"192" placeholder:"N" help:"Tokens of the longest thought; default ${default}."`
	Load       float64  `default:"1" placeholder:"X" help:"How fast requests come, as a share of what the cell of stock can do; default ${default}."`
	Blocks     int      `default:"64" placeholder:"N" help:"Blocks of 16 tokens that each engine has; default ${default}."`
	MaxRunning int      `default:"16" placeholder:"N" help:"Answers that each engine computes at a time; default ${default}."`
	Rounds     int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Seed       uint64   `default:"1" placeholder:"N" help:"What requests and their arrivals are drawn from; default ${default}."`
	JSON       rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchPolicies) Help() string {
	return "A cell of real processes for each scheduling policy, with engines too small for the load, and the same requests for all of them, when they are due: some think long, some hardly. " +
		"Rounds go through the policies in turn, and what is told beside each figure is its ratio to that of stock in the same round. Every answer must be that of an engine alone. " +
		"static-budget is stock with a cap of thoughts that none here reaches. Cells of all policies are open at a time, about 2 GB."
}

func (c *benchPolicies) Run(std *stdio) error {
	policies := policy.Names()
	if len(c.Policy) > 0 {
		if err := bench.Known("policy", c.Policy, policies); err != nil {
			return measured(context.Background(), std, err, "bench policies")
		}
		policies = c.Policy
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := serving.RunPolicies(ctx, serving.PoliciesOptions{
		Model: c.Model, Policies: policies, Requests: c.Requests, Thought: c.Thought, Load: c.Load, Blocks: c.Blocks, MaxRunning: c.MaxRunning,
		Rounds: c.Rounds, Seed: c.Seed, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench policies"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
