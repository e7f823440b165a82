package replay

import (
	"meridian/kv"
)

// Result is what a replay found. The same configuration, workload and policy
// give the same Result, byte for byte as JSON.
type Result struct {
	Policy  string `json:"policy"`
	Profile string `json:"profile"`

	Requests Requests `json:"requests"`
	// DurationSeconds is from the first moment to the last arrival, and
	// MakespanSeconds to the last end.
	DurationSeconds float64 `json:"duration_seconds"`
	MakespanSeconds float64 `json:"makespan_seconds"`

	Latency Latency `json:"latency"`
	// Goodput counts requests a second whose answers met the SLO, throughput what
	// was found a second until the last arrival.
	SLOAttainment     float64 `json:"slo_attainment"`
	Goodput           float64 `json:"goodput_requests_per_second"`
	TokensPerSecond   float64 `json:"throughput_tokens_per_second"`
	RequestsPerSecond float64 `json:"throughput_requests_per_second"`

	Tokens    Tokens    `json:"tokens"`
	Forced    Forced    `json:"forced"`
	Evictions Evictions `json:"evictions"`
	Moved     Moved     `json:"moved_bytes"`
	Cache     Cache     `json:"cache"`
	Fairness  Fairness  `json:"fairness"`
	Engine    Work      `json:"engine"`

	Series []Sample `json:"series"`
}

// Requests counts them. Refused ones could never fit into an engine's cache.
type Requests struct {
	Arrived int64 `json:"arrived"`
	Counted int64 `json:"counted"` // after the warm-up, and ended
	Refused int64 `json:"refused"`
	Met     int64 `json:"met_slo"` // of Counted
}

// Latency has distributions in seconds, and of QoE and slowdown in parts.
type Latency struct {
	// TTFT is from arrival to the first token, TTFVT to the first that is visible,
	// and TTOT from the end of the thought to that.
	TTFT  Distribution `json:"ttft"`
	TTFVT Distribution `json:"ttfvt"`
	TTOT  Distribution `json:"ttot"`
	// ThinkITL and AnswerITL are between tokens of one phase.
	ThinkITL  Distribution `json:"think_itl"`
	AnswerITL Distribution `json:"answer_itl"`
	E2E       Distribution `json:"e2e"`
	QoE       Distribution `json:"qoe"`
	// Slowdown is E2E over what the same request takes alone.
	Slowdown Distribution `json:"slowdown"`
	// Thinking is TTFVT of those that think, Chat of those that do not.
	Thinking Distribution `json:"ttfvt_thinking"`
	Chat     Distribution `json:"ttfvt_chat"`
}

// Distribution sums up a histogram.
type Distribution struct {
	Count int64      `json:"count"`
	Mean  float64    `json:"mean"`
	Min   float64    `json:"min"`
	P50   float64    `json:"p50"`
	P90   float64    `json:"p90"`
	P95   float64    `json:"p95"`
	P99   float64    `json:"p99"`
	Max   float64    `json:"max"`
	CDF   []CDFPoint `json:"cdf,omitempty"`
}

// distribution divides by unit, which is how many of the histogram's units one
// of the distribution's has.
func (h *Histogram) distribution(unit float64) Distribution {
	d := Distribution{
		Count: h.Count(), Mean: h.Mean() / unit, Min: float64(h.min) / unit, Max: float64(h.max) / unit,
		P50: h.Quantile(0.5) / unit, P90: h.Quantile(0.9) / unit, P95: h.Quantile(0.95) / unit, P99: h.Quantile(0.99) / unit,
		CDF: h.CDF(cdfPoints),
	}
	for i := range d.CDF {
		d.CDF[i].Value /= unit
	}
	return d
}

const cdfPoints = 100

// Tokens counts what engines computed and found, of all requests.
type Tokens struct {
	Prompt int64 `json:"prompt"` // computed
	Think  int64 `json:"think"`
	Output int64 `json:"output"`
	// Recomputed had been computed before, and were given up.
	Recomputed int64 `json:"recomputed"`
}

// Forced counts thoughts that were ended, by reason, among Thoughts.
type Forced struct {
	Thoughts     int64 `json:"thoughts"`
	Converged    int64 `json:"converged"`
	Overthinking int64 `json:"overthinking"`
	HardCap      int64 `json:"hard_cap"`
	// Saved tokens were not thought. CutShort thoughts were ended before the
	// synthetic point of convergence, Known is how many have one.
	Saved    int64 `json:"saved_tokens"`
	CutShort int64 `json:"cut_short"`
	Known    int64 `json:"convergence_known"`
}

// Evictions counts blocks that preempted requests gave up, by tier, and cached
// ones that no request used; and preemptions by their way.
type Evictions struct {
	ThinkComplete  int64 `json:"think_complete"`
	ThinkActive    int64 `json:"think_active"`
	OutputCritical int64 `json:"output_critical"`
	Cached         int64 `json:"cached"`

	Recompute int64 `json:"preempted_recompute"`
	Offload   int64 `json:"preempted_offload"`
	Keep      int64 `json:"preempted_keep"`
}

func (e *Evictions) count(t kv.Tier, blocks int32) {
	switch t {
	case kv.ThinkComplete:
		e.ThinkComplete += int64(blocks)
	case kv.ThinkActive:
		e.ThinkActive += int64(blocks)
	default:
		e.OutputCritical += int64(blocks)
	}
}

// Moved counts bytes by what they were moved for.
type Moved struct {
	Offload int64 `json:"offload"`
	Recall  int64 `json:"recall"`
	Copied  int64 `json:"copied_ahead"`
	HandOff int64 `json:"hand_off"`
	Store   int64 `json:"store"`
}

// Cache counts tokens of prompts that were not computed.
type Cache struct {
	PromptTokens int64 `json:"prompt_tokens"` // of all that arrived
	HitTokens    int64 `json:"hit_tokens"`    // found at the engine
	StoreTokens  int64 `json:"store_tokens"`  // fetched from the store
}

// Fairness compares tenants by the mean slowdown of their requests.
type Fairness struct {
	Tenants int     `json:"tenants"`
	Jain    float64 `json:"jain"` // 1: all alike; 1/tenants: one has it all
	Worst   float64 `json:"worst_slowdown"`
	Best    float64 `json:"best_slowdown"`
}

// Work is what engines did.
type Work struct {
	Steps     int64   `json:"steps"`
	Decisions int64   `json:"decisions"`
	Busy      float64 `json:"busy"` // part of the makespan, mean over engines
	// Denied runs lacked blocks: a policy promised more than there was.
	Denied int64 `json:"denied"`
	// PeakLive is how many requests were in the cell at once.
	PeakLive int64 `json:"peak_live"`
}

// Sample is the cell at one moment: requests by what they do, and blocks by the
// phase of those who hold them.
type Sample struct {
	Seconds   float64 `json:"seconds"`
	Waiting   int32   `json:"waiting"`
	Prefill   int32   `json:"prefill"`
	Think     int32   `json:"think"`
	Output    int32   `json:"output"`
	Away      int32   `json:"away"`
	KVPrefill int32   `json:"kv_prefill"`
	KVThink   int32   `json:"kv_think"`
	KVOutput  int32   `json:"kv_output"`
	KVFree    int32   `json:"kv_free"`
}
