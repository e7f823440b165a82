package main

import "meridian/prove/bench/serving"

type benchTurns struct {
	serving.TurnsOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchTurns) Help() string {
	return "A cell with two reference engines that think by script and keep prefixes, and two gateways before them, one of them with gateway.warm_next_turn. The same chats take two turns through " +
		"each, under two salts, and what the second turn's first token takes is told side by side. Answers must be equal."
}

func (c *benchTurns) Run(std *stdio) error {
	c.Setting = settingOf(std)
	return measure(std, "bench turns", serving.RunTurns, c.TurnsOptions, c.JSON)
}
