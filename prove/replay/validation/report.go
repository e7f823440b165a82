package validation

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"meridian/prove/bench"
	"meridian/prove/replay"
)

// Report is what was predicted beside what was measured.
type Report struct {
	bench.Head
	Rows []Row
	// MedianError is of the rows: half are at most so far off, in parts.
	MedianError float64
	// Profile was fitted to so many Steps, half of which it misses by at most
	// FitError, in parts.
	Profile  replay.Profile
	Steps    int
	FitError float64
	// Capacity is how many requests a second load 1 is.
	Capacity float64

	options Options
}

// Row is one figure at one load.
type Row struct {
	Load      float64 `json:"load"`
	Metric    string  `json:"metric"`
	Quantile  string  `json:"quantile,omitempty"`
	Unit      string  `json:"unit"`
	Predicted float64 `json:"predicted"`
	Measured  float64 `json:"measured"`
	// Error is by which part of the measured value the prediction is above it.
	Error float64 `json:"error"`
}

func newRow(load float64, metric, quantile, unit string, predicted, measured float64) Row {
	return Row{
		Load: load, Metric: metric, Quantile: quantile, Unit: unit, Predicted: bench.Rounded(predicted), Measured: bench.Rounded(measured),
		Error: bench.Rounded(predicted/measured - 1),
	}
}

func (r *Report) sumUp() {
	var all []float64
	for _, row := range r.Rows {
		all = append(all, math.Abs(row.Error))
	}
	r.MedianError = slices.Sorted(slices.Values(all))[len(all)/2]
}

// WriteJSON writes everything for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine     string         `json:"machine"`
		Others      float64        `json:"others"`
		Capacity    float64        `json:"capacity_requests_per_second"`
		MedianError float64        `json:"median_error"`
		FitError    float64        `json:"fit_error"`
		Steps       int            `json:"steps"`
		Profile     replay.Profile `json:"profile"`
		Rows        []Row          `json:"rows"`
	}{bench.Machine(), r.Others, bench.Rounded(r.Capacity), r.MedianError, r.FitError, r.Steps, r.Profile, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *Report) WriteText(w io.Writer) error {
	o, p := &r.options, &r.Profile
	last := p.Dense[len(p.Dense)-1]
	note := fmt.Sprintf("the reference engine, model %s, at most %d answers and %d tokens a step; load 1 is %.2f requests a second\n"+
		"profile of %d steps, half of them within %.1f %%: %.0f ns a step, %.0f a sequence, %.0f for %d tokens, %.3g a token of context, %.3g a pair\n\n",
		o.Model, o.MaxRunning, o.StepTokens, r.Capacity, r.Steps, 100*r.FitError, p.StepNs, p.SequenceNs, last.Ns, last.Tokens, p.ContextNs, p.PairNs)
	table := bench.Table("LOAD\tMETRIC\tUNIT\tPREDICTED\tMEASURED\tERROR", r.Rows, func(row *Row) string {
		return fmt.Sprintf("%g\t%s\t%s\t%.4g\t%.4g\t%+.1f %%",
			row.Load, strings.TrimSpace(row.Metric+" "+row.Quantile), row.Unit, row.Predicted, row.Measured, 100*row.Error)
	})
	return bench.Write(w, r.Text(), note, table, fmt.Sprintf("\nmedian error %.1f %%\n", 100*r.MedianError))
}
