package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"meridian/prove/bench"
	"meridian/prove/bench/load"
	"meridian/prove/replay/workload"
)

// TraceReport is what a recorded day found in the cache.
type TraceReport struct {
	Workload string  `json:"workload"`
	Sample   bool    `json:"sample"` // it is made up, in the manner of the recorded one
	Scaling  Scaling `json:"scaling"`
	Model    string  `json:"model"`
	Unit     int     `json:"unit_tokens"`
	// Best is what a cache without bound would find, from which all else is told.
	Best float64    `json:"best_hit_rate"`
	Rows []TraceRow `json:"rows"`
}

// TraceRow is one cell that served the trace.
type TraceRow struct {
	Setup  string `json:"setup"`
	Bytes  uint64 `json:"bytes"`   // of the engines and of all tiers; 0: S3 has no bound here
	Memory uint64 `json:"memory"`  // of the store, of Bytes
	Engine uint64 `json:"engines"` // of Bytes
	// HitRate is tokens of prompts that were not computed, over all; LRU that of a model
	// of the store's bytes, and where there is none of the engines'; Together that of one
	// of all bytes, in which nothing lies twice.
	HitRate float64 `json:"hit_rate"`
	LRU     float64 `json:"lru_hit_rate"`
	OfLRU   float64 `json:"of_lru"`
	// InTime is what the LRU model finds if it is given a prompt when its first token comes
	// in this run, and not when it is sent: what no engine has computed, no cache has.
	InTime     float64 `json:"in_time_hit_rate"`
	OfInTime   float64 `json:"of_in_time"`
	Together   float64 `json:"together_hit_rate"`
	OfTogether float64 `json:"of_together"`
	OfBest     float64 `json:"of_best"`
	// NotComputed are tokens, and FromStore those of them that the store had.
	NotComputed int64 `json:"tokens_not_computed"`
	FromStore   int64 `json:"tokens_from_store"`
	// Lost are tokens that the LRU model has and that were computed, by reason, and More those
	// that it has not, and that were not computed.
	Lost Ends  `json:"tokens_lost,omitempty"`
	More int64 `json:"tokens_more,omitempty"`
	// Finds and Keeps are what came of the engines' questions, and of what they let be kept.
	Finds Ends `json:"finds,omitempty"`
	Keeps Ends `json:"keeps,omitempty"`
	// TTFT in milliseconds, and as part of what engines without a store take.
	P50   float64 `json:"ttft_p50_ms"`
	P99   float64 `json:"ttft_p99_ms"`
	OfP50 float64 `json:"of_p50"`
	OfP99 float64 `json:"of_p99"`
	// Others is how many cores were used by processes that are not part of the run.
	Others float64 `json:"others"`
}

// Ends is how often each end was counted, by the name that metrics have for it.
type Ends map[string]int64

