package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/serving"
)

type benchMoves struct {
	Model  string   `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	Prompt []int    `default:"256,1024" placeholder:"N" help:"Tokens of the prompt; default ${default}."`
	Answer int      `default:"64" placeholder:"N" help:"Tokens of the answer; default ${default}."`
	Rounds int      `default:"20" placeholder:"N" help:"Answers that each figure is of; default ${default}."`
	JSON   rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchMoves) Help() string {
	return "A cell with two reference engines and a gateway before them. The same sampled answers stay where they are, move to the other engine in their middle, or lose their engine there, " +
		"so that the other computes prompt and answer again; the longest wait between two tokens is told side by side. Answers must be equal, and the gateway's records say what became of each."
}

func (c *benchMoves) Run(std *stdio) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := serving.RunMoves(ctx, serving.MovesOptions{
		Model: c.Model, Prompts: c.Prompt, Answer: c.Answer, Rounds: c.Rounds, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench moves"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
