package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"meridian/prove/bench/load"
	"meridian/prove/replay"
	"meridian/prove/replay/report"
	"meridian/prove/replay/sweep"
	"meridian/prove/replay/workload"
)

type loadCommand struct {
	URL         string        `placeholder:"URL" help:"The API to send to, without /v1 (default: the cell's)."`
	Model       string        `placeholder:"NAME" help:"Which model (default: the first that the API lists)."`
	APIKey      string        `placeholder:"KEY" help:"Key for the API, if it wants one (default: as for chat)."`
	State       string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of the cell (default: agent.state_dir of the configuration)."`
	Workload    string        `default:"synthetic" placeholder:"NAME" help:"${workloads}; FILE.jsonl; or A+B, the arrivals of A with the thoughts and answers of B; default ${default}."`
	Data        string        `type:"existingdir" placeholder:"DIR" help:"Where public traces are; without it, small generated samples stand in for them."`
	For         time.Duration `default:"1m" placeholder:"TIME" help:"For how long requests are sent; default ${default}."`
	Start       float64       `default:"0" placeholder:"H" help:"The hour of the workload's own time to begin at; default ${default}."`
	Rate        float64       `placeholder:"R" help:"Requests a second in the mean (default: the workload's own)."`
	Seed        uint64        `default:"42" placeholder:"N" help:"What requests and prompts are drawn from; default ${default}."`
	Completions bool          `help:"Send prompts of token ids to /v1/completions, exactly as long as the workload says, instead of chats, whose length is calibrated."`
	Vocabulary  int           `default:"256" placeholder:"N" help:"How many token ids prompts are made of; default ${default}."`
	Script      bool          `help:"Tell the engine how long to think, which the reference engine with --reasoning understands."`
	Plain       bool          `help:"Send nothing that is not in OpenAI's own API; answers may then be shorter than the workload says."`
	Timeout     time.Duration `default:"10m" placeholder:"TIME" help:"How long one request may take; default ${default}."`
	MaxRunning  int           `default:"1024" placeholder:"N" help:"Requests under way at a time; what comes beyond is counted and not sent; default ${default}."`
	Out         string        `placeholder:"DIR" help:"Write report.json, report.md and report.html of the same form as replay's, to be compared by replay diff."`
	JSON        bool          `help:"Print one JSON object."`
}

func (c *loadCommand) Help() string {
	return "Sends the requests of a workload to a server of the OpenAI API when they are due, whether or not earlier ones have been answered, with made-up prompts of the " +
		"right length that begin alike where the workload's do, and measures what `meridian replay` predicts. docs/workloads.md lists workloads."
}

func (c *loadCommand) Run(std *stdio, all *commands) error {
	if c.For <= 0 || c.Start < 0 || c.Rate < 0 || c.Timeout <= 0 || c.MaxRunning < 1 || c.Vocabulary < 16 {
		return invalid("`meridian load --help` lists what it takes", "--for, --timeout and --max-running are above 0, --vocabulary from 16, --start and --rate not negative")
	}
	if c.Out != "" {
		if err := mayHold(c.Out); err != nil {
			return replayFailed(err)
		}
	}
	source, info, err := c.open()
	if err != nil {
		return replayFailed(err)
	}
	defer source.Close()
	client, err := (&chatCommand{URL: c.URL, APIKey: c.APIKey, State: c.State}).client(std, all)
	if err != nil {
		return err
	}
	ctx, stop := untilStopped()
	defer stop()
	found, err := load.Run(ctx, load.Options{
		URL: client.URL, Key: client.Key, HTTP: client.HTTP, Model: c.Model, Completions: c.Completions, Vocabulary: c.Vocabulary, Script: c.Script, Plain: c.Plain,
		Timeout: c.Timeout, MaxRunning: c.MaxRunning, Seed: c.Seed, Progress: loadProgress(std.err, info),
	}, source)
	endLine(std.err)
	switch {
	case errors.Is(err, context.Canceled) && found != nil:
		fmt.Fprintln(std.err, "broken off; this is of what was complete by then")
	case err != nil:
		return err
	}
	if c.Out != "" {
		r, err := c.report(found, info)
		if err != nil {
			return err
		}
		files := map[string]func(io.Writer) error{"report.json": r.WriteJSON, "report.md": r.WriteMarkdown, "report.html": r.WriteHTML}
		if err := writeDir(c.Out, files); err != nil {
			return unwritable(c.Out, err)
		}
	}
	if err := c.tell(std, found, info); err != nil {
		return err
	}
	if found.Complete == 0 {
		return &failure{err: errors.New("not one request was answered"), hint: "the problems above say why", status: exitFailure}
	}
	return nil
}

