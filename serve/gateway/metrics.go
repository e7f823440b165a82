package gateway

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/warm"
)

// Phases of a request's latency, in the order in which people read them.
var Phases = []string{"queue", "prefill", "handoff", "ttft", "ttfvt", "ttot", "think_itl", "answer_itl", "total"}

const (
	phaseThinkITL  = 6
	phaseAnswerITL = 7
)

// bounds of the latency histograms, in seconds: from a local cache hit to a
// long answer.
var bounds = [...]float64{
	0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300,
}

// histogram counts durations. It is written from everywhere at once.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Uint64
	// examples are the last traces that were sampled, of each bucket.
	examples [len(bounds) + 1]atomic.Pointer[Exemplar]
}

// Exemplar is one request among those that a bucket counts: where its trace is.
type Exemplar struct {
	Trace   string
	Seconds float64
	At      time.Time
}

func (h *histogram) observe(d time.Duration, times int) {
	h.buckets[bucketOf(d)].Add(uint64(times))
	h.nanos.Add(uint64(max(d, 0)) * uint64(times))
}

func bucketOf(d time.Duration) int {
	i, seconds := 0, d.Seconds()
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	return i
}

// example keeps a trace that shows what the bucket of d is about.
func (h *histogram) example(d time.Duration, trace string, at time.Time) {
	h.examples[bucketOf(d)].Store(&Exemplar{Trace: trace, Seconds: d.Seconds(), At: at})
}

// Distribution is a histogram as it is now. Buckets count what was at most
// each bound, in seconds.
type Distribution struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
	// Exemplars are in no order, one a bucket at most.
	Exemplars []Exemplar
}

func (h *histogram) snapshot() Distribution {
	d := Distribution{Buckets: make(map[float64]uint64, len(bounds))}
	for i := range h.buckets {
		d.Count += h.buckets[i].Load()
		if i < len(bounds) {
			d.Buckets[bounds[i]] = d.Count
		}
		if e := h.examples[i].Load(); e != nil {
			d.Exemplars = append(d.Exemplars, *e)
		}
	}
	d.Sum = float64(h.nanos.Load()) / float64(time.Second)
	return d
}

var (
	outcomes = []string{ledger.Finished, ledger.Refused, ledger.Failed, ledger.Cancelled}
	legKinds = []string{ledger.PrefillLeg, ledger.DecodeLeg, ledger.ResumeLeg, ledger.MoveLeg}
)

// counters are what the gateway counts while it works.
type counters struct {
	outcomes     [4]atomic.Uint64
	overloaded   atomic.Uint64
	legs         [4][5]atomic.Uint64
	moves        [len(lifecycle.MoveReasons)][len(lifecycle.MoveEnds)]atomic.Uint64
	kv           [4]atomic.Uint64
	plain        [lifecycle.Counts]atomic.Uint64
	promptTokens atomic.Uint64
	passed       [2]atomic.Uint64 // answered, refused
	placements   [4]atomic.Uint64
	stored       [3]atomic.Uint64
	outputTokens atomic.Uint64
	phases       [9]histogram
}

