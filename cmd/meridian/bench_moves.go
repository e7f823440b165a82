package main

import "meridian/prove/bench/serving"

type benchMoves struct {
	serving.MovesOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchMoves) Help() string {
	return "A cell with two reference engines and a gateway before them. The same sampled answers stay where they are, move to the other engine in their middle, or lose their engine there, " +
		"so that the other computes prompt and answer again; the longest wait between two tokens is told side by side. Answers must be equal, and the gateway's records say what became of each."
}

func (c *benchMoves) Run(std *stdio) error {
	c.Setting = settingOf(std)
	return measure(std, "bench moves", serving.RunMoves, c.MovesOptions, c.JSON)
}