// open opens the workload at the rate that was asked for.
func (c *loadCommand) open() (workload.Source, workload.Info, error) {
	o := workload.Options{DataDir: c.Data, Seed: c.Seed, Start: hours(c.Start), Duration: c.For}
	source, info, err := workload.Open(c.Workload, o)
	if err != nil || c.Rate == 0 {
		return source, info, err
	}
	if err := source.Close(); err != nil {
		return nil, info, err
	}
	o.Scale = c.Rate / info.Rate
	return workload.Open(c.Workload, o)
}

func loadProgress(w io.Writer, info workload.Info) func(load.Progress) {
	if !onTerminal(w) {
		return nil
	}
	return func(p load.Progress) {
		fmt.Fprintf(w, "\r\x1b[K%v of %v: %d sent, %d under way, %d complete, %d failed",
			p.At.Round(time.Second), info.Duration.Round(time.Second), p.Sent, p.Running, p.Complete, p.Failed)
	}
}

// seen are the figures that a client can measure.
var seen = []string{report.Attainment, "qoe", "goodput", report.Throughput, "think_tokens", "prefix_hits"}

// report is what was found in the form of a replay's report, with the endpoint
// in the place of a policy.
func (c *loadCommand) report(found *load.Report, info workload.Info) (*report.Report, error) {
	run := sweep.Reported(found.Result)
	for name := range run.Values {
		latency, _, isPercentile := strings.Cut(name, "_p")
		if _, measured := run.Quantiles[latency]; !(isPercentile && measured) && !slices.Contains(seen, name) {
			delete(run.Values, name) // a client cannot measure it
		}
	}
	run.Load, run.Seed, run.Timeline = 1, c.Seed, nil
	build := thisBuild()
	return report.Build(report.About{
		Build: build.Version, Commit: build.Commit,
		Command: fmt.Sprintf("meridian load --workload %s --for %v --start %g --rate %g --seed %d", filepath.Base(c.Workload), c.For, c.Start, c.Rate, c.Seed),
		Workload: report.Workload{
			Name: filepath.Base(info.Name), Label: info.Label, Licence: info.Licence, Synthetic: info.Synthetic,
			FromS: hours(c.Start).Seconds(), DurationS: info.Duration.Seconds(), RateAt1: info.Rate,
		},
		Engine:   []report.Fact{{Name: "measured at", Value: found.Endpoint}, {Name: "model", Value: found.Model}},
		Policies: []string{run.Policy}, Subject: run.Policy,
	}, []report.Run{run})
}

func (c *loadCommand) tell(std *stdio, found *load.Report, info workload.Info) error {
	if c.JSON {
		return std.writeJSON(map[string]any{"workload": info, "load": found})
	}
	sample := ""
	if info.Sample {
		sample = " (a sample)"
	}
	fmt.Fprintf(std.out, "%s%s at %s, model %s: %d sent, %d complete, %d failed, %d not sent\n",
		info.Name, sample, found.Endpoint, printable(found.Model), found.Sent, found.Complete, found.Failed, found.NotSent)
	for _, p := range found.Problems {
		fmt.Fprintf(std.out, "  %d times: %s\n", p.Count, printable(p.Text))
	}
	r := found.Result
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tP50\tP95\tP99\t")
	for i, d := range []replay.Distribution{r.Latency.TTFT, r.Latency.TTFVT, r.Latency.TTOT, r.Latency.ThinkITL, r.Latency.AnswerITL, r.Latency.E2E} {
		if d.Count > 0 {
			fmt.Fprintf(table, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t\n", report.Latencies[i].Title, 1e3*d.P50, 1e3*d.P95, 1e3*d.P99)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%.1f tokens/s, %.2f requests/s, SLO attainment %.1f %%, goodput %.2f requests/s\n",
		r.TokensPerSecond, r.RequestsPerSecond, 100*r.SLOAttainment, r.Goodput)
	fmt.Fprintf(std.out, "prompts %.0f tokens in the mean, %.0f asked for; %d answers shorter than asked for\n", found.Prompt, found.PromptAsked, found.Shorter)
	if late := found.LateSeconds; late > 0.05 {
		fmt.Fprintf(std.out, "this machine did not keep up: a request was sent %.2f s late\n", late)
	}
	return nil
}