// String has the most frequent first.
func (e Ends) String() string {
	names := slices.SortedFunc(maps.Keys(e), func(a, b string) int { return cmp.Or(cmp.Compare(e[b], e[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, e[name])
	}
	return strings.Join(names, ", ")
}

const (
	// traceUnit is a block of 512 tokens after scaling: an object of the store, and a block
	// of the engines.
	traceUnit = engineBlock
	// traceBlocks is what an engine has for itself: of a long prompt a quarter, which it
	// may give to be kept at a time.
	traceBlocks  = 512
	traceAnswer  = 32
	traceEngines = 2
	traceDisk    = 1 << 30
	// traceClients ask, each for the next request of the trace when it has its answer: how
	// fast the machine is, and who else uses it, then changes little of what is found.
	traceClients = 2 * traceEngines
)

// named is a setup with what it is called.
type named struct {
	name string
	setup
}

func traceSetups(o *Options) []named {
	base := setup{model: o.Model, blocks: traceBlocks, unit: traceUnit}
	memory, small := base, base
	memory.memory, small.memory = o.Memory.Bytes, o.Memory.Bytes/4
	disk, s3 := small, small
	disk.disk, s3.s3 = traceDisk, true
	return []named{
		{"engines alone", base},
		{"memory " + mib(memory.memory), memory},
		{"memory " + mib(small.memory), small},
		{"memory " + mib(small.memory) + " + disk", disk},
		{"memory " + mib(small.memory) + " + S3", s3},
	}
}

// bytes are all that keep something for the cell, and those of them that are the store's, or
// where there is none the engines'; 0 where there is no bound.
func (s *setup) bytes() (all, lru uint64) {
	switch store := s.memory + s.disk; {
	case s.s3:
		return 0, 0
	case store == 0:
		return s.engines(), s.engines()
	default:
		return store + s.engines(), store
	}
}

func (s *setup) engines() uint64 {
	return traceEngines * uint64(s.blocks) * engineBlock * models[s.model].bytesPerToken
}

func runTrace(ctx context.Context, o Options, r *Report) (*TraceReport, error) {
	all, t, err := openTrace(o)
	if err != nil {
		return nil, err
	}
	setups := traceSetups(&o)
	for i, s := range setups {
		if _, absent := o.s3Program(); s.s3 && absent != nil {
			r.Miss(*absent)
			continue
		}
		o.Tell(bench.Progress{Row: i + 1, Rows: len(setups), What: "trace: " + s.name, Round: 1, Rounds: 1, Who: "starting"})
		row, err := traceRow(ctx, o, s, all, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		t.Rows = append(t.Rows, row)
	}
	for i := range t.Rows {
		row, alone := &t.Rows[i], &t.Rows[0]
		row.OfP50, row.OfP99 = ratio(row.P50, alone.P50), ratio(row.P99, alone.P99)
	}
	return t, nil
}

// openTrace reads the trace and makes it small.
func openTrace(o Options) ([]workload.Request, *TraceReport, error) {
	source, info, err := workload.Open(cmp.Or(o.Trace, "mooncake-conversation"), workload.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	var recorded []workload.Request
	for q, more := source.Next(); more; q, more = source.Next() {
		recorded = append(recorded, q)
	}
	if err := errors.Join(source.Err(), source.Close()); err != nil {
		return nil, nil, err
	}
	all, s, err := scaled(recorded, bounds{
		requests: o.Requests, unit: traceUnit, prompt: models[o.Model].context - traceAnswer - 1, output: traceAnswer,
	})
	if err != nil {
		return nil, nil, err
	}
	t := &TraceReport{Workload: info.Label, Sample: info.Sample, Scaling: s, Model: o.Model, Unit: traceUnit, Best: bench.Rounded(hitRate(all, modelled(all, 0)))}
	return all, t, nil
}

// traceRow has a cell of its own serve the trace.
func traceRow(ctx context.Context, o Options, s named, all []workload.Request, t *TraceReport) (row TraceRow, err error) {
	w, err := openWorld(ctx, o, s.setup)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, w.CloseWithin(stopLimit)) }()
	asks := load.Options{URL: w.cell.Record().Gateway, Model: o.Model, Completions: true, Closed: true, MaxRunning: traceClients, Seed: 1}
	did, answered, ids := recorder(len(all))
	asks.Answered = answered
	meter := bench.StartMeter(w.pids())
	report, err := served(ctx, asks, all)
	if err != nil {
		return row, err
	}
	unitBytes := models[s.model].bytesPerToken * uint64(s.unit)
	bytes, lruBytes := s.bytes()
	units := int(lruBytes / unitBytes)
	atOnce := modelled(all, units)
	spans := make([]span, len(did))
	for i := range did {
		spans[i] = did[i].span
	}
	row = TraceRow{
		Setup: s.name, Bytes: bytes, Memory: s.memory, Engine: s.engines(), NotComputed: report.Result.Cache.HitTokens,
		HitRate: bench.Rounded(float64(report.Result.Cache.HitTokens) / float64(max(report.Result.Cache.PromptTokens, 1))),
		LRU:     bench.Rounded(hitRate(all, atOnce)), InTime: bench.Rounded(hitRate(all, modelledInTime(all, units, spans))),
		Together: bench.Rounded(hitRate(all, modelled(all, int(bytes/unitBytes)))), Others: meter.Others(),
		P50: bench.Rounded(report.Result.Latency.TTFT.P50 * 1e3), P99: bench.Rounded(report.Result.Latency.TTFT.P99 * 1e3),
	}
	row.OfInTime = ratio(row.HitRate, row.InTime)
	row.OfLRU, row.OfTogether, row.OfBest = ratio(row.HitRate, row.LRU), ratio(row.HitRate, row.Together), ratio(row.HitRate, t.Best)
	if s.memory > 0 {
		if err := w.remember(ctx, did, ids); err != nil {
			return row, err
		}
		found, err := w.counts(ctx, "meridian_cache_tokens_total", `result="found"`)
		if err != nil {
			return row, err
		}
		row.FromStore = int64(found)
		if row.Finds, err = w.ends(ctx, "meridian_cache_finds_total"); err != nil {
			return row, err
		}
		if row.Keeps, err = w.ends(ctx, "meridian_cache_keeps_total"); err != nil {
			return row, err
		}
	}
	row.Lost, row.More = losses(all, atOnce, did)
	return row, nil
}

// served sends requests, all of which must be answered.
func served(ctx context.Context, asks load.Options, all []workload.Request) (*load.Report, error) {
	report, err := load.Run(ctx, asks, &workload.List{Requests: all})
	if err != nil {
		return nil, err
	}
	if report.Complete != len(all) {
		why := "more were under way than may be"
		if len(report.Problems) > 0 {
			why = report.Problems[0].Text
		}
		return nil, fmt.Errorf("bench: %d of %d requests were answered: %s", report.Complete, len(all), why)
	}
	return report, nil
}
