package main

import (
	"context"

	"meridian/prove/bench/deciding"
	"meridian/prove/replay"
)

type benchReplay struct {
	benchDeciding
	Requests int      `default:"20000" placeholder:"N" help:"Requests of a round; default ${default}."`
	Workload string   `default:"servegen-r1" placeholder:"NAME" help:"The workload, as meridian replay takes it; default ${default}."`
	Data     string   `type:"existingdir" placeholder:"DIR" help:"Where public traces are; without it, generated samples stand in."`
	Load     float64  `default:"0.9" placeholder:"LOAD" help:"Part of the engine's capacity; default ${default}."`
	Engine   string   `default:"qwen3-32b-1xh200" placeholder:"PROFILE" help:"The engine's profile, or a FILE.json with a measured one; default ${default}."`
	Policy   []string `default:"stock" placeholder:"NAME" help:"Policies to measure; default ${default}."`
}

func (c *benchReplay) Help() string {
	return "What it takes to replay one request on one engine, beside the same replay in which the policy is asked before every step. " +
		"The aim is a million requests of ServeGen's lengths in a minute on one core."
}

func (c *benchReplay) Run(std *stdio) error {
	profile, err := replay.FindProfile(c.Engine)
	if err != nil {
		return &failure{err: err, hint: "`meridian bench replay --help` lists what it takes", status: exitInvalid}
	}
	return c.run(std, "replay", func(ctx context.Context, o deciding.Options) (*deciding.Report, error) {
		return deciding.RunReplay(ctx, deciding.ReplayOptions{
			Options: o, Requests: c.Requests, Workload: c.Workload, DataDir: c.Data, Load: c.Load, Profile: profile, Policies: c.Policy,
		})
	})
}
