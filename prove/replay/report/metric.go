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
	// Least is the smallest difference that is called one, as a part of the base
	// or in points of a share or an index: a smaller one can be sure, and still be
	// nothing.
	Least float64 `json:"least"`
}

// Percentiles and the mean QoE are read from histograms, whose buckets are 1/128
// of their value wide: two figures of one bucket are equal, and two of
// neighbours may be.
const (
	leastCounted  = 0.001
	leastBucketed = 0.01
)

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

// Short are the metrics of the short answer: what is judged, and what keeps that
// honest. SLO attainment does not see the wait before an answer, and a tail does
// not see what most people get.
var Short = []string{"ttfvt_p50", TailTTFVT, "slowdown_p99", Attainment, Throughput}

// Percentile is the name of a latency's percentile as a metric.
func Percentile(latency string, p int) string { return fmt.Sprintf("%s_p%d", latency, p) }

// Metrics is the catalogue, in the order of every table.
var Metrics = catalogue()

func catalogue() []Metric {
	var all []Metric
	for _, l := range Latencies {
		for _, p := range percentiles {
			all = append(all, Metric{Percentile(l.Name, p), fmt.Sprintf("%s P%d", l.Title, p), Seconds, Lower, l.Means, leastBucketed})
		}
	}
	return append(all,
		Metric{"slowdown_p99", "slowdown P99", Ratio, Lower, "E2E over what the same request takes alone", leastBucketed},
		Metric{Attainment, "SLO attainment", Share, Higher, "requests whose answer, from the end of the thought on, came in time and flowed: QoE at least 0.95; the wait before is not in it", leastCounted},
		Metric{"qoe", "QoE", Index, Higher, "how much of an answer, once it was to begin, came when its reader was ready for it; mean", leastBucketed},
		Metric{"goodput", "goodput", PerSecond, Higher, "requests that attained the SLO, per second", leastCounted},
		Metric{Throughput, "throughput", PerSecond, Higher, "generated tokens per second until the last arrival", leastCounted},
		Metric{"refused", "refused", Share, Lower, "requests that no engine's memory could ever hold", leastCounted},
		Metric{"think_tokens", "think tokens", Count, Neither, "thought tokens of a request; mean", leastCounted},
		Metric{"forced_converged", "forced: converged", Share, Neither, "thoughts that were ended because the answer had settled", leastCounted},
		Metric{"forced_overthinking", "forced: overthinking", Share, Neither, "thoughts that were ended because the chain had strayed", leastCounted},
		Metric{"forced_hard_cap", "forced: hard cap", Share, Neither, "thoughts that were ended because a cap was reached", leastCounted},
		Metric{"thought_saved", "thought saved", Share, Neither, "think tokens that were not thought", leastCounted},
		Metric{"cut_short", "cut short", Share, Lower, "thoughts that were ended before their answer had settled; synthetic", leastCounted},
		Metric{"preemptions", "preemptions", Count, Neither, "times that a request lost its blocks, per request", leastCounted},
		Metric{"pauses", "pauses", Count, Neither, "times that a request kept its blocks and waited, per request", leastCounted},
		Metric{"recomputed", "recomputed", Share, Lower, "tokens that were computed again, of all that were computed", leastCounted},
		Metric{"evicted_think_complete", "evicted: think complete", Count, Neither, "blocks of ended thoughts that were given up", leastCounted},
		Metric{"evicted_think_active", "evicted: think active", Count, Neither, "blocks of running thoughts that were given up", leastCounted},
		Metric{"evicted_output_critical", "evicted: output critical", Count, Lower, "blocks of answers and prompts that were given up", leastCounted},
		Metric{"moved_bytes", "bytes moved", Bytes, Neither, "over links, for copies, recalls, hand-offs and the store", leastCounted},
		Metric{"prefix_hits", "prefix hits", Share, Higher, "prompt tokens that were found in a cache", leastCounted},
		Metric{"fairness", "fairness", Index, Higher, "Jain's index of the mean slowdown of tenants: 1 is even", leastCounted},
	)
}

// metricOf finds a metric by its name; none has no name.
func metricOf(metrics []Metric, name string) Metric {
	if i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name }); i >= 0 {
		return metrics[i]
	}
	return Metric{}
}

// relative says whether a difference is told in per cent of the base.
func (m Metric) relative() bool { return m.Unit != Share && m.Unit != Index }

// within keeps an interval to what the metric can be: nothing is negative, and a
// share is at most all.
func (m Metric) within(i Interval) Interval {
	i.Low = max(i.Low, 0)
	if m.Unit == Share || m.Unit == Index {
		i.High = min(i.High, 1)
	}
	return i
}

// verdict says what a gap is, as far as seeds tell.
func (m Metric) verdict(g gap) Verdict {
	change := g.absolute()
	size := math.Abs(g.difference)
	if m.relative() {
		size /= math.Abs(g.base) // where there was nothing, anything is much
	}
	switch {
	case m.Better == Neither || !g.known():
		return None
	case size < m.Least || !change.Excludes(0):
		return Flat
	case (change.Mean < 0) == (m.Better == Lower):
		return Win
	}
	return Loss
}
