package main

import "meridian/prove/bench/serving"

type benchForcing struct {
	serving.ForcingOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchForcing) Help() string {
	return "Reference engines whose thoughts play entropies of which it is known where they settle or lose their way, with an agent's governor and without: how many tokens are thought, " +
		"and how long after the point the end was forced, for each signal; and where no signal is, that nothing is forced. Every answer must have its thought, and go on behind it as that of " +
		"an engine alone after a thought of that length."
}

func (c *benchForcing) Run(std *stdio) error {
	c.Setting = settingOf(std)
	return measure(std, "bench forcing", serving.RunForcing, c.ForcingOptions, c.JSON)
}
