package telemetry

import (
	"fmt"
	"slices"
	"strings"
)

// Type is how a metric behaves over time.
type Type string

// The types, as Prometheus names them.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Label is one dimension of a metric. Values lists every value it can have;
// none means that the set is open and small by nature, such as a version.
type Label struct {
	Name   string
	Values []string
}

// Metric is one entry of the catalogue: a contract with whoever built a
// dashboard or an alert on it.
type Metric struct {
	Name   string
	Type   Type
	Unit   string
	Labels []Label
	// Help says what the number is.
	Help string
	// Action says what an operator does about it.
	Action string
	// Room is who produces it. Planned metrics have no producer yet.
	Room    string
	Planned bool
}

// Catalogue is every metric there is or will be. Names are those of the
// Meridian book with dots as underscores; they do not change. A room cannot
// emit what is not in here.
func Catalogue() []Metric { return slices.Clone(catalogue) }

var catalogue = []Metric{
	{
		Name: "meridian_build_info", Type: Gauge, Unit: "1",
		Labels: []Label{{Name: "version"}, {Name: "commit"}, {Name: "go"}},
		Help:   "Always 1; the labels say which build runs.",
		Action: "Compare across hosts during a rollout.",
		Room:   "telemetry",
	},
	{
		Name: "meridian_agent_transfers_posted_total", Type: Counter, Unit: "transfers",
		Help:   "Transfers that were started.",
		Action: "Compare with the ended ones: a growing gap is transfers that hang.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_transfers_ended_total", Type: Counter, Unit: "transfers",
		Labels: []Label{{Name: "end", Values: []string{"done", "failed"}}},
		Help:   "Transfers that ended, with every byte in place or not.",
		Action: "failed above zero: `meridian explain` names the transfer, the peer and the reason.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_bytes_total", Type: Counter, Unit: "bytes",
		Labels: []Label{{Name: "op", Values: []string{"read", "write"}}},
		Help:   "Bytes of transfers that are done, as seen by who posted them.",
		Action: "Its rate is the agent's throughput.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_notifications_total", Type: Counter, Unit: "notifications",
		Labels: []Label{{Name: "end", Values: []string{"taken", "refused"}}},
		Help:   "Notifications that came from peers.",
		Action: "refused above zero: whoever should take them does not keep up.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_regions", Type: Gauge, Unit: "regions",
		Help:   "Regions of memory that are registered.",
		Action: "Growing without new engines: somebody registers and never deregisters.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_peers", Type: Gauge, Unit: "peers",
		Help:   "Peers whose metadata is loaded.",
		Action: "Informational.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_grants", Type: Gauge, Unit: "grants",
		Help:   "Grants that open memory of this agent to a peer.",
		Action: "Growing without end means that somebody grants and never revokes; grants expire by themselves.",
		Room:   "agent",
	},
	{
		Name: "meridian_agent_audit_events_total", Type: Counter, Unit: "events",
		Labels: []Label{{Name: "event", Values: []string{"granted", "revoked", "refused", "fenced", "checksum_failed"}}},
		Help:   "Events for the audit; each has a log line with audit=true.",
		Action: "A rising refused: look at the log for who asks, and for what. Any checksum_failed: memory or network corrupts bytes.",
		Room:   "agent",
	},
	{
		Name: "meridian_think_tokens_per_request", Type: Histogram, Unit: "tokens",
		Help:   "Length of a thought when it ended, by itself or forced.",
		Action: "A pile-up at scheduler.max_think_tokens means that the cap ends thoughts: lower the cap, or loosen the entropy thresholds so that they end sooner.",
		Room:   "phase", Planned: true,
	},
	{
		Name: "meridian_budget_force_triggered", Type: Counter, Unit: "events",
		Help:   "Thoughts that were ended by force.",
		Action: "Flat while thoughts are long: check that entropy.enabled is true and a probe is attached.",
		Room:   "phase", Planned: true,
	},
	{
		Name: "meridian_budget_force_reason", Type: Counter, Unit: "events",
		Labels: []Label{{Name: "reason", Values: []string{"converged", "overthinking", "hard_cap"}}},
		Help:   "Why thoughts were ended by force.",
		Action: "hard_cap above half of the sum over an hour: the probe does not see convergence; inspect its thresholds.",
		Room:   "phase", Planned: true,
	},
	{
		Name: "meridian_entropy_transitions_total", Type: Counter, Unit: "tokens",
		Help:   "Think tokens whose entropy exceeded entropy.transition_entropy_threshold.",
		Action: "Informational; it decides nothing.",
		Room:   "probe", Planned: true,
	},
	{
		Name: "meridian_vocab_fallback_total", Type: Counter, Unit: "events",
		Help:   "Batches whose logit rows had different vocabulary sizes, so that the probe ran row by row.",
		Action: "Rising: requests for different models share a batch; look at routing.",
		Room:   "probe", Planned: true,
	},
	{
		Name: "meridian_phase_router_tracked_requests", Type: Gauge, Unit: "requests",
		Help:   "Requests whose phase is being tracked.",
		Action: "Growing for 15 minutes while the load does not: an engine does not report finished requests.",
		Room:   "phase", Planned: true,
	},
	{
		Name: "meridian_schedule_batch_duration_ns", Type: Histogram, Unit: "nanoseconds",
		Help:   "Time one scheduling decision took.",
		Action: "P99 above 1 ms under steady load: take a CPU profile and file an issue.",
		Room:   "sched", Planned: true,
	},
	{
		Name: "meridian_scheduler_batch_size", Type: Histogram, Unit: "requests",
		Labels: []Label{{Name: "phase", Values: []string{"output", "think"}}},
		Help:   "Requests of each phase in a decided batch.",
		Action: "A small output batch beside a deep output queue: output is starved of memory or budget.",
		Room:   "sched", Planned: true,
	},
	{
		Name: "meridian_queue_depth", Type: Gauge, Unit: "requests",
		Labels: []Label{{Name: "queue", Values: []string{"output", "think"}}},
		Help:   "Requests waiting for their turn.",
		Action: "think above four times its hourly baseline for 5 minutes without forced ends: long chains pile up.",
		Room:   "sched", Planned: true,
	},
	{
		Name: "meridian_block_manager_used_bytes", Type: Gauge, Unit: "bytes",
		Help:   "KV memory in use, all tiers.",
		Action: "Above 90 % of the capacity for 10 minutes: evictions are next.",
		Room:   "block", Planned: true,
	},
	{
		Name: "meridian_block_manager_evictions", Type: Counter, Unit: "blocks",
		Labels: []Label{{Name: "tier", Values: []string{"think_complete", "think_active", "output_critical"}}},
		Help:   "Blocks that left memory under pressure, by tier.",
		Action: "think_complete is routine, think_active is pressure, output_critical is a stream that a user saw stall.",
		Room:   "block", Planned: true,
	},
	{
		Name: "meridian_output_critical_eviction", Type: Counter, Unit: "events",
		Help:   "Evictions that touched the answer a user was reading.",
		Action: "Alert on any increase within 5 minutes; lower kv_memory.think_phase_memory_fraction, scheduler.think_batch_multiplier or scheduler.max_think_tokens.",
		Room:   "block", Planned: true,
	},
	{
		Name: "meridian_disagg_blocks_offloaded_total", Type: Counter, Unit: "blocks",
		Labels: []Label{{Name: "fabric"}},
		Help:   "Blocks copied out of an engine's memory.",
		Action: "Flat while disagg.enabled is true: no thought reached disagg.offload_threshold_blocks, or the store cannot be reached.",
		Room:   "offload", Planned: true,
	},
}

