package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"meridian/decide/policy"
	"meridian/prove/replay"
	"meridian/prove/replay/report"
	"meridian/prove/replay/sweep"
	"meridian/prove/replay/workload"
)

type replayCommands struct {
	Run      replayRun      `cmd:"" default:"withargs" help:"Replay a workload under several policies, and report (what replay does without a further word)."`
	Diff     replayDiff     `cmd:"" help:"Compare two reports."`
	Validate replayValidate `cmd:"" help:"Compare what replay predicts with what the reference engine does."`
	Tune     replayTune     `cmd:"" help:"Search a policy's parameters on one window of a workload, and report on another."`
}

// replayWindow is what is replayed, and on what.
type replayWindow struct {
	Workload string    `default:"servegen-r1" placeholder:"NAME" help:"${workloads}; FILE.jsonl; or A+B, the arrivals of A with the thoughts and answers of B; default ${default}."`
	Data     string    `type:"existingdir" placeholder:"DIR" help:"Where public traces are; without it, small generated samples stand in for them."`
	Load     []float64 `default:"0.5,0.7,0.9,1.1" placeholder:"X" help:"Loads, as parts of what the engines can serve of this workload; default ${default}."`
	Hours    float64   `default:"1" placeholder:"H" help:"For how long requests arrive, in hours; default ${default}."`
	Start    float64   `default:"0" placeholder:"H" help:"The hour of the workload's own time to begin at; default ${default}."`
	Warmup   *float64  `placeholder:"MINUTES" help:"Requests that arrive in the first minutes are served and not counted; default a twelfth of --hours."`
	Seeds    int       `default:"5" placeholder:"N" help:"Seeds, each of which draws other requests; default ${default}."`
	Seed     uint64    `default:"1" placeholder:"N" help:"The first of --seeds; default ${default}."`
	Engine   string    `default:"qwen3-32b-1xh200" placeholder:"PROFILE" help:"The engine that is modelled: ${profiles}, or a measured FILE.json; default ${default}."`
	Replicas int       `default:"1" placeholder:"N" help:"How many engines there are; default ${default}."`
	Prefills int       `default:"0" placeholder:"N" help:"How many more engines compute prompts for them and hand these over; default none."`
	Blocks   int32     `placeholder:"N" help:"Blocks of KV memory in each engine; default what the profile says."`
	Entropy  *float64  `placeholder:"ALPHA" help:"End thoughts as the governor does, by entropies that are made up from the seed, with this entropy.ema_alpha; other thresholds are the configuration's defaults. Default: only policies end thoughts."`
	Capacity float64   `placeholder:"RATE" help:"Requests a second that load 1 is; default what the engines turn out to serve under stock."`
	Jobs     int       `short:"j" placeholder:"N" help:"Runs at a time; default one per core."`
	Out      string    `required:"" placeholder:"DIR" help:"Where report.json, report.md and report.html go. It must be new, empty, or hold such a report."`
}

type replayRun struct {
	replayWindow
	Policy  []string `default:"all" placeholder:"NAME" help:"Policies to compare: all, or some of ${policies}; NAME=POLICY is one of them under another name, to be set apart; default ${default}."`
	Set     []string `sep:"none" placeholder:"POLICY.PARAMETER=VALUE" help:"Set a parameter of a policy, by the name it has in --policy; may be given several times."`
	Subject string   `placeholder:"NAME" help:"The policy that the others are compared with; default meridian, or the last."`
}

func (c *replayRun) Help() string {
	return "Requests of a workload go through modelled engines in virtual time, under every policy, at every load, with every seed: the same " +
		"requests for each policy. The report says who waits for what, with intervals over seeds, and where the policy that it is about loses. The same seeds " +
		"and build make the same report.json, byte for byte. docs/replay.md tells how to read it.\n\nParameters for --set:" + parameterList()
}

func parameterList() string {
	var b strings.Builder
	for _, p := range sweep.Parameters {
		for _, policy := range p.Policies {
			fmt.Fprintf(&b, "\n  %s.%s (%g to %g)", policy, p.Name, p.Low, p.High)
		}
	}
	return b.String()
}

