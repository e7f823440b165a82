package sweep

import (
	"slices"

	"meridian/prove/replay"
	"meridian/prove/replay/report"
)

func reported(j job, r *replay.Result) report.Run {
	run := Reported(r)
	run.Policy, run.Load, run.Seed = j.candidate.Name, j.load, j.seed
	return run
}

// Reported is what a report keeps of a result.
func Reported(r *replay.Result) report.Run {
	run := report.Run{
		Policy: r.Policy,
		Values: values(r), Quantiles: make(map[string][]float64), Timeline: timeline(r.Series),
	}
	for name, d := range latencies(r) {
		if d.Count == 0 {
			continue
		}
		run.Values[report.Percentile(name, 50)], run.Values[report.Percentile(name, 95)], run.Values[report.Percentile(name, 99)] = d.P50, d.P95, d.P99
		for _, p := range report.Grid {
			run.Quantiles[name] = append(run.Quantiles[name], atPart(d, p))
		}
	}
	return run
}

// latencies are a result's distributions by the names that reports have for them.
func latencies(r *replay.Result) map[string]replay.Distribution {
	l := &r.Latency
	return map[string]replay.Distribution{
		"ttft": l.TTFT, "ttfvt": l.TTFVT, "ttot": l.TTOT, "think_itl": l.ThinkITL, "answer_itl": l.AnswerITL, "e2e": l.E2E,
		"ttfvt_thinking": l.Thinking, "ttfvt_chat": l.Chat,
	}
}

// values are the figures beside them. A share of nothing is left out.
func values(r *replay.Result) map[string]float64 {
	v := map[string]float64{
		"slowdown_p99": r.Latency.Slowdown.P99, report.Attainment: r.SLOAttainment, "qoe": r.Latency.QoE.Mean,
		"goodput": r.Goodput, report.Throughput: r.TokensPerSecond,
		"evicted_think_complete": float64(r.Evictions.ThinkComplete), "evicted_think_active": float64(r.Evictions.ThinkActive),
		"evicted_output_critical": float64(r.Evictions.OutputCritical),
		"moved_bytes":             float64(r.Moved.Offload + r.Moved.Recall + r.Moved.Copied + r.Moved.HandOff + r.Moved.Store),
	}
	share := func(name string, part, of int64) {
		if of > 0 {
			v[name] = float64(part) / float64(of)
		}
	}
	arrived := r.Requests.Arrived
	share("refused", r.Requests.Refused, arrived)
	share("think_tokens", r.Tokens.Think, arrived)
	share("preemptions", r.Evictions.Recompute+r.Evictions.Offload, arrived)
	share("pauses", r.Evictions.Keep, arrived)
	share("recomputed", r.Tokens.Recomputed, r.Tokens.Prompt+r.Tokens.Think+r.Tokens.Output)
	share("forced_converged", r.Forced.Converged, r.Forced.Thoughts)
	share("forced_overthinking", r.Forced.Overthinking, r.Forced.Thoughts)
	share("forced_hard_cap", r.Forced.HardCap, r.Forced.Thoughts)
	share("thought_saved", r.Forced.Saved, r.Forced.Saved+r.Tokens.Think)
	share("cut_short", r.Forced.CutShort, r.Forced.Known)
	share("prefix_hits", r.Cache.HitTokens+r.Cache.StoreTokens, r.Cache.PromptTokens)
	if r.Fairness.Tenants > 1 {
		v["fairness"] = r.Fairness.Jain
	}
	return v
}

// atPart is the value that a part of a distribution does not exceed, on
// straight lines between its points.
func atPart(d replay.Distribution, part float64) float64 {
	i, exact := slices.BinarySearchFunc(d.CDF, part, func(p replay.CDFPoint, part float64) int {
		switch {
		case p.Part < part:
			return -1
		case p.Part > part:
			return 1
		}
		return 0
	})
	switch {
	case i == len(d.CDF):
		return d.Max
	case exact:
		return d.CDF[i].Value
	}
	below := replay.CDFPoint{Value: d.Min}
	if i > 0 {
		below = d.CDF[i-1]
	}
	above := d.CDF[i]
	return below.Value + (above.Value-below.Value)*(part-below.Part)/(above.Part-below.Part)
}

// timelinePoints is how many points a report's timeline has at most.
const timelinePoints = 80

// timeline is a result's series in fewer points, each the mean of those it
// stands for.
func timeline(samples []replay.Sample) *report.Timeline {
	if len(samples) < 2 {
		return nil
	}
	requests := bands{
		{"waiting", func(s *replay.Sample) float64 { return float64(s.Waiting) }},
		{"prefill", func(s *replay.Sample) float64 { return float64(s.Prefill) }},
		{"think", func(s *replay.Sample) float64 { return float64(s.Think) }},
		{"output", func(s *replay.Sample) float64 { return float64(s.Output) }},
		{"away", func(s *replay.Sample) float64 { return float64(s.Away) }},
	}
	of := func(blocks int32, s *replay.Sample) float64 {
		return float64(blocks) / float64(max(1, s.KVPrefill+s.KVThink+s.KVOutput+s.KVFree))
	}
	kv := bands{
		{"prefill", func(s *replay.Sample) float64 { return of(s.KVPrefill, s) }},
		{"think", func(s *replay.Sample) float64 { return of(s.KVThink, s) }},
		{"output", func(s *replay.Sample) float64 { return of(s.KVOutput, s) }},
	}
	each := (len(samples) + timelinePoints - 1) / timelinePoints
	step := samples[1].Seconds - samples[0].Seconds
	return &report.Timeline{StepS: step * float64(each), Requests: requests.of(samples, each), KV: kv.of(samples, each)}
}

type bands []struct {
	name string
	of   func(*replay.Sample) float64
}

func (b bands) of(samples []replay.Sample, each int) []report.Series {
	series := make([]report.Series, len(b))
	for i, band := range b {
		series[i].Name = band.name
		for chunk := range slices.Chunk(samples, each) {
			sum := 0.0
			for k := range chunk {
				sum += band.of(&chunk[k])
			}
			series[i].Values = append(series[i].Values, sum/float64(len(chunk)))
		}
	}
	return series
}
