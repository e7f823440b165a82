package telemetry

// tierMetrics are the part of the catalogue that tiers of the object cache produce.
var tierMetrics = []Metric{
	{
		Name: "meridian_store_promoted_total", Type: Counter, Unit: "objects",
		Labels: []Label{{Name: "result", Values: []string{"done", "failed"}}},
		Help:   "Objects that came back to memory from a tier, and those that should have.",
		Action: "failed rising: see meridian_store_tier_troubles_total; or memory is full of what is being read.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_promoted_bytes_total", Type: Counter, Unit: "bytes",
		Help:   "Bytes of objects that came back to memory from a tier.",
		Action: "Beside meridian_store_evictions_total: high, and store.bytes is too small for what is used.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_promotion_seconds_total", Type: Counter, Unit: "seconds",
		Help:   "Time that runs of objects took to come back to memory, each run counted once.",
		Action: "Its rate over that of meridian_store_promoted_bytes_total is what tiers cost a reader.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_written_behind_dropped_total", Type: Counter, Unit: "objects",
		Help:   "Objects that were used often enough for a tier and were not written to it, because too much waited.",
		Action: "Rising all the time: the tier is slower than what is kept; they are written when they are used again.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_objects", Type: Gauge, Unit: "objects",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}},
		Help:   "Objects that a tier keeps.",
		Action: "0 after a restart: it was opened empty; is its folder or bucket the one that was meant?",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_bytes", Type: Gauge, Unit: "bytes",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}, {Name: "what", Values: []string{"used", "limit", "waiting"}}},
		Help:   "Room that a tier takes and may take, and what waits to be written.",
		Action: "waiting near its bound: the tier is slow, and what comes is dropped.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_operations_total", Type: Counter, Unit: "operations",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}, {Name: "operation", Values: []string{"put", "get"}}, {Name: "result", Values: []string{"done", "dropped", "failed", "hit", "miss"}}},
		Help:   "Objects that a tier was given and asked for.",
		Action: "put dropped: it is slow, or left alone after failures. put failed: a disk that is full, a bucket that cannot be written.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_moved_bytes_total", Type: Counter, Unit: "bytes",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}, {Name: "direction", Values: []string{"in", "out"}}},
		Help:   "Bytes of objects that a tier has taken and given back.",
		Action: "Its rate is what a tier takes of disk and network.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_troubles_total", Type: Counter, Unit: "calls",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}, {Name: "what", Values: []string{"slow", "failed", "broken", "over_budget"}}},
		Help:   "Calls that came to nothing: no answer in time, an error, an object whose bytes had changed, a budget that was spent.",
		Action: "Each was a miss. broken: a disk or a bucket changes bytes. over_budget: raise store.s3.requests_per_second or bytes_per_second.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_reclaimed_total", Type: Counter, Unit: "segments",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}},
		Help:   "Segments that were given up to make room.",
		Action: "Beside few hits: what is kept there is never used again.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_requests_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}},
		Help:   "Requests to a server, each try counted.",
		Action: "What an S3 server bills.",
		Room:   "keep/store",
	},
	{
		Name: "meridian_store_tier_down", Type: Gauge, Unit: "1",
		Labels: []Label{{Name: "tier", Values: []string{"disk", "s3"}}},
		Help:   "1 while a tier is left alone, after it failed several times in a row, and until it is open.",
		Action: "1 for long: the disk or the server is gone, or is still being read; everything goes on without it, and the agent's log says why.",
		Room:   "keep/store",
	},
}
