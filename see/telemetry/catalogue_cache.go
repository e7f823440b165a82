package telemetry

// cacheMetrics are the part of the catalogue that prefixes produce which engines keep and
// find.
var cacheMetrics = []Metric{
	{
		Name: "meridian_cache_keeps_total", Type: Counter, Unit: "prefixes",
		Labels: []Label{{Name: "end", Values: []string{"kept", "part", "present", "short", "dropped", "declined", "full", "busy", "refused", "unknown", "failed", "withdrawn"}}},
		Help: "Prefixes that engines of this agent let be kept. kept: what was missing was copied. part: its beginning was. present: nothing was missing. short: less than one piece. dropped: the engine had lent as many blocks as it may, one piece is larger than store.keep_bytes_in_flight, or its turn did not come in time. " +
			"declined: the engine's blocks could not be held. full, busy, refused: owners said so, or nothing (busy). unknown: who has what could not be learned. failed: the copy did not arrive. withdrawn: its engine took it back, or has left.",
		Action: "dropped or part rising: owners or the network are slower than engines end requests; see meridian_cache_in_flight_bytes. full: add owners, or store.bytes. unknown: no master answers; `meridian store stat` tells.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_finds_total", Type: Counter, Unit: "finds",
		Labels: []Label{{Name: "end", Values: []string{"whole", "part", "miss", "short", "compute", "late", "busy", "refused", "unknown"}}},
		Help:   "Questions of engines of this agent for a prefix. whole: all that could be kept of it was found. part: its beginning was. compute: the engine computes it sooner than it would come. late: owners did not answer within store.find_timeout_ms.",
		Action: "late or busy rising: owners have too much to do; see meridian_store_operations and their processors. Many misses beside many evictions: give owners more store.bytes.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_find_seconds_total", Type: Counter, Unit: "seconds",
		Help:   "Time that engines of this agent waited for answers to what is kept.",
		Action: "Divided by the rate of finds it is what a Find costs. Compare with what it saves: meridian_cache_tokens_total.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "result", Values: []string{"found", "missed"}}},
		Help:   "Tokens of prompts that engines of this agent asked for and did not have themselves: found in the cell's cache, or not.",
		Action: "found over both is the hit rate in tokens: what need not be computed.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_tier_finds_total", Type: Counter, Unit: "finds",
		Labels: []Label{{Name: "tier", Values: []string{"memory", "disk", "s3", "unknown"}}},
		Help:   "Finds of engines of this agent to which a tier of owners brought something; one that found in two counts in both. unknown: the owner is of a build that does not say.",
		Action: "Many from disk or s3: what is used leaves memory too soon; give owners more store.bytes, where the wait shows in meridian_cache_find_seconds_total.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_tier_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "tier", Values: []string{"memory", "disk", "s3", "unknown"}}},
		Help:   "Tokens of prompts that engines of this agent found, by the tier in which their owner had them when it was asked.",
		Action: "It is what each tier saves. A disk or a bucket that brings next to nothing costs more than it saves.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_model_finds_total", Type: Counter, Unit: "finds",
		Labels: []Label{{Name: "model"}, {Name: "result", Values: []string{"hit", "miss"}}},
		Help: "Finds of engines of this agent by model, and whether they found something. The first 32 models of a process are told apart, later ones are (others). Tenants are no label: there is no end of them, and who may read metrics " +
			"need not know who asks when; `meridian cache top` tells of them.",
		Action: "A model that only misses: its engines differ in revision, adapter, dtype or packing, or its prompts share nothing. `meridian cache find` tells.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_model_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "model"}, {Name: "result", Values: []string{"found", "missed"}}},
		Help:   "Tokens of prompts that engines of this agent asked for and did not have themselves, by model: found in the cell's cache, or not.",
		Action: "found over both is the hit rate of a model in tokens.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_segments_total", Type: Counter, Unit: "segments",
		Help:   "Parts, each of one owner, in which found prefixes came.",
		Action: "Near four for each Find that finds something: prefixes lie at many owners, and longer ones are cut off.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_units_total", Type: Counter, Unit: "objects",
		Labels: []Label{{Name: "what", Values: []string{"kept", "present"}}},
		Help:   "Pieces of prefixes that engines of this agent let be kept: copied, or there already.",
		Action: "Mostly present is good: prompts share prefixes, and each is written once.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_bytes_total", Type: Counter, Unit: "bytes",
		Help:   "Bytes that were copied from engines of this agent to be kept.",
		Action: "Its rate is what keeping takes of memory and network.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_in_flight_bytes", Type: Gauge, Unit: "bytes",
		Labels: []Label{{Name: "direction", Values: []string{"out", "in"}}},
		Help:   "Bytes on their way: of engines of this agent to be kept, and to this agent's owner.",
		Action: "At store.keep_bytes_in_flight for long: the network or an owner is the limit, and what is to be kept waits.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_owner_units_total", Type: Counter, Unit: "objects",
		Labels: []Label{{Name: "end", Values: []string{"taken", "aborted", "broken"}}},
		Help:   "Pieces of prefixes at this agent's owner: taken in whole, given up on their way, found to be broken as they were asked for.",
		Action: "broken above zero: memory is faulty, or a program that maps the arena writes where it must not. Look at the host before anything else.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_owner_asks_total", Type: Counter, Unit: "asks",
		Labels: []Label{{Name: "end", Values: []string{"granted", "refused", "overloaded", "malformed", "used"}}},
		Help:   "What agents asked of this agent's owner about prefixes. used: they told it that something of it was used.",
		Action: "overloaded rising: add owners. malformed: an agent of another version, or no agent of yours.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_copies_total", Type: Counter, Unit: "runs",
		Labels: []Label{{Name: "end", Values: []string{"taken", "refused"}}},
		Help:   "Prefixes of this agent's owner that are found often, and that another owner was asked to have a copy of (store.replicas).",
		Action: "refused rising: owners have no room for copies. Raise store.bytes, or do without copies.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_held_runs", Type: Gauge, Unit: "runs",
		Help:   "Found prefixes that this agent's owner holds for engines that have not taken them yet.",
		Action: "High for long: engines find and do not take; each holds memory for seconds.",
		Room:   "keep/prefix",
	},
	{
		Name: "meridian_cache_shapes", Type: Gauge, Unit: "shapes",
		Help:   "Kinds of pieces that this agent's owner keeps: one for each model, geometry and packing.",
		Action: "None.",
		Room:   "keep/prefix",
	},
}