// Metrics is a snapshot of what the gateway did and is doing.
type Metrics struct {
	// Requests by outcome; Overloaded are those among the refused for which
	// there was no place.
	Requests   map[string]uint64 `metric:"meridian_gateway_requests_total"`
	Overloaded uint64            `metric:"meridian_gateway_overloaded_total"`
	Reading    int               `metric:"meridian_gateway_requests,reading"` // that are being sent
	Running    int               `metric:"meridian_gateway_requests,running"`
	Waiting    int               `metric:"meridian_gateway_requests,waiting"`
	// Connections of clients that are there; Unadmitted are those for which there
	// was no room.
	Connections int    `metric:"meridian_gateway_connections"`
	Unadmitted  uint64 `metric:"meridian_gateway_connections_refused_total"`
	// Legs by kind and by end.
	Legs map[string]map[string]uint64 `metric:"meridian_gateway_legs_total"`
	// KV by where a prompt's cache came from, as engines tell; FellBack are
	// those where a hand-off was meant to bring it and did not.
	KV       map[string]uint64 `metric:"meridian_gateway_kv_total"`
	FellBack uint64            `metric:"meridian_gateway_handoff_fallbacks_total"`
	// Promises are decode legs that did not wait for a prefill engine's answer;
	// Broken are those of them that were ended because that leg failed.
	Promises uint64 `metric:"meridian_gateway_promises_total"`
	Broken   uint64 `metric:"meridian_gateway_promises_broken_total"`
	// Resumed streams went on with another engine, Unresumable ones could not.
	Resumed      uint64 `metric:"meridian_gateway_streams_broken_total,resumed"`
	Unresumable  uint64 `metric:"meridian_gateway_streams_broken_total,failed"`
	PromptTokens uint64 `metric:"meridian_gateway_tokens_total,prompt"`
	OutputTokens uint64 `metric:"meridian_gateway_tokens_total,output"`
	// Moves counts running requests that were asked to leave their engine, by why and by
	// what came of it.
	Moves map[string]map[string]uint64 `metric:"meridian_gateway_moves_total"`
	// Phases by their names.
	Phases map[string]Distribution `metric:"meridian_gateway_phase_seconds"`
	// Engines by role and by whether they are up.
	Engines map[string]EngineCount `metric:"meridian_gateway_engines"`
	// Passed counts requests for endpoints that only engines know, by how they
	// ended: answered, by whatever status, and failed.
	Passed map[string]uint64 `metric:"meridian_gateway_passed_total"`
	// Placements by how what engines hold of the prompt was known.
	Placements map[string]uint64 `metric:"meridian_gateway_placements_total"`
	// Stored counts requests that went straight to decode because the cell was believed
	// to keep their prefix, by what their engine found of it.
	Stored map[string]uint64 `metric:"meridian_gateway_stored_total"`
	Cache  CacheMetrics
	Warm   warm.Metrics
	// DirectoryKnown is false while the directory is away.
	DirectoryKnown bool   `metric:"meridian_gateway_directory_known"`
	RecordsDropped uint64 `metric:"meridian_gateway_records_dropped_total"`
}

// CacheMetrics are of what engines tell of their caches.
type CacheMetrics struct {
	Up      int    `metric:"meridian_gateway_cache_subscriptions,up"` // subscriptions
	Down    int    `metric:"meridian_gateway_cache_subscriptions,down"`
	Blocks  int    `metric:"meridian_gateway_cache_blocks"` // known now
	Batches uint64 `metric:"meridian_gateway_cache_batches_total"`
	Resets  uint64 `metric:"meridian_gateway_cache_resets_total"`
}

// Prefixes, in the order of counters.placements: engines told, the gateway went
// by what it had sent, the cell was believed to keep it, or no engine holds anything.
var prefixes = []string{"told", "guessed", "stored", "none"}

// EngineCount counts engines of a role.
type EngineCount struct {
	Up   int `metric:",up"`
	Down int `metric:",down"`
}