func (c *replayRun) Run(std *stdio) error {
	candidates, err := c.candidates()
	if err != nil {
		return replayFailed(err)
	}
	o, err := c.options(candidates)
	if err != nil {
		return replayFailed(err)
	}
	o.Subject = c.subject(candidates)
	o.Command = c.again("replay", "--policy "+strings.Join(texts(candidates), ","), c.setFlags(), "--subject "+o.Subject)
	ctx, stop := untilStopped()
	defer stop()
	o.Progress = replayProgress(std.err)
	r, err := sweep.Run(ctx, o)
	endLine(std.err)
	if err != nil {
		return replayFailed(err)
	}
	return publish(std, c.Out, r)
}

// candidates are the policies with their parameters.
func (c *replayRun) candidates() ([]sweep.Candidate, error) {
	var all []sweep.Candidate
	for _, text := range c.Policy {
		if text == "all" {
			for _, name := range policy.Names() {
				all = append(all, sweep.Candidate{Name: name, Policy: name})
			}
			continue
		}
		candidate, err := sweep.NewCandidate(text)
		if err != nil {
			return nil, err
		}
		all = append(all, candidate)
	}
	wanted := names(all)
	for _, setting := range c.Set {
		policy, rest, dotted := strings.Cut(setting, ".")
		i := slices.Index(wanted, policy)
		if !dotted || i < 0 {
			return nil, fmt.Errorf("%w: --set %s: it is POLICY.PARAMETER=VALUE, of one of %s", sweep.ErrOptions, setting, strings.Join(wanted, ", "))
		}
		if err := all[i].Set(rest); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *replayRun) subject(candidates []sweep.Candidate) string {
	const ours = "meridian"
	switch all := names(candidates); {
	case c.Subject != "":
		return c.Subject
	case slices.Contains(all, ours):
		return ours
	case len(all) > 0:
		return all[len(all)-1]
	}
	return ""
}

func (c *replayRun) setFlags() string {
	flags := make([]string, len(c.Set))
	for i, s := range c.Set {
		flags[i] = "--set " + s
	}
	return strings.Join(flags, " ")
}

func names(candidates []sweep.Candidate) []string {
	all := make([]string, len(candidates))
	for i, c := range candidates {
		all[i] = c.Name
	}
	return all
}

// texts are candidates as --policy takes them.
func texts(candidates []sweep.Candidate) []string {
	all := make([]string, len(candidates))
	for i, c := range candidates {
		all[i] = c.String()
	}
	return all
}

// options are those of a sweep, with what can be refused before hours of work.
func (c *replayWindow) options(candidates []sweep.Candidate) (sweep.Options, error) {
	profile, err := replay.FindProfile(c.Engine)
	if err != nil {
		return sweep.Options{}, err
	}
	if c.Blocks < 0 || c.Seeds < 1 || c.Seeds > 1000 || c.Jobs < 0 || c.Seed == 0 || !(c.Hours > 0) || !(c.Start >= 0) || c.Hours > mostHours || c.Start > mostHours {
		return sweep.Options{}, fmt.Errorf("%w: --hours is above 0, --seed too, --seeds from 1 to 1000; --start, --blocks and --jobs are not negative; --hours and --start are at most %d", sweep.ErrOptions, mostHours)
	}
	if c.Blocks > 0 {
		profile.Blocks = c.Blocks
	}
	warmup := given(c.Warmup, c.Hours*60/12)
	if !(warmup >= 0 && warmup < 60*c.Hours) {
		return sweep.Options{}, fmt.Errorf("%w: a warm-up of %g minutes leaves nothing of %g hours", sweep.ErrOptions, warmup, c.Hours)
	}
	thoughts, err := c.thoughts()
	if err != nil {
		return sweep.Options{}, err
	}
	if err := mayHold(c.Out); err != nil {
		return sweep.Options{}, err
	}
	build := thisBuild()
	return sweep.Options{
		Workload: c.Workload, DataDir: c.Data, Start: hours(c.Start), Duration: hours(c.Hours), Candidates: candidates, Loads: c.Load, Capacity: c.Capacity,
		Seeds: seedsFrom(c.Seed, c.Seeds), Jobs: c.Jobs, Build: build.Version, Commit: build.Commit,
		Cell: replay.Config{Profile: profile, Replicas: c.Replicas, Prefills: c.Prefills, Warmup: hours(warmup / 60), Thoughts: thoughts},
	}, nil
}

// mostHours is what a window may last: 90 days.
const mostHours = 90 * 24

func hours(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }

func seedsFrom(first uint64, count int) []uint64 {
	seeds := make([]uint64, count)
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}

// again is the command that makes the same report. Where its data and its
// report lie is the reader's affair.
func (c *replayWindow) again(command string, flags ...string) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	loads := make([]string, len(c.Load))
	for i, load := range c.Load {
		loads[i] = number(load)
	}
	words := append([]string{"meridian", command, "--workload " + filepath.Base(c.Workload)}, flags...)
	words = append(words, "--load "+strings.Join(loads, ","), "--hours "+number(c.Hours), "--start "+number(c.Start),
		fmt.Sprintf("--seeds %d --seed %d", c.Seeds, c.Seed), "--engine "+filepath.Base(c.Engine))
	add := func(set bool, flag string) {
		if set {
			words = append(words, flag)
		}
	}
	add(c.Warmup != nil, "--warmup "+number(given(c.Warmup, 0)))
	add(c.Replicas != 1, fmt.Sprintf("--replicas %d", c.Replicas))
	add(c.Prefills != 0, fmt.Sprintf("--prefills %d", c.Prefills))
	add(c.Blocks != 0, fmt.Sprintf("--blocks %d", c.Blocks))
	add(c.Entropy != nil, "--entropy "+number(given(c.Entropy, 0)))
	add(c.Capacity != 0, "--capacity "+number(c.Capacity))
	add(c.Data != "", "--data DIR")
	words = append(words, "--out DIR")
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// replayFailed gives an error the advice and the status that go with it.
func replayFailed(err error) error {
	for _, usage := range []error{sweep.ErrOptions, workload.ErrOptions, replay.ErrConfig, replay.ErrProfile, policy.ErrUnknownPolicy, errOccupied} {
		if errors.Is(err, usage) {
			return &failure{err: err, hint: "`meridian replay run --help` lists what it takes", status: exitInvalid}
		}
	}
	if errors.Is(err, sweep.ErrInterrupted) {
		return &failure{err: err, hint: "nothing was written; the same command begins again", status: exitFailure}
	}
	return err
}

// replayProgress shows how far the runs are: on a terminal in one line that is
// written over, elsewhere in a line for each run that has ended.
func replayProgress(w io.Writer) func(sweep.Progress) {
	if !onTerminal(w) {
		return func(p sweep.Progress) {
			if p.Ended != "" {
				fmt.Fprintf(w, "[%d/%d] %s%s\n", p.Done, p.Runs, p.Ended, leftText(p.Left))
			}
		}
	}
	var drawn time.Time
	return func(p sweep.Progress) {
		if time.Since(drawn) < 100*time.Millisecond && p.Done < p.Runs {
			return
		}
		drawn = time.Now()
		filled := int(barWidth * p.Part)
		fmt.Fprintf(w, "\r\x1b[K[%s%s] %d of %d runs%s", strings.Repeat("█", filled), strings.Repeat("·", barWidth-filled), p.Done, p.Runs, leftText(p.Left))
	}
}

func leftText(left time.Duration) string {
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(", about %v left", left.Round(time.Second))
}

// endLine ends a line of progress, where there is one.
func endLine(w io.Writer) {
	if onTerminal(w) {
		fmt.Fprint(w, "\r\x1b[K")
	}
}

// publish writes a report and says what is in it.
func publish(std *stdio, dir string, r *report.Report) error {
	err := writeDir(dir, map[string]func(io.Writer) error{"report.json": r.WriteJSON, "report.md": r.WriteMarkdown, "report.html": r.WriteHTML})
	if err != nil {
		return unwritable(dir, err)
	}
	if err := r.WriteSummary(std.out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "\n%s for people, report.md and report.json beside it\n", filepath.Join(dir, "report.html"))
	return err
}

func profileNames() []string {
	var all []string
	for _, p := range replay.Profiles() {
		all = append(all, p.Name)
	}
	return all
}
