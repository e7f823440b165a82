package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/serving"
)

type benchGateway struct {
	Clients []int    `default:"1,64" placeholder:"N" help:"Clients that ask at a time, each one request after the other; default ${default}."`
	Seconds float64  `default:"1" placeholder:"S" help:"How long one side of one round lasts; default ${default}."`
	Rounds  int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	JSON    rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchGateway) Help() string {
	return "An engine that answers by heart and clients that do nothing but ask are in this process; the gateway is in one of its own, " +
		"as in service but for the cell, and has one core. In every round the same clients ask the engine directly and then " +
		"through the gateway. Where the machine has a single core they share it, and the report says so."
}

func (c *benchGateway) Run(std *stdio) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := serving.RunGateway(ctx, serving.GatewayOptions{
		Clients: c.Clients, Seconds: c.Seconds, Rounds: c.Rounds, Command: []string{self, "gateway"}, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench gateway"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
