package transfer

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"meridian/prove/bench"
)

// ObservedReport is what being watched costs.
type ObservedReport struct {
	bench.Head
	Rows   []ObservedRow
	Scrape Scrape

	options HandOffOptions
}

// ObservedRow is one line of the table.
type ObservedRow struct {
	Fabric string `json:"fabric"`
	Errand
	// Bytes are of all requests that are handed over at a time.
	Bytes uint64 `json:"bytes"`
	// Watched is with the page open and 1 % traced, Unwatched with neither.
	Watched   bench.Figure `json:"watched"`
	Unwatched bench.Figure `json:"unwatched"`
	// Ratio is of the two in each round: what is left of the throughput.
	Ratio Ratio `json:"ratio"`
	// CPU is what the processes of the cell computed for a GB, and CPURatio how much
	// more that was while they were watched.
	WatchedCPU   float64 `json:"watched_cpu_s_per_gb"`
	UnwatchedCPU float64 `json:"unwatched_cpu_s_per_gb"`
	CPURatio     Ratio   `json:"cpu_ratio"`
	// PerSecond is how many were handed over while they were watched.
	PerSecond float64 `json:"handoffs_per_second"`
	Seen      Seen    `json:"seen"`

	others float64
}

// Ratio is of two figures of a round, over the rounds.
type Ratio struct {
	Median float64 `json:"median"`
	// Low and High hold the true median between them with at least 95 %, whatever the
	// noise of the machine is distributed like; with fewer than six rounds they are the
	// least and the greatest.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (r Ratio) String() string { return fmt.Sprintf("%.3f [%.3f–%.3f]", r.Median, r.Low, r.High) }

// newRatio sums up the ratios of at least one round. Each is above the true median as
// often as a coin shows heads, so the ranks that hold it are those of a binomial.
func newRatio(rounds []float64) Ratio {
	sorted := slices.Sorted(slices.Values(rounds))
	n, outside := len(sorted), 0
	tail, chance := 0.0, math.Pow(0.5, float64(n)) // that exactly `outside` rounds are below
	for 2*(tail+chance) <= 0.05 {
		tail += chance
		chance *= float64(n-outside) / float64(outside+1)
		outside++
	}
	least := max(outside-1, 0)
	return Ratio{bench.NewFigure(sorted).Median, bench.Rounded(sorted[least]), bench.Rounded(sorted[n-1-least])}
}

// errUnseen means that a measurement of being watched was none.
var errUnseen = errors.New("bench: the watcher saw nothing of the hand-offs: what was measured is not what being watched costs")

// sum sums the rounds up.
func (row *ObservedRow) sum(turns [2][]turn) error {
	var speeds, cpus [2][]float64
	var ratios, cpuRatios []float64
	for which, all := range turns {
		for _, t := range all {
			speeds[which], cpus[which] = append(speeds[which], t.gbps), append(cpus[which], t.cpu)
		}
	}
	handOffs := 0
	for i, t := range turns[1] {
		ratios, cpuRatios = append(ratios, t.gbps/turns[0][i].gbps), append(cpuRatios, t.cpu/turns[0][i].cpu)
		handOffs += t.handOffs
	}
	row.Unwatched, row.Watched = bench.NewFigure(speeds[0]), bench.NewFigure(speeds[1])
	row.Ratio, row.CPURatio = newRatio(ratios), newRatio(cpuRatios)
	row.UnwatchedCPU, row.WatchedCPU = bench.NewFigure(cpus[0]).Median, bench.NewFigure(cpus[1]).Median
	row.PerSecond = bench.Rounded(row.Watched.Median * 1e9 / float64(row.Bytes) * float64(row.Concurrent))
	if row.Seen.Frames == 0 || row.Seen.HandOffs < uint64(handOffs)/2 || row.Seen.Batches == 0 {
		return fmt.Errorf("%w (%+v of %d)", errUnseen, row.Seen, handOffs)
	}
	return nil
}

// WriteJSON writes the rows for programs.
func (r *ObservedReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Rows   []ObservedRow `json:"rows"`
		Scrape Scrape        `json:"scrape"`
	}{r.Rows, r.Scrape})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *ObservedReport) WriteText(w io.Writer) error {
	o := &r.options
	head := r.Text(
		fmt.Sprintf("from %s to %s; decode reads; agents with a directory, records and a gateway in both", o.From, o.To),
		fmt.Sprintf("WATCHED: the page open, 1 of %d hand-offs traced; UNWATCHED: neither", traceEvery),
		fmt.Sprintf("GB/s (1e9 bytes), median [min–max] of %d rounds of %v each, in turn; LEFT: watched over unwatched, round by round, "+
			"the median and what holds it with 95 %%; CPU: seconds of agents and gateway for a GB, and their ratio like LEFT; OTHERS: cores used by others\n", o.Rounds, o.Round),
	)
	columns := "FABRIC\tMODEL\tLAYERS\tTOKENS\tAT A TIME\tMB\tWATCHED\tUNWATCHED\tLEFT\tCPU\tHAND-OFFS/S\tFRAMES\tSEEN\tSPAN BATCHES\tOTHERS"
	table := bench.Table(columns, r.Rows, func(row *ObservedRow) string {
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%.1f\t%s\t%s\t%s\t%.3f/%.3f %s\t%.0f\t%d\t%d\t%d\t%.1f",
			row.Fabric, row.Model, row.Layers, row.Tokens, row.Concurrent, float64(row.Bytes)/1e6, row.Watched, row.Unwatched, row.Ratio,
			row.WatchedCPU, row.UnwatchedCPU, row.CPURatio, row.PerSecond, row.Seen.Frames, row.Seen.HandOffs, row.Seen.Batches, row.others)
	})
	return bench.Write(w, head, table, fmt.Sprintf("\na scrape of %d series (%.1f KB), p50 and p99 of %d: %.1f ms, %.1f ms; CPU: %.1f ms each\n",
		r.Scrape.Series, float64(r.Scrape.Bytes)/1e3, r.Scrape.Scrapes, r.Scrape.P50Ms, r.Scrape.P99Ms, r.Scrape.CPUMs))
}
