package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// What report.json says of itself. A reader takes its own version only; a
// member may be added without a new one, none changes its meaning.
const (
	Schema  = "meridian-replay-report"
	Version = 1
)

// Run is what one replay said: one policy at one load with one seed.
type Run struct {
	Policy string
	Load   float64
	Seed   uint64
	// Values are figures by the names in Metrics; what a run could not measure,
	// such as a thought's end where no request thinks, is left out.
	Values map[string]float64
	// Quantiles are, by the names in Latencies, values at Grid.
	Quantiles map[string][]float64
	Timeline  *Timeline
}

// Grid are the probabilities at which distributions are kept.
var Grid = grid()

func grid() []float64 {
	var p []float64
	for i := range 20 {
		p = append(p, rounded(float64(i)*0.05))
	}
	return append(p, 0.96, 0.97, 0.98, 0.985, 0.99, 0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.9999)
}

// Timeline is how a run went: what there was at equal steps of its time.
type Timeline struct {
	StepS float64 `json:"step_s"`
	// Requests by what they did, and the share of KV memory by what it held:
	// series of one length, to be stacked.
	Requests []Series `json:"requests"`
	KV       []Series `json:"kv"`
}

// rounded is the timeline with as many digits as a picture can show.
func (t *Timeline) rounded() *Timeline {
	if t == nil {
		return nil
	}
	short := func(all []Series) []Series {
		out := make([]Series, len(all))
		for i, s := range all {
			out[i] = Series{Name: s.Name, Values: make([]float64, len(s.Values))}
			for k, v := range s.Values {
				out[i].Values[k] = roundedTo(v, 4)
			}
		}
		return out
	}
	return &Timeline{StepS: rounded(t.StepS), Requests: short(t.Requests), KV: short(t.KV)}
}

// Series is one band of a timeline.
type Series struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// About is what a report says of how it was made.
type About struct {
	// Build is the version of the program, Commit its source.
	Build  string `json:"build"`
	Commit string `json:"commit"`
	// Command makes the same report again.
	Command  string   `json:"command"`
	Workload Workload `json:"workload"`
	// Engine says what was modelled, in lines of name and value.
	Engine []Fact `json:"engine"`
	// Policies are in the order of the tables; Subject is the one that the
	// others are compared with.
	Policies []string `json:"policies"`
	Subject  string   `json:"subject"`
	// Variants are those of Policies that are another's, with other settings.
	Variants []Variant `json:"variants,omitempty"`
}

// Variant is a policy under a name that says how it is set.
type Variant struct {
	Name     string `json:"name"`
	Policy   string `json:"policy"`
	Settings string `json:"settings"`
}

// Workload is what was replayed.
type Workload struct {
	Name    string `json:"name"`
	Label   string `json:"label"`
	Licence string `json:"licence"`
	// Synthetic workloads are made up, or mix two sources.
	Synthetic bool    `json:"synthetic"`
	FromS     float64 `json:"from_s"`
	DurationS float64 `json:"duration_s"`
	// RateAt1 is requests per second at load 1.
	RateAt1 float64 `json:"rate_at_1"`
}

// Fact is a name and what it is.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Report is everything that is written; its form in JSON is report.json.
type Report struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	About
	Loads      []float64 `json:"loads"`
	Seeds      []uint64  `json:"seeds"`
	Confidence float64   `json:"confidence"`
	Metrics    []Metric  `json:"metrics"`
	// Grid are the probabilities of all quantiles below.
	Grid      []float64  `json:"grid"`
	Points    []Point    `json:"points"`
	Deltas    []Delta    `json:"deltas"`
	Standings []Standing `json:"standings"`
}

