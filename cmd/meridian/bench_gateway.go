package main

import "meridian/prove/bench/serving"

type benchGateway struct {
	serving.GatewayOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchGateway) Help() string {
	return "An engine that answers by heart and clients that do nothing but ask are in this process; the gateway is in one of its own, " +
		"as in service but for the cell, and has one core. In every round the same clients ask the engine directly and then " +
		"through the gateway. Where the machine has a single core they share it, and the report says so."
}

func (c *benchGateway) Run(std *stdio) error {
	var err error
	if c.Command, err = ourselves("gateway"); err != nil {
		return err
	}
	c.Setting = settingOf(std)
	return measure(std, "bench gateway", serving.RunGateway, c.GatewayOptions, c.JSON)
}
