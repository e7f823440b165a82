package telemetry

// governorMetrics are the part of the catalogue that governors produce, those of the book
// first: all engines of an agent together.
var governorMetrics = []Metric{
	{
		Name: "meridian_think_tokens_per_request", Type: Histogram, Unit: "tokens",
		Help:   "Length of a thought when it ended, by itself or forced.",
		Action: "A pile-up at scheduler.max_think_tokens means that the cap ends thoughts: lower the cap, or loosen the entropy thresholds so that they end sooner.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_budget_force_triggered", Type: Counter, Unit: "events",
		Help:   "Thoughts that were ended by force: decided here, or told by those that end them where logits are (vLLM's BudgetLogits). One for each request.",
		Action: "Flat while thoughts are long: check that entropy.enabled is true and a probe is attached.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_budget_force_reason", Type: Counter, Unit: "events",
		Labels: []Label{{Name: "reason", Values: []string{"converged", "overthinking", "hard_cap"}}},
		Help:   "Why thoughts were ended by force.",
		Action: "hard_cap above half of the sum over an hour: the probe does not see convergence; inspect its thresholds.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_entropy_transitions_total", Type: Counter, Unit: "tokens",
		Help:   "Think tokens whose entropy exceeded entropy.transition_entropy_threshold, of those whose entropy came in time.",
		Action: "Informational; it decides nothing.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_phase_router_tracked_requests", Type: Gauge, Unit: "requests",
		Help:   "Requests whose phase is being tracked.",
		Action: "Growing for 15 minutes while the load does not: an engine does not report finished requests.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_schedule_batch_duration_ns", Type: Histogram, Unit: "nanoseconds",
		Help:   "Time one scheduling decision took.",
		Action: "P99 above 1 ms under steady load: take a CPU profile and file an issue.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_scheduler_batch_size", Type: Histogram, Unit: "requests",
		Labels: []Label{{Name: "phase", Values: []string{"output", "think"}}},
		Help:   "Requests of each phase in a decided batch.",
		Action: "A small output batch beside a deep output queue: output is starved of memory or budget.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_queue_depth", Type: Gauge, Unit: "requests",
		Labels: []Label{{Name: "queue", Values: []string{"output", "think"}}},
		Help:   "Requests waiting for their turn.",
		Action: "think above four times its hourly baseline for 5 minutes without forced ends: long chains pile up.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_block_manager_used_bytes", Type: Gauge, Unit: "bytes",
		Help:   "KV memory in use, all tiers, of governed engines that tell of their blocks and have said what one takes.",
		Action: "Above 90 % of the capacity for 10 minutes: evictions are next.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_block_manager_evictions", Type: Counter, Unit: "blocks",
		Labels: []Label{{Name: "tier", Values: []string{"think_complete", "think_active", "output_critical"}}},
		Help:   "Blocks that left memory under pressure, by tier.",
		Action: "think_complete is routine, think_active is pressure, output_critical is a stream that a user saw stall.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_output_critical_eviction", Type: Counter, Unit: "events",
		Help:   "Evictions that touched the answer a user was reading.",
		Action: "Alert on any increase within 5 minutes; lower kv_memory.think_phase_memory_fraction, scheduler.think_batch_multiplier or scheduler.max_think_tokens.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_disagg_blocks_offloaded_total", Type: Counter, Unit: "blocks",
		Labels: []Label{{Name: "fabric"}},
		Help:   "Blocks copied out of an engine's memory.",
		Action: "Flat while engines that can copy think: no thought reached disagg.offload_threshold_blocks, or the agent has no store.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_preempted_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "way", Values: []string{"recompute", "offload", "keep"}}},
		Help:   "Requests that a policy stopped: computed anew later, copied out first, or only left out with their blocks in place.",
		Action: "recompute rising: memory is short and work is lost; lower scheduler.max_think_tokens, or give engines that can copy a store.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_blocks_total", Type: Counter, Unit: "blocks",
		Labels: []Label{{Name: "what", Values: []string{"copied", "recalled", "failed"}}},
		Help:   "Blocks that a decision had copied out and brought back, and those that did not arrive.",
		Action: "failed rising: the store cannot be reached or is full; who loses its blocks is computed anew.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_entropies_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "what", Values: []string{"measured", "late", "missed", "forgotten"}}},
		Help:   "Entropies that came by connections that only measure: all, those that came after their token was committed, tokens of thoughts that were committed without, and sequences that no scheduler told of.",
		Action: "missed near measured: the scheduler tells sooner than the ranks, and only caps end thoughts.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_late_total", Type: Counter, Unit: "decisions",
		Help:   "Decisions that came too late for the step that they were for, as engines count them; they held for a later one.",
		Action: "Above a tenth of meridian_door_steps_total{outcome=\"decided\"}: raise governor.wait_us, or give the agent a core of its own.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_failed_open_total", Type: Counter, Unit: "events",
		Help:   "How often governed engines lifted pauses or planned by themselves: nobody could run, nothing was decided for a second, or their side of governing was at fault.",
		Action: "Rising: the engine's log has its faults; `meridian phases --json` says which engine it is.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_contradictions_total", Type: Counter, Unit: "facts",
		Help:   "Facts of engines that did not fit what they had told before, and were left out.",
		Action: "Rising: an engine counts otherwise than its governor; `meridian phases --json` has the last of each engine.",
		Room:   "governor/live",
	},
	{
		Name: "meridian_governor_ungoverned_total", Type: Counter, Unit: "sequences",
		Labels: []Label{{Name: "why", Values: []string{"bound", "silent"}}},
		Help:   "Sequences that are not governed, or not any more: too many or too long, or the engine did not speak of them for a minute.",
		Action: "silent rising: an engine does not report finished requests. They are served all the same.",
		Room:   "governor/live",
	},
}
