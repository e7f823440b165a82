package main

import "meridian/prove/replay/validation"

type replayValidate struct {
	Model      string    `enum:"tiny,small" default:"small" help:"Model of the reference engine: tiny or small; default ${default}."`
	Load       []float64 `default:"0.5,0.7,0.9" placeholder:"X" help:"Loads, as parts of what the engine can serve; default ${default}."`
	Seconds    float64   `default:"60" placeholder:"S" help:"How long each load lasts, and how long steps are measured before; default ${default}."`
	MaxRunning int       `default:"32" placeholder:"N" help:"Answers that the engine computes at a time; default ${default}."`
	StepTokens int       `default:"64" placeholder:"N" help:"Tokens that a step computes at most; default ${default}."`
	Seed       uint64    `default:"1" placeholder:"N" help:"Draws the requests; default ${default}."`
	JSON       rowsFile  `placeholder:"[FILE]" help:"Print everything as JSON instead of the table; with FILE, write it there beside it."`
}

func (c *replayValidate) Help() string {
	return "Measures the steps of the reference engine, fits a profile to them, serves requests that arrive at random, and replays those requests with that " +
		"profile: what replay predicts stands beside what clients saw. The engine runs in this process, computes with one thread, and is asked without HTTP. " +
		"Figures from a machine on which others work say little."
}

func (c *replayValidate) Run(std *stdio) error {
	return measure(std, "replay validate", validation.Run, validation.Options{
		Model: c.Model, Loads: c.Load, Seconds: c.Seconds, MaxRunning: c.MaxRunning, StepTokens: c.StepTokens, Seed: c.Seed,
		Setting: settingOf(std),
	}, c.JSON)
}
