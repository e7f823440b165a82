package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/serving"
)

type benchTurns struct {
	Model    string   `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	Question int      `default:"256" placeholder:"N" help:"Tokens of a user's first question; default ${default}."`
	Thought  int      `default:"64" placeholder:"N" help:"Tokens of the thought about it; default ${default}."`
	Answer   []int    `default:"64,128" placeholder:"N" help:"Tokens of the answer; default ${default}."`
	Rounds   int      `default:"5" placeholder:"N" help:"Chats that each figure is the median of; default ${default}."`
	JSON     rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchTurns) Help() string {
	return "A cell with two reference engines that think by script and keep prefixes, and two gateways before them, one of them with gateway.warm_next_turn. The same chats take two turns through " +
		"each, under two salts, and what the second turn's first token takes is told side by side. Answers must be equal."
}

func (c *benchTurns) Run(std *stdio) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := serving.RunTurns(ctx, serving.TurnsOptions{
		Model: c.Model, Question: c.Question, Thought: c.Thought, Answers: c.Answer, Rounds: c.Rounds, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench turns"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
