package top

import (
	"cmp"
	"slices"
	"time"
)

// Figures are a cell at one moment, with rates since the moment before.
type Figures struct {
	At       time.Time `json:"at"`
	Interval float64   `json:"interval_seconds"`
	Requests Requests  `json:"requests"`
	Moving   Moving    `json:"transfers"`
	Latency  []Latency `json:"latency"`
	Workers  []Worker  `json:"workers"`
	Memory   []Memory  `json:"memory"`
	Slowest  []HandOff `json:"slowest_handoffs"`
	// Silent are processes that did not answer, with the reason.
	Silent []string `json:"silent"`
}

// Requests are those of all gateways.
type Requests struct {
	PerSecond       float64 `json:"per_second"`
	FailedPerSecond float64 `json:"failed_per_second"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	Running         float64 `json:"running"`
	Waiting         float64 `json:"waiting"`
}

// Moving is what all agents move.
type Moving struct {
	PerSecond         float64 `json:"per_second"`
	FailedPerSecond   float64 `json:"failed_per_second"`
	BytesPerSecond    float64 `json:"bytes_per_second"`
	HandOffsPerSecond float64 `json:"handoffs_per_second"`
	Running           float64 `json:"handoffs_running"`
}

// Latency is of one phase, of requests that ended since the moment before; of all
// where there were none.
type Latency struct {
	Phase   string  `json:"phase"`
	Count   float64 `json:"count"`
	Median  float64 `json:"median_ms"`
	P99     float64 `json:"p99_ms"`
	Overall bool    `json:"since_start,omitempty"`
}

// Worker is one engine.
type Worker struct {
	Name            string  `json:"name"`
	Role            string  `json:"role,omitempty"`
	Up              bool    `json:"up"`
	Running         float64 `json:"running"`
	Waiting         float64 `json:"waiting"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// Used is the share of its KV memory that requests hold.
	Used     float64 `json:"kv_used"`
	HandOffs float64 `json:"handoffs"`
}

// Memory is how much of one tier is used.
type Memory struct {
	Tier  string  `json:"tier"`
	Where string  `json:"where"`
	Used  float64 `json:"used"`
	Total float64 `json:"total"`
	Unit  string  `json:"unit"` // blocks or bytes
}

// HandOff is one of the slowest among the last requests.
type HandOff struct {
	Request string  `json:"request"`
	Ms      float64 `json:"handoff_ms"`
	From    string  `json:"from,omitempty"`
	To      string  `json:"to,omitempty"`
}

// phases are the ones that are shown, in the order of a request.
var phases = []string{"queue", "prefill", "handoff", "ttft", "ttfvt", "ttot", "think_itl", "answer_itl", "total"}

// maxSlowest is how many hand-offs are shown.
const maxSlowest = 10

// Compare makes figures of two looks at a cell, the later one first.
func Compare(now, before *Snapshot) *Figures {
	f := &Figures{At: now.At, Latency: []Latency{}, Workers: []Worker{}, Memory: []Memory{}, Slowest: []HandOff{}, Silent: now.silent()}
	f.Interval = max(now.At.Sub(before.At).Seconds(), 1e-9)
	d := difference{now, before, f.Interval}
	for source := range now.pages {
		switch source.Kind {
		case "gateway":
			f.addGateway(d, source)
		case "agent":
			f.addAgent(d, source)
		case "engine":
			f.addEngine(d, source)
		}
	}
	for _, source := range now.sources {
		if source.Kind == "engine" && now.problems[source] != "" {
			f.Workers = append(f.Workers, Worker{Name: source.Name, Role: source.Role})
		}
	}
	f.addLatency(d)
	f.Slowest = now.slowest()
	slices.SortFunc(f.Workers, func(a, b Worker) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name)) })
	slices.SortFunc(f.Memory, func(a, b Memory) int { return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Tier, b.Tier)) })
	return f
}

// difference is two looks, and the seconds between them.
type difference struct {
	now, before *Snapshot
	seconds     float64
}

// rate is how fast a counter of one process grows. One that was not there before, or
// began anew, has none yet.
func (d difference) rate(source Source, name string, labels ...string) float64 {
	before, had := d.before.pages[source]
	if !had {
		return 0
	}
	return max(0, d.now.pages[source].sum(name, labels...)-before.sum(name, labels...)) / d.seconds
}

