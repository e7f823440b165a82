package report

import (
	"fmt"
	"math"
	"slices"
)

// Better says which way a metric is meant to go.
type Better string

const (
	Lower   Better = "lower"
	Higher  Better = "higher"
	Neither Better = "neither" // a fact, not a merit: it gets no verdict
)

// Unit is what a metric counts.
type Unit string

const (
	Seconds   Unit = "s"
	PerSecond Unit = "/s"
	Share     Unit = "share" // of one; differences are percentage points
	Count     Unit = "count"
	Bytes     Unit = "bytes"
	Ratio     Unit = "ratio"
	Index     Unit = "index" // between 0 and 1, without a meaning as a share
)

// Metric is one figure that every run has.
type Metric struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Unit   Unit   `json:"unit"`
	Better Better `json:"better"`
	// Means says what is measured.
	Means string `json:"means"`
}

// Latency is a time of which every run has a whole distribution.
type Latency struct{ Name, Title, Means string }

// Latencies are the distributions, in the order in which a request meets them.
var Latencies = []Latency{
	{"ttft", "TTFT", "from arrival to the first generated token, thought or not"},
	{"ttfvt", "TTFVT", "from arrival to the first visible token, that of the answer"},
	{"ttot", "TTOT", "from the end of thinking to the first token of the answer"},
	{"think_itl", "think ITL", "between two tokens while thinking"},
	{"answer_itl", "answer ITL", "between two tokens of the answer"},
	{"e2e", "E2E", "from arrival to the last token"},
	{"ttfvt_thinking", "TTFVT, thinking", "TTFVT of requests that think"},
	{"ttfvt_chat", "TTFVT, chat", "TTFVT of requests that do not think"},
}

// Percentiles of a latency that are metrics of their own.
var percentiles = []int{50, 95, 99}

// The metrics that policies are judged by: their charts and the Pareto table.
const (
	TailTTFVT  = "ttfvt_p99"
	Attainment = "slo_attainment"
	Throughput = "throughput"
)

// Judged are the axes of the Pareto table.
var Judged = []string{TailTTFVT, Attainment, Throughput}

// Percentile is the name of a latency's percentile as a metric.
func Percentile(latency string, p int) string { return fmt.Sprintf("%s_p%d", latency, p) }

// Metrics is the catalogue, in the order of every table.
var Metrics = catalogue()

func catalogue() []Metric {
	var all []Metric
	for _, l := range Latencies {
		for _, p := range percentiles {
			all = append(all, Metric{Percentile(l.Name, p), fmt.Sprintf("%s P%d", l.Title, p), Seconds, Lower, l.Means})
		}
	}
	return append(all,
		Metric{"slowdown_p99", "slowdown P99", Ratio, Lower, "E2E over what the same request takes alone"},
		Metric{Attainment, "SLO attainment", Share, Higher, "requests whose answer came in time and flowed: QoE at least 0.95"},
		Metric{"qoe", "QoE", Index, Higher, "how much of an answer came when its reader was ready for it; mean"},
		Metric{"goodput", "goodput", PerSecond, Higher, "requests that attained the SLO, per second"},
		Metric{Throughput, "throughput", PerSecond, Higher, "generated tokens per second until the last arrival"},
		Metric{"refused", "refused", Share, Lower, "requests that no engine's memory could ever hold"},
		Metric{"think_tokens", "think tokens", Count, Neither, "thought tokens of a request; mean"},
		Metric{"forced_converged", "forced: converged", Share, Neither, "thoughts that were ended because the answer had settled"},
		Metric{"forced_overthinking", "forced: overthinking", Share, Neither, "thoughts that were ended because the chain had strayed"},
		Metric{"forced_hard_cap", "forced: hard cap", Share, Neither, "thoughts that were ended because a cap was reached"},
		Metric{"thought_saved", "thought saved", Share, Neither, "think tokens that were not thought"},
		Metric{"cut_short", "cut short", Share, Lower, "thoughts that were ended before their answer had settled; synthetic"},
		Metric{"preemptions", "preemptions", Count, Neither, "times that a request lost its blocks, per request"},
		Metric{"pauses", "pauses", Count, Neither, "times that a request kept its blocks and waited, per request"},
		Metric{"recomputed", "recomputed", Share, Lower, "tokens that were computed again, of all that were computed"},
		Metric{"evicted_think_complete", "evicted: think complete", Count, Neither, "blocks of ended thoughts that were given up"},
		Metric{"evicted_think_active", "evicted: think active", Count, Neither, "blocks of running thoughts that were given up"},
		Metric{"evicted_output_critical", "evicted: output critical", Count, Lower, "blocks of answers and prompts that were given up"},
		Metric{"moved_bytes", "bytes moved", Bytes, Neither, "over links, for copies, recalls, hand-offs and the store"},
		Metric{"prefix_hits", "prefix hits", Share, Higher, "prompt tokens that were found in a cache"},
		Metric{"fairness", "fairness", Index, Higher, "Jain's index of the mean slowdown of tenants: 1 is even"},
	)
}

// metricOf finds a metric by its name.
func metricOf(metrics []Metric, name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}

// relative says whether a difference is told in per cent of the base.
func (m Metric) relative() bool { return m.Unit != Share && m.Unit != Index }

// Least is the smallest difference that is called one: a tenth of a per cent,
// or of a percentage point. A smaller one can be sure, and still be nothing.
const Least = 0.001

// verdict says what a change by so much is.
func (m Metric) verdict(change Interval, relative bool, seeds int) Verdict {
	small := (relative || !m.relative()) && math.Abs(change.Mean) < Least
	switch {
	case m.Better == Neither || seeds < 2:
		return None
	case small || !change.Excludes(0):
		return Flat
	case (change.Mean < 0) == (m.Better == Lower):
		return Win
	}
	return Loss
}
