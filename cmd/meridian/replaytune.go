package main

import (
	"fmt"
	"strings"

	"meridian/prove/replay/report"
	"meridian/prove/replay/sweep"
)

type replayTune struct {
	replayWindow
	Policy         string   `default:"meridian" placeholder:"NAME" help:"The policy to tune; default ${default}."`
	Beside         []string `placeholder:"NAME" help:"Other policies that the report has beside it."`
	Objective      string   `default:"ttfvt_p99" placeholder:"METRIC" help:"The metric of report.json to improve, in the mean over loads and seeds; default ${default}."`
	KeepThroughput float64  `default:"0.97" placeholder:"PART" help:"The part of its throughput that a policy must keep at each load; default ${default}."`
	Trials         int      `default:"40" placeholder:"N" help:"Settings to try; default ${default}."`
	HeldOut        *float64 `placeholder:"H" help:"The hour at which the held-out window begins, as long as the first; default right after it."`
}

func (c *replayTune) Help() string {
	return "Settings are drawn, the second half of them near the best of the first, and replayed on the training window (--start, --hours, --seeds). " +
		"The report is of the held-out window with seeds of its own: the tuned policy against its defaults. What was found is in the report, as --set of `meridian replay` takes it."
}

func (c *replayTune) Run(std *stdio) error {
	var candidates []sweep.Candidate
	for _, name := range append([]string{c.Policy}, c.Beside...) {
		candidates = append(candidates, sweep.Candidate{Name: name, Policy: name})
	}
	o, err := c.options(candidates)
	if err != nil {
		return replayFailed(err)
	}
	heldOut := given(c.HeldOut, c.Start+c.Hours)
	flags := []string{
		"--policy " + c.Policy, "--objective " + c.Objective, fmt.Sprintf("--keep-throughput %g --trials %d --held-out %g", c.KeepThroughput, c.Trials, heldOut),
	}
	if len(c.Beside) > 0 {
		flags = append(flags, "--beside "+strings.Join(c.Beside, ","))
	}
	o.Command = c.again("replay tune", flags...)
	ctx, stop := untilStopped()
	defer stop()
	var r *report.Report
	r, err = sweep.Tune(ctx, sweep.TuneOptions{
		Options: o, Objective: c.Objective, KeepThroughput: c.KeepThroughput, Trials: c.Trials, Seed: c.Seed,
		HeldOut: hours(heldOut), HeldOutSeeds: seedsFrom(c.Seed+uint64(c.Seeds), c.Seeds),
		Tried: func(t sweep.Trial) { fmt.Fprintln(std.err, t) },
	})
	if err != nil {
		return replayFailed(err)
	}
	return publish(std, c.Out, r)
}
