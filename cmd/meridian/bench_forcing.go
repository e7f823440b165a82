package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/serving"
)

type benchForcing struct {
	Thought  int      `default:"1800" placeholder:"N" help:"Tokens of a thought that nothing ends; default ${default}."`
	Answer   int      `default:"32" placeholder:"N" help:"Tokens of the answer behind it; default ${default}."`
	Settles  []int    `default:"200,800" placeholder:"N" help:"Tokens after which the answer settles, for the signal converged; default ${default}."`
	Strays   []int    `default:"1400" placeholder:"N" help:"Tokens after which a thought loses its way, for the signal overthinking, which a governor tells by the last 512 tokens, at three times the mean of all; default ${default}."`
	Cap      []int    `default:"256" placeholder:"N" help:"The longest thought that a request allows, max_think_tokens; default ${default}."`
	Requests int      `default:"4" placeholder:"N" help:"Requests of a row, at a time; default ${default}."`
	Alpha    float64  `default:"0.2" placeholder:"X" help:"entropy.ema_alpha; default ${default}: with 0.05, the configuration's, a built-in model's context is too short for 80 looks."`
	Interval int      `default:"8" placeholder:"N" help:"entropy.eat_probe_interval_tokens, twice the tokens of a paragraph; default ${default}."`
	MinThink int      `default:"128" placeholder:"N" help:"scheduler.min_think_tokens; default ${default}."`
	JSON     rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchForcing) Help() string {
	return "Reference engines whose thoughts play entropies of which it is known where they settle or lose their way, with an agent's governor and without: how many tokens are thought, " +
		"and how long after the point the end was forced, for each signal; and where no signal is, that nothing is forced. Every answer must have its thought, and go on behind it as that of " +
		"an engine alone after a thought of that length."
}

func (c *benchForcing) Run(std *stdio) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := serving.RunForcing(ctx, serving.ForcingOptions{
		Thought: c.Thought, Answer: c.Answer, Settles: c.Settles, Strays: c.Strays, Caps: c.Cap, Requests: c.Requests,
		Alpha: c.Alpha, Interval: c.Interval, MinThink: c.MinThink, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench forcing"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