func (f *Figures) addGateway(d difference, source Source) {
	page := d.now.pages[source]
	f.Requests.PerSecond += d.rate(source, "meridian_gateway_requests_total")
	f.Requests.FailedPerSecond += d.rate(source, "meridian_gateway_requests_total", `outcome="failed"`)
	f.Requests.TokensPerSecond += d.rate(source, "meridian_gateway_tokens_total", `kind="output"`)
	f.Requests.Running += page.sum("meridian_gateway_requests", `state="running"`)
	f.Requests.Waiting += page.sum("meridian_gateway_requests", `state="waiting"`)
}

func (f *Figures) addAgent(d difference, source Source) {
	page := d.now.pages[source]
	f.Moving.PerSecond += d.rate(source, "meridian_agent_transfers_ended_total")
	f.Moving.FailedPerSecond += d.rate(source, "meridian_agent_transfers_ended_total", `end="failed"`)
	f.Moving.BytesPerSecond += d.rate(source, "meridian_agent_bytes_total")
	f.Moving.HandOffsPerSecond += d.rate(source, "meridian_handoff_accepts_ended_total")
	f.Moving.Running += page.sum("meridian_handoff_running", `what="accepts"`)
	if page.knows("meridian_store_heap_bytes") {
		f.Memory = append(f.Memory, Memory{
			Tier: "object cache", Where: source.Name, Unit: "bytes",
			Used: page.sum("meridian_store_heap_bytes", `what="used"`), Total: page.sum("meridian_store_heap_bytes", `what="total"`),
		})
	}
}

func (f *Figures) addEngine(d difference, source Source) {
	page := d.now.pages[source]
	w := Worker{Name: source.Name, Role: source.Role, Up: true}
	if page.knows("vllm:num_requests_running") {
		w.Running, w.Waiting = page.sum("vllm:num_requests_running"), page.sum("vllm:num_requests_waiting")
		w.TokensPerSecond = d.rate(source, "vllm:generation_tokens_total")
		w.Used = page.sum("vllm:kv_cache_usage_perc")
		f.Workers = append(f.Workers, w)
		f.Memory = append(f.Memory, Memory{Tier: "KV in use", Where: source.Name, Unit: "share", Used: w.Used, Total: 1})
		return
	}
	w.Running = page.sum("meridian_engine_requests", `state="running"`)
	w.Waiting = page.sum("meridian_engine_requests") - w.Running
	w.TokensPerSecond = d.rate(source, "meridian_engine_tokens_total", `kind="generated"`)
	w.HandOffs = page.sum("meridian_engine_handoffs_total", `end="ready"`)
	total := page.sum("meridian_engine_blocks")
	if total > 0 {
		w.Used = page.sum("meridian_engine_blocks", `state="used"`) / total
	}
	f.Workers = append(f.Workers, w)
	for _, tier := range []struct{ name, label string }{{"KV in use", `state="used"`}, {"KV cached", `state="cached"`}} {
		f.Memory = append(f.Memory, Memory{Tier: tier.name, Where: source.Name, Unit: "blocks", Used: page.sum("meridian_engine_blocks", tier.label), Total: total})
	}
}

// addLatency takes what ended between both looks; in a quiet cell, what ever did.
func (f *Figures) addLatency(d difference) {
	for _, phase := range phases {
		var between, overall []bucket
		for source, page := range d.now.pages {
			if source.Kind != "gateway" {
				continue
			}
			label := `phase="` + phase + `"`
			now := page.buckets("meridian_gateway_phase_seconds", label)
			overall = plus(overall, slices.Clone(now))
			if before, had := d.before.pages[source]; had {
				between = plus(between, minus(now, before.buckets("meridian_gateway_phase_seconds", label)))
			}
		}
		l, shown := Latency{Phase: phase}, between
		if len(between) == 0 || between[len(between)-1].count == 0 {
			l.Overall, shown = true, overall
		}
		if len(shown) == 0 || shown[len(shown)-1].count == 0 {
			continue
		}
		l.Count, l.Median, l.P99 = shown[len(shown)-1].count, 1000*quantile(0.5, shown), 1000*quantile(0.99, shown)
		f.Latency = append(f.Latency, l)
	}
}