// Point is one policy at one load, over all seeds.
type Point struct {
	Policy    string         `json:"policy"`
	Load      float64        `json:"load"`
	Values    []Value        `json:"values"`
	Quantiles []Distribution `json:"quantiles"`
	// Timeline is that of the first seed.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Value is a metric over the seeds, and of each.
type Value struct {
	Metric string `json:"metric"`
	Interval
	Seeds []float64 `json:"seeds"`
}

// Distribution is a latency's quantiles at the report's Grid, each the mean
// over seeds.
type Distribution struct {
	Latency string    `json:"latency"`
	Values  []float64 `json:"values"`
}

func (p *Point) value(metric string) *Value {
	if i := slices.IndexFunc(p.Values, func(v Value) bool { return v.Metric == metric }); i >= 0 {
		return &p.Values[i]
	}
	return nil
}

func (p *Point) quantiles(latency string) []float64 {
	if i := slices.IndexFunc(p.Quantiles, func(d Distribution) bool { return d.Latency == latency }); i >= 0 {
		return p.Quantiles[i].Values
	}
	return nil
}

// Point finds one, or nil.
func (r *Report) Point(policy string, load float64) *Point {
	for i := range r.Points {
		if p := &r.Points[i]; p.Policy == policy && p.Load == load {
			return p
		}
	}
	return nil
}

// ErrRuns is wrapped by what Build has against its runs.
var ErrRuns = errors.New("runs that make no report")

type builder struct {
	report *Report
	runs   map[key]Run
}

type key struct {
	policy string
	load   float64
	seed   uint64
}

// Build makes a report of runs, whatever their order: one for each policy,
// load and seed.
func Build(about About, runs []Run) (*Report, error) {
	about.Workload.RateAt1 = rounded(about.Workload.RateAt1)
	b := &builder{runs: make(map[key]Run, len(runs))}
	r := &Report{
		Schema: Schema, Version: Version, About: about, Confidence: Confidence, Metrics: Metrics, Grid: Grid,
		Points: []Point{}, Deltas: []Delta{}, Standings: []Standing{},
	}
	for _, run := range runs {
		k := key{run.Policy, run.Load, run.Seed}
		if _, twice := b.runs[k]; twice {
			return nil, fmt.Errorf("%w: %s at load %v with seed %d comes twice", ErrRuns, run.Policy, run.Load, run.Seed)
		}
		b.runs[k] = run
		r.Loads, r.Seeds = append(r.Loads, run.Load), append(r.Seeds, run.Seed)
	}
	r.Loads, r.Seeds = distinct(r.Loads), distinct(r.Seeds)
	if len(runs) == 0 || len(runs) != len(r.Policies)*len(r.Loads)*len(r.Seeds) || !slices.Contains(r.Policies, r.Subject) {
		return nil, fmt.Errorf("%w: %d runs of %d policies, %d loads and %d seeds, about %q",
			ErrRuns, len(runs), len(r.Policies), len(r.Loads), len(r.Seeds), r.Subject)
	}
	if len(r.Policies) > MaxPolicies || len(r.Loads) > MaxLoads || len(r.Seeds) > MaxSeeds {
		return nil, fmt.Errorf("%w: %d policies, %d loads, %d seeds; at most there are %d, %d and %d",
			ErrRuns, len(r.Policies), len(r.Loads), len(r.Seeds), MaxPolicies, MaxLoads, MaxSeeds)
	}
	b.report = r
	for _, load := range r.Loads {
		for _, policy := range r.Policies {
			p, err := b.point(policy, load)
			if err != nil {
				return nil, err
			}
			r.Points = append(r.Points, p)
		}
	}
	r.compare()
	return r, nil
}

func distinct[T ~float64 | ~uint64](values []T) []T {
	slices.Sort(values)
	return slices.Compact(values)
}

// point gathers the seeds of one policy at one load.
func (b *builder) point(policy string, load float64) (Point, error) {
	p := Point{Policy: policy, Load: load, Values: []Value{}, Quantiles: []Distribution{}}
	seeds := make([]Run, len(b.report.Seeds))
	for i, seed := range b.report.Seeds {
		run, known := b.runs[key{policy, load, seed}]
		if !known {
			return p, fmt.Errorf("%w: none of %s at load %v with seed %d", ErrRuns, policy, load, seed)
		}
		seeds[i] = run
	}
	p.Timeline = seeds[0].Timeline.rounded()
	for _, m := range Metrics {
		if values, measured := gather(seeds, func(r Run) (float64, bool) { v, known := r.Values[m.Name]; return v, known }); measured {
			p.Values = append(p.Values, Value{Metric: m.Name, Interval: m.within(meanInterval(values)), Seeds: values})
		}
	}
	for _, l := range Latencies {
		d := Distribution{Latency: l.Name}
		for i := range Grid {
			values, measured := gather(seeds, func(r Run) (float64, bool) {
				q := r.Quantiles[l.Name]
				return at(q, i), len(q) == len(Grid)
			})
			if measured {
				d.Values = append(d.Values, rounded(meanOf(values)))
			}
		}
		if len(d.Values) == len(Grid) {
			p.Quantiles = append(p.Quantiles, d)
		}
	}
	return p, nil
}

func at(values []float64, i int) float64 {
	if i < len(values) {
		return values[i]
	}
	return math.NaN()
}

// gather is a figure of every seed, where every seed has it.
func gather(seeds []Run, figure func(Run) (float64, bool)) (values []float64, measured bool) {
	for _, run := range seeds {
		v, known := figure(run)
		if !known || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, false
		}
		values = append(values, rounded(v))
	}
	return values, true
}

// compare sets the subject against the others, and all against all in what is judged.
func (r *Report) compare() {
	for _, load := range r.Loads {
		points := r.at(load)
		subject := r.Point(r.Subject, load)
		for _, m := range Metrics {
			for _, other := range points {
				if other == subject {
					continue
				}
				if d, compared := delta(m, subject, other); compared {
					r.Deltas = append(r.Deltas, d)
				}
			}
		}
		for _, p := range points {
			r.Standings = append(r.Standings, r.standing(p, points))
		}
	}
}

// at is the points of one load, in the order of the policies.
func (r *Report) at(load float64) []*Point {
	var points []*Point
	for i := range r.Points {
		if r.Points[i].Load == load {
			points = append(points, &r.Points[i])
		}
	}
	return points
}
