package telemetry

// engineMetrics are the part of the catalogue that reference engines produce.
var engineMetrics = []Metric{
	{
		Name: "meridian_engine_requests", Type: Gauge, Unit: "requests",
		Labels: []Label{{Name: "state", Values: []string{"running", "fetching", "waiting"}}},
		Help:   "Answers inside a reference engine: computed, waiting for a prompt's cache from elsewhere, waiting for their turn.",
		Action: "waiting high for long: add engines of its role. fetching high: hand-offs are slow, see meridian_gateway_phase_seconds{phase=\"handoff\"}.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_requests_ended_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "end", Values: []string{"finished", "cancelled", "failed"}}},
		Help:   "Requests of a reference engine that ended, by how.",
		Action: "failed above zero: the engine's log has the reasons.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_blocks", Type: Gauge, Unit: "blocks",
		Labels: []Label{{Name: "state", Values: []string{"used", "cached", "free"}}},
		Help:   "Blocks of a reference engine's KV memory: in use by requests, kept because a prompt may begin alike, free. Together they are all.",
		Action: "used near all of them: requests wait or are preempted; see meridian_engine_preempted_total.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_blocks_held", Type: Gauge, Unit: "blocks",
		Help:   "Blocks of a reference engine that stay because its agent was told of them, for a hand-off.",
		Action: "Growing without more requests: offers are not taken and not freed; see meridian_handoff_running.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "kind", Values: []string{"prompt", "computed", "generated"}}},
		Help:   "Tokens at a reference engine: of prompts, computed (preempted ones again), of answers.",
		Action: "computed far above prompt and generated together: work is lost to preemption.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_handoffs_total", Type: Counter, Unit: "prompts",
		Labels: []Label{{Name: "end", Values: []string{"ready", "failed", "local"}}},
		Help:   "Prompts whose cache was to come from another engine: came, was lost on the way, was computed here instead.",
		Action: "failed or local rising: `meridian explain` of such a request has the reason.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_offers_total", Type: Counter, Unit: "prompts",
		Labels: []Label{{Name: "answer", Values: []string{"taken", "declined"}}},
		Help:   "Prompts whose cache a reference engine offered to its agent.",
		Action: "declined rising: see meridian_handoff_offers_total of its agent.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_preempted_total", Type: Counter, Unit: "requests",
		Help:   "Requests that gave their blocks up because others needed them, and are computed again.",
		Action: "Rising: too many long answers at once; give the engine more blocks, or add engines.",
		Room:   "engine",
	},
	{
		Name: "meridian_engine_steps_total", Type: Counter, Unit: "steps",
		Help:   "Steps that a reference engine has computed.",
		Action: "Standing still while requests run: the engine hangs.",
		Room:   "engine",
	},
}