// Metrics may be called at any time.
func (g *Gateway) Metrics() Metrics {
	c := &g.count
	m := Metrics{
		Requests: make(map[string]uint64), Overloaded: c.overloaded.Load(),
		Legs: make(map[string]map[string]uint64), KV: make(map[string]uint64), FellBack: c.plain[lifecycle.CountFellBack].Load(), Promises: c.plain[lifecycle.CountPromised].Load(), Broken: c.plain[lifecycle.CountBroken].Load(),
		Resumed: c.plain[lifecycle.CountResumed].Load(), Unresumable: c.plain[lifecycle.CountUnresumable].Load(), PromptTokens: c.promptTokens.Load(), OutputTokens: c.outputTokens.Load(),
		Phases: make(map[string]Distribution, len(Phases)), Placements: make(map[string]uint64), Stored: make(map[string]uint64),
		Passed:  map[string]uint64{"answered": c.passed[0].Load(), "failed": c.passed[1].Load()},
		Engines: make(map[string]EngineCount), DirectoryKnown: g.roster.DirectoryKnown(), RecordsDropped: g.ledger.Dropped(),
	}
	m.Reading, m.Waiting, m.Running = g.admission.Counts()
	if g.public != nil {
		m.Connections, m.Unadmitted = g.public.Connections(), g.public.TurnedAway()
	}
	for i, name := range outcomes {
		m.Requests[name] = c.outcomes[i].Load()
	}
	for i, name := range lifecycle.KVSources {
		m.KV[name] = c.kv[i].Load()
	}
	for i, kind := range legKinds {
		m.Legs[kind] = make(map[string]uint64)
		for j, end := range lifecycle.LegEnds {
			m.Legs[kind][end] = c.legs[i][j].Load()
		}
	}
	m.Moves = c.movesByReason()
	for i, name := range Phases {
		m.Phases[name] = c.phases[i].snapshot()
	}
	for _, role := range []placement.Role{placement.Prefill, placement.Decode, placement.Both} {
		m.Engines[role.String()] = EngineCount{}
	}
	for _, e := range g.roster.All() {
		count := m.Engines[e.Role.String()]
		if e.Up.Load() {
			count.Up++
		} else {
			count.Down++
		}
		m.Engines[e.Role.String()] = count
		for _, c := range g.roster.CacheStates(e) {
			m.Cache.add(c)
		}
	}
	m.Warm = g.warmer.Metrics()
	m.Cache.Batches, m.Cache.Resets = g.roster.CacheEvents()
	for i, name := range prefixes {
		m.Placements[name] = c.placements[i].Load()
	}
	for i, name := range lifecycle.StoredEnds {
		m.Stored[name] = c.stored[i].Load()
	}
	return m
}

func (m *CacheMetrics) add(c roster.CacheState) {
	if c.Connected {
		m.Up++
	} else {
		m.Down++
	}
	m.Blocks += c.Blocks
}

// observe puts the latencies of a request that ended into the histograms.
// Times between tokens are there already.
func (c *counters) observe(r *ledger.Record) {
	l := r.Latency
	for i, milliseconds := range []float64{l.QueueMs, l.PrefillMs, l.HandoffMs, l.TTFTMs, l.TTFVTMs, l.TTOTMs, 0, 0, l.TotalMs} {
		if milliseconds > 0 {
			took := time.Duration(math.Round(milliseconds * float64(time.Millisecond)))
			c.phases[i].observe(took, 1)
			if r.Trace != nil && r.Trace.Sampled {
				c.phases[i].example(took, r.Trace.ID, time.Now())
			}
		}
	}
}

// take counts what a life has counted.
func (c *counters) take(effect lifecycle.Effect) {
	switch e := effect.(type) {
	case lifecycle.Count:
		c.plain[e].Add(1)
	case lifecycle.Placed:
		c.placements[e.By].Add(1)
	case lifecycle.LegEnded:
		c.legs[slices.Index(legKinds, e.Kind)][e.End].Add(1)
	case lifecycle.KVCame:
		c.kv[e.From].Add(1)
	case lifecycle.StoredEnded:
		c.stored[e.End].Add(1)
	case lifecycle.MoveEnded:
		c.moves[e.Why][e.End].Add(1)
	}
}

func (c *counters) movesByReason() map[string]map[string]uint64 {
	all := make(map[string]map[string]uint64)
	for i, reason := range lifecycle.MoveReasons {
		all[reason] = make(map[string]uint64)
		for j, end := range lifecycle.MoveEnds {
			all[reason][end] = c.moves[i][j].Load()
		}
	}
	return all
}
