package demo

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"meridian/see/ledger"
)

// Phase is how long one part of requests took, in milliseconds.
type Phase struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	// Requests is how many had this phase.
	Requests int `json:"requests"`
}

// latencies are what is summed up. Single tokens are seen in streams only.
var latencies = []struct {
	name     string
	streamed bool
	of       func(ledger.Latency) float64
}{
	{"queue", false, func(l ledger.Latency) float64 { return l.QueueMs }},
	{"prefill", false, func(l ledger.Latency) float64 { return l.PrefillMs }},
	{"hand-off", false, func(l ledger.Latency) float64 { return l.HandoffMs }},
	{"TTFT", true, func(l ledger.Latency) float64 { return l.TTFTMs }},
	{"TTFVT", true, func(l ledger.Latency) float64 { return l.TTFVTMs }},
	{"TTOT", true, func(l ledger.Latency) float64 { return l.TTOTMs }},
	{"think ITL", true, func(l ledger.Latency) float64 { return l.ThinkITLMs }},
	{"answer ITL", true, func(l ledger.Latency) float64 { return l.AnswerITLMs }},
	{"total", false, func(l ledger.Latency) float64 { return l.TotalMs }},
}

// phases sums records up. Of what did not happen in a request, or could not be
// seen, the record says 0: such a request does not count.
func phases(records []*ledger.Record) []Phase {
	var all []Phase
	for _, l := range latencies {
		var values []float64
		for _, r := range records {
			if ms := l.of(r.Latency); ms > 0 && (r.Stream || !l.streamed) {
				values = append(values, ms)
			}
		}
		slices.Sort(values)
		all = append(all, Phase{
			Name: l.name, Requests: len(values), P50: quantile(values, 0.50), P90: quantile(values, 0.90), P99: quantile(values, 0.99),
		})
	}
	return all
}

// quantile is the smallest of the sorted values that is not exceeded by a
// share q of them; of none it is 0.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// count tells where the caches of requests came from: a request is counted by
// the last leg that says so.
func (r *Report) count(records []*ledger.Record) {
	r.Reasons = make(map[string]int)
	for _, record := range records {
		kv, reason, straight := "", "sent straight to decode", true
		for _, leg := range record.Legs {
			if leg.Kind == ledger.PrefillLeg {
				reason, straight = "", false
			}
			if leg.Kind != ledger.PrefillLeg && leg.KV != "" {
				kv, reason = leg.KV, cmp.Or(leg.KVReason, reason)
			}
		}
		switch {
		case kv == "handoff":
			r.HandedOver++
		case kv == "cached":
			r.Cached++
		case kv == "found":
			r.Found++
		case kv == "" && !straight && r.HandedTokens > 0:
			r.Untold++
		default:
			r.Local++
			r.Reasons[cmp.Or(reason, "no reason given")]++
		}
	}
}

// Write shows the report to a person, all but the verdict.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintf(w, "%d prompts through the gateway in %.1f s: %d handed over from prefill to decode, %d found in decode's cache, %d computed on decode\n",
		r.Prompts, r.CellSeconds, r.HandedOver, r.Cached, r.Local)
	if r.Untold > 0 {
		fmt.Fprintf(w, "%d more went by a prefill worker; their engines tell only that decode took %d tokens of cache from prefill\n", r.Untold, r.HandedTokens)
	}
	if r.Found > 0 {
		fmt.Fprintf(w, "%d more began with what the cell's shared cache had\n", r.Found)
	}
	if t := r.SecondTurn; t != nil {
		fmt.Fprintf(w, "a conversation begun at %s went on at %s, which found %d of its %d tokens in the cell's shared cache\n", t.First, t.Second, t.FoundTokens, t.PromptTokens)
	}
	fmt.Fprintf(w, "the same prompts through one engine alone in %.1f s\n\n", r.AloneSeconds)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "latency, ms\tp50\tp90\tp99\trequests\t")
	for _, p := range r.Latency {
		if p.Requests == 0 {
			fmt.Fprintf(table, "%s\t–\t–\t–\t0\t\n", p.Name)
			continue
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%d\t\n", p.Name, p.P50, p.P90, p.P99, p.Requests)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
