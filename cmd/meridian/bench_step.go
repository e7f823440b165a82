package main

import (
	"meridian/prove/bench"
	"meridian/prove/bench/serving"
)

type benchStep struct {
	Rounds   int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	JSON     rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
	Requests []int    `default:"1,64,256" placeholder:"N" help:"How many requests the engine runs, rows for each; default ${default}."`
	Steps    int      `default:"2000" placeholder:"N" help:"Steps of a round; default ${default}."`
	Python   string   `default:"python3" placeholder:"FILE" help:"The interpreter for the rows of Python; PYTHONPATH names the package. Empty: no such rows. Default ${default}."`
}

func (c *benchStep) Help() string {
	return "An agent with a governor, in a process of its own, and engines whose requests all decode: what passes from before an engine writes down what a step did until it has read what was " +
		"decided, over the engine door, by Go's client and by Python's. Every decision is checked to be of its step and of all requests."
}

func (c *benchStep) Run(std *stdio) error {
	o := bench.Options{Rounds: c.Rounds, Setting: settingOf(std)}
	return measure(std, "bench step", serving.RunStep, serving.StepOptions{Options: o, Requests: c.Requests, Steps: c.Steps, Python: c.Python}, c.JSON)
}
