package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
)

// PoliciesOptions says how to measure what scheduling policies do to a mixed load.
type PoliciesOptions struct {
	Model string `enum:"tiny,small" default:"small" placeholder:"MODEL" help:"Which of the models that reference engines bring along: tiny or small; default ${default}."`
	// Policies are measured beside PolicyBaseline, which is always among them.
	Policies      []string `name:"policy" placeholder:"NAME" help:"Policies to measure beside stock (default: all)."`
	Requests      int      `default:"48" placeholder:"N" help:"Requests of a round; every other one thinks long; default ${default}."`
	Thought       int      `default:"192" placeholder:"N" help:"Tokens of the longest thought; default ${default}."` // the shortest of those has half
	Load          float64  `default:"1" placeholder:"X" help:"How fast requests come, as a share of what the cell of stock can do; default ${default}."`
	Blocks        int      `default:"64" placeholder:"N" help:"Blocks of 16 tokens that each engine has; default ${default}."`
	MaxRunning    int      `default:"16" placeholder:"N" help:"Answers that each engine computes at a time; default ${default}."`
	Rounds        int      `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Seed          uint64   `default:"1" placeholder:"N" help:"What requests and their arrivals are drawn from; default ${default}."`
	bench.Setting `kong:"-"`
}

// PolicyBaseline is the policy that the others are measured beside.
const PolicyBaseline = "stock"

// policyBlock is how many tokens a block of the engines has.
const policyBlock = 16

func (o *PoliciesOptions) validate() error {
	switch {
	case o.Rounds < 1 || o.Rounds > 100:
		return fmt.Errorf("%w: %d rounds; 1 to 100", bench.ErrOptions, o.Rounds)
	case o.Requests < 2 || o.Requests > 1000:
		return fmt.Errorf("%w: %d requests; 2 to 1000", bench.ErrOptions, o.Requests)
	case o.Thought < 16 || o.Thought > 500:
		// By default no thought is ended by its entropy before it has 512 tokens.
		return fmt.Errorf("%w: thoughts of %d tokens; 16 to 500", bench.ErrOptions, o.Thought)
	case !(o.Load > 0 && o.Load <= 10):
		return fmt.Errorf("%w: a load of %g; above 0, at most 10", bench.ErrOptions, o.Load)
	case o.MaxRunning < 1:
		return fmt.Errorf("%w: %d answers at a time; at least 1", bench.ErrOptions, o.MaxRunning)
	case o.Blocks*policyBlock < o.Thought+128:
		return fmt.Errorf("%w: %d blocks do not hold one request; at least %d", bench.ErrOptions, o.Blocks, (o.Thought+128)/policyBlock+1)
	}
	return nil
}

// policiesRun is a cell for each policy, all open at the same time.
type policiesRun struct {
	*trial
	options PoliciesOptions
	byName  map[string]*cell.Cell
	load    []mixedRequest
	want    []mixedAnswer // of an engine alone
}

// RunPolicies has cells that differ in nothing but their policy serve the same mixed load,
// in turn, round by round, so that what the machine does meanwhile meets all of them.
func RunPolicies(ctx context.Context, o PoliciesOptions) (report *PoliciesReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if !slices.Contains(o.Policies, PolicyBaseline) {
		o.Policies = append([]string{PolicyBaseline}, o.Policies...)
	}
	t, err := newTrial(o.Setting, o.Requests)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	run := &policiesRun{trial: t, options: o, byName: make(map[string]*cell.Cell), load: mixedLoad(o.Seed, o.Requests, o.Thought)}
	if err := run.open(ctx); err != nil {
		return nil, err
	}
	meter := bench.StartMeter(run.processes())
	report = &PoliciesReport{Head: bench.NewHead(o.Version), options: o}
	rounds, err := run.rounds(ctx, report)
	if err != nil {
		return nil, err
	}
	report.Others = meter.Others()
	report.Rows = policyRows(o.Policies, rounds)
	return report, nil
}

// open starts the cells, and has an engine that serves alone answer everything.
func (r *policiesRun) open(ctx context.Context) error {
	o := &r.options
	cut := cell.Cut{TP: 1, PP: 1, BlockTokens: policyBlock, Layout: "LBHNC"}
	spec := cell.DefaultSpec()
	spec.Model, spec.Prefill, spec.Decode, spec.Workers = o.Model, cut, cut, cell.Workers{Prefill: 1, Decode: 2}
	spec.Store, spec.Blocks, spec.MaxRunning = "64MiB", o.Blocks, o.MaxRunning
	for _, policy := range o.Policies {
		r.Tell(bench.Progress{What: "a cell with the policy " + policy})
		c, err := r.trial.open(ctx, policy, spec, "MERIDIAN_SCHEDULER_POLICY="+policy)
		if err != nil {
			return err
		}
		r.byName[policy] = c
	}
	r.Tell(bench.Progress{What: "the answers of an engine alone"})
	spec.Blocks, spec.MaxRunning = 0, 0
	plan, err := spec.Alone("alone")
	if err != nil {
		return err
	}
	alone, err := r.byName[PolicyBaseline].Add(ctx, plan)
	if err != nil {
		return err
	}
	r.want, err = sendMixed(ctx, r.client, alone.URL, "alone", r.load, arrivals(o.Seed, 0, len(r.load), 0))
	return err
}

// processes are those of all cells.
func (r *policiesRun) processes() (pids []int) {
	for _, c := range r.cells {
		for _, part := range c.Record().Parts {
			if part.Process != nil {
				pids = append(pids, part.Process.PID)
			}
		}
	}
	return pids
}

// rounds has every cell serve the load, the first time all at once, which warms up and
// tells how fast the load may come.
func (r *policiesRun) rounds(ctx context.Context, report *PoliciesReport) ([]map[string]policyRound, error) {
	o := &r.options
	all := make([]map[string]policyRound, o.Rounds+1)
	gap := time.Duration(0)
	err := inTurn(o.Rounds, o.Policies, func(round int, policy string) error {
		r.Tell(bench.Progress{Row: 1, Rows: 1, What: fmt.Sprintf("%d requests", o.Requests), Round: round, Rounds: o.Rounds, Who: policy})
		if round == 1 && gap == 0 {
			report.Capacity = bench.Rounded(all[0][PolicyBaseline].rate)
			gap = time.Duration(meanTokens(r.load) / (o.Load * report.Capacity) * float64(time.Second))
		}
		found, err := r.round(ctx, policy, round, gap)
		if err != nil {
			return fmt.Errorf("%w: the policy %s: %w", ErrMeasure, policy, err)
		}
		if all[round] == nil {
			all[round] = make(map[string]policyRound)
		}
		all[round][policy] = found
		return nil
	})
	return all[1:], err
}

// policyRound is what one policy did with the load once.
type policyRound struct {
	latencies map[string][2][]time.Duration // TTFVT and TTOT, by who asked
	rate      float64                       // tokens a second
	preempted uint64
}

// Who asks.
const (
	policyAll   = "all"
	policyShort = "short"
	policyLong  = "long"
)

func (r *policiesRun) round(ctx context.Context, policy string, round int, gap time.Duration) (found policyRound, err error) {
	c := r.byName[policy]
	before, err := r.preempted(ctx, c)
	if err != nil {
		return found, err
	}
	answers, err := sendMixed(ctx, r.client, c.Record().Gateway, fmt.Sprint("round ", round), r.load, arrivals(r.options.Seed, round, len(r.load), gap))
	if err == nil {
		err = sameAnswers(r.want, answers)
	}
	if err != nil {
		return found, err
	}
	after, err := r.preempted(ctx, c)
	if err != nil {
		return found, err
	}
	found = summed(r.load, answers, arrivals(r.options.Seed, round, len(r.load), gap))
	found.preempted = after - before
	return found, nil
}

// summed makes a round of its answers.
func summed(load []mixedRequest, answers []mixedAnswer, due []time.Duration) policyRound {
	found := policyRound{latencies: make(map[string][2][]time.Duration)}
	var last time.Duration
	tokens := 0
	for i, a := range answers {
		who := policyShort
		if load[i].long {
			who = policyLong
		}
		for _, who := range []string{who, policyAll} {
			both := found.latencies[who]
			both[0], both[1] = append(both[0], a.ttfvt), append(both[1], a.ttot)
			found.latencies[who] = both
		}
		last = max(last, due[i]+a.took)
		tokens += len(a.tokens)
	}
	found.rate = float64(tokens) / (last - due[0]).Seconds()
	return found
}

// preempted is how often the engines of a cell took blocks from requests, by themselves or
// because the governor said so.
func (r *policiesRun) preempted(ctx context.Context, c *cell.Cell) (sum uint64, err error) {
	for _, part := range engines(c) {
		var stats struct {
			Counters struct{ Preempted, Stopped uint64 }
		}
		if err := getJSON(ctx, r.client, part.URL+"/stats", &stats); err != nil {
			return 0, err
		}
		sum += stats.Counters.Preempted + stats.Counters.Stopped
	}
	return sum, nil
}