func find(name string) (Metric, bool) {
	i := slices.IndexFunc(catalogue, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return catalogue[i], true
}

// check refuses values that the catalogue does not promise.
func (m Metric) check(labels []string) error {
	if len(labels) != len(m.Labels) {
		return fmt.Errorf("telemetry: %s has %d labels, got %d values", m.Name, len(m.Labels), len(labels))
	}
	for i, l := range m.Labels {
		if len(l.Values) > 0 && !slices.Contains(l.Values, labels[i]) {
			return fmt.Errorf("telemetry: %s{%s=%q} is not in the catalogue", m.Name, l.Name, labels[i])
		}
	}
	return nil
}

// Reference is the part of docs/metrics.md that is made from the catalogue.
func Reference() string {
	var b strings.Builder
	for _, m := range catalogue {
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n| | |\n|---|---|\n| Type | %s |\n| Unit | %s |\n", m.Name, m.Help, m.Type, m.Unit)
		for _, l := range m.Labels {
			values := "any"
			if len(l.Values) > 0 {
				values = "`" + strings.Join(l.Values, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| Label `%s` | %s |\n", l.Name, values)
		}
		producer := "`" + m.Room + "`"
		if m.Planned {
			producer += " (planned: not emitted yet)"
		}
		fmt.Fprintf(&b, "| Produced by | %s |\n| Operator action | %s |\n\n", producer, m.Action)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
