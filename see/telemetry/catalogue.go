package telemetry

import (
	"fmt"
	"slices"
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

// Metric is one entry of the catalogue: a contract with operators who built a
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

var catalogue = slices.Concat([]Metric{
	{
		Name: "meridian_build_info", Type: Gauge, Unit: "1",
		Labels: []Label{{Name: "version"}, {Name: "commit"}, {Name: "go"}},
		Help:   "Always 1; the labels say which build runs.",
		Action: "Compare across hosts during a rollout.",
		Room:   "see/telemetry",
	},
	{
		Name: "meridian_agent_transfers_posted_total", Type: Counter, Unit: "transfers",
		Help:   "Transfers that were started.",
		Action: "Compare with the ended ones: a growing gap is transfers that hang.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_transfers_ended_total", Type: Counter, Unit: "transfers",
		Labels: []Label{{Name: "end", Values: []string{"done", "failed"}}},
		Help:   "Transfers that ended, with every byte in place or not.",
		Action: "failed above zero: `meridian explain` names the transfer, the peer and the reason.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_bytes_total", Type: Counter, Unit: "bytes",
		Labels: []Label{{Name: "op", Values: []string{"read", "write"}}},
		Help:   "Bytes of transfers that are done, as seen by who posted them.",
		Action: "Its rate is the agent's throughput.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_notifications_total", Type: Counter, Unit: "notifications",
		Labels: []Label{{Name: "end", Values: []string{"taken", "refused"}}},
		Help:   "Notifications that came from peers.",
		Action: "refused above zero: the program that should take them does not keep up.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_regions", Type: Gauge, Unit: "regions",
		Help:   "Regions of memory that are registered.",
		Action: "Growing without new engines: a program registers and never deregisters.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_peers", Type: Gauge, Unit: "peers",
		Help:   "Peers whose metadata is loaded.",
		Action: "Informational.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_grants", Type: Gauge, Unit: "grants",
		Help:   "Grants that open memory of this agent to a peer.",
		Action: "Growing without end: a program grants and never revokes; grants expire by themselves.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_audit_events_total", Type: Counter, Unit: "events",
		Labels: []Label{{Name: "event", Values: []string{"granted", "revoked", "refused", "fenced", "checksum_failed"}}},
		Help:   "Events for the audit; each has a log line with audit=true, grants of single spans at the level debug: a hand-off has one line for all of its.",
		Action: "A rising refused: look at the log for who asks, and for what. Any checksum_failed: memory or network corrupts bytes.",
		Room:   "move/agent",
	},
	{
		Name: "meridian_agent_records_dropped_total", Type: Counter, Unit: "records",
		Help:   "Records of transfers and hand-offs that are in memory only: the disk did not keep up, or there were more than 100 transfers a second that went well.",
		Action: "None for a busy agent. Where the log says that records cannot be written, the state directory's disk is full or broken.",
		Room:   "run/node",
	},
	{
		Name: "meridian_handoff_offers_total", Type: Counter, Unit: "offers",
		Labels: []Label{{Name: "answer", Values: []string{"taken", "declined"}}},
		Help:   "Caches that prefill engines of this agent offered.",
		Action: "declined above zero: too many blocks are held, or offers do not fit; decode computes those prompts itself. `meridian explain` has the reasons.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_offers_ended_total", Type: Counter, Unit: "offers",
		Labels: []Label{{Name: "end", Values: []string{"freed", "expired"}}},
		Help:   "Offers whose blocks are the engine's again: taken or withdrawn, or expired because no decode engine came.",
		Action: "A rising expired: decode engines do not come for what prefill computes; look at the gateway and at the decode agents.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_accepts_total", Type: Counter, Unit: "accepts",
		Labels: []Label{{Name: "answer", Values: []string{"taken", "refused"}}},
		Help:   "Caches that decode engines of this agent asked for.",
		Action: "refused above zero: tickets are stale, forged or of another prompt; the agent's log has the reasons.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_accepts_ended_total", Type: Counter, Unit: "accepts",
		Labels: []Label{{Name: "end", Values: []string{"ready", "failed"}}},
		Help:   "Hand-offs to engines of this agent that ended, with every byte checked or not at all.",
		Action: "failed above zero: `meridian explain` names the hand-off, the peer and the reason.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_intakes_total", Type: Counter, Unit: "accepts",
		Labels: []Label{{Name: "answer", Values: []string{"taken", "refused"}}},
		Help:   "What meridian_handoff_accepts_total was called; the same numbers, for one release.",
		Action: "Read meridian_handoff_accepts_total instead.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_intakes_ended_total", Type: Counter, Unit: "accepts",
		Labels: []Label{{Name: "end", Values: []string{"ready", "failed"}}},
		Help:   "What meridian_handoff_accepts_ended_total was called; the same numbers, for one release.",
		Action: "Read meridian_handoff_accepts_ended_total instead.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_bytes_total", Type: Counter, Unit: "bytes",
		Help:   "Bytes of hand-offs that are ready, at the side that took them.",
		Action: "Its rate is what hand-offs take of the network.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_messages_total", Type: Counter, Unit: "messages",
		Labels: []Label{{Name: "what", Values: []string{"sent", "lost", "heard", "malformed"}}},
		Help:   "Messages between agents about hand-offs.",
		Action: "lost keeps rising: a peer does not answer, and hand-offs with it end by their leases. Any malformed: builds that do not fit, or a stranger.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_handoff_running", Type: Gauge, Unit: "hand-offs",
		Labels: []Label{{Name: "what", Values: []string{"offers", "accepts", "intakes", "sessions"}}},
		Help:   "What runs now: offers that stand, accepts, and work of this agent for either. `intakes` is what accepts were called, for one release.",
		Action: "Growing without more requests: blocks are held for longer than they should; compare with the ended ones.",
		Room:   "move/transceiver",
	},
	{
		Name: "meridian_door_connections", Type: Gauge, Unit: "connections",
		Help:   "Connections at the door: of engines, control and ranks, and of clients that are none.",
		Action: "Informational.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_engines", Type: Gauge, Unit: "engines",
		Labels: []Label{{Name: "state", Values: []string{"gathering", "serving"}}},
		Help:   "Engines that are registered here: serving, or not yet or no longer.",
		Action: "gathering stays above zero: a rank has not come, or has not lent its memory; the agent's log tells who has.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_fenced_total", Type: Counter, Unit: "engines",
		Help:   "Registrations that ended: the engine left, died, or broke the protocol.",
		Action: "Rising without deployments: engines crash; the agent's log has the reason of each.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_refused_total", Type: Counter, Unit: "refusals",
		Labels: []Label{{Name: "code"}},
		Help:   "Connections and requests of engines that were refused, by the code of the answer.",
		Action: "docs/wire.md explains the codes. leg or denied rising: an engine asks for what it may not have.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_memory_overdue", Type: Gauge, Unit: "copies",
		Help:   "Copies between the object cache and memory of a client that have taken longer than 5 s for 256 KiB and go on: its pages do not come. No call ends such a copy; it holds memory of its client's share until its pages come or its process ends.",
		Action: "Above zero: the agent's log has the process; end it. Other clients are served meanwhile.",
		Room:   "serve/doorstore",
	},
	{
		Name: "meridian_door_slow_pieces_total", Type: Counter, Unit: "copies",
		Help:   "Copies of a piece of a client's memory that took longer than 5 s, ended ones among them. Their requests fail with `deadline`.",
		Action: "Rising: a client's memory is on a disk that hangs, or a client answers its page faults itself (userfaultfd, FUSE). The agent's log has the process.",
		Room:   "serve/doorstore",
	},
	{
		Name: "meridian_door_governed", Type: Gauge, Unit: "connections",
		Labels: []Label{{Name: "as", Values: []string{"scheduler", "measures"}}},
		Help:   "Connections for steps: of engines' schedulers, for which the governor decides, and of processes that measure entropies.",
		Action: "scheduler below the number of engines that should be governed: the others serve as they would alone; their logs say why.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_requests", Type: Gauge, Unit: "requests",
		Labels: []Label{{Name: "state", Values: []string{"running", "waiting"}}},
		Help:   "Requests of the engines that are governed, as they said with their last step.",
		Action: "waiting stays above zero: those engines are full. Engines that are not governed are not among them.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_free_blocks", Type: Gauge, Unit: "blocks",
		Help:   "Blocks of KV memory that the governed engines could use at once, cached ones that no request uses among them, as they said with their last step.",
		Action: "Near zero for long: requests are paused and preempted; more memory for KV, or fewer requests.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_door_steps_total", Type: Counter, Unit: "steps",
		Labels: []Label{{Name: "outcome", Values: []string{"decided", "measured", "refused", "unread"}}},
		Help:   "Steps that engines told of: answered with a decision, told of entropies, not taken, or decided for an engine that did not read it. The last two end the connection.",
		Action: "refused: an engine says what cannot be, and the agent's log tells what; unread: its scheduler hangs. Meanwhile it serves as it would alone.",
		Room:   "serve/doorserver",
	},
	{
		Name: "meridian_gateway_requests_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "outcome", Values: []string{"finished", "refused", "failed", "cancelled"}}},
		Help:   "Requests of clients that ended, by how.",
		Action: "failed above zero: engines were lost and no other could go on; `meridian explain` tells of one, the gateway's /debug/requests of the latest. refused is the clients' doing.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_overloaded_total", Type: Counter, Unit: "requests",
		Help:   "Requests that were turned away with 429, because too many ran and waited.",
		Action: "Rising: add decode engines, or raise gateway.max_running if those there are not busy.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_requests", Type: Gauge, Unit: "requests",
		Labels: []Label{{Name: "state", Values: []string{"reading", "waiting", "running"}}},
		Help:   "Requests inside the gateway. reading: their clients send them.",
		Action: "waiting above zero for long: gateway.max_running is reached; turning away is next. reading high for long: clients send slowly, or mean to.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_connections", Type: Gauge, Unit: "connections",
		Help:   "Connections of clients.",
		Action: "Near gateway.max_connections: idle ones are closed for new ones, and refusing is next.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_connections_refused_total", Type: Counter, Unit: "connections",
		Help:   "Connections of clients for which there was no room, whatever they would have asked for.",
		Action: "Above zero: raise gateway.max_connections, and the limit of open files with it; or a client opens connections and sends nothing.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_legs_total", Type: Counter, Unit: "legs",
		Labels: []Label{{Name: "kind", Values: []string{"prefill", "decode", "resume", "move"}}, {Name: "end", Values: []string{"done", "lost", "busy", "refused", "cancelled"}}},
		Help:   "Requests to engines, by what they were for and how they ended. resume goes on with a stream whose engine was lost, move with one that left its engine.",
		Action: "lost rising: engines crash or hang; /debug/engines names them. busy rising: engines are full, not broken.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_streams_broken_total", Type: Counter, Unit: "streams",
		Labels: []Label{{Name: "end", Values: []string{"resumed", "failed"}}},
		Help:   "Streams whose engine was lost after the first token: went on with another engine, or ended with an error.",
		Action: "failed rising: the records say why these could not go on; sampled answers of vLLM are the usual reason.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_moves_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "reason", Values: []string{"drain", "thought", "operator", "balance", "room"}}, {Name: "outcome", Values: []string{"moved", "recomputed", "stayed", "returned", "lost"}}},
		Help: "Running requests that were asked to leave their engine for another, by why. moved went on with their cache, recomputed without; stayed ended first; returned went back, because no other engine took them; " +
			"lost were resumed, because the other engine failed before its first token.",
		Action: "recomputed rising: hand-offs fail, `meridian explain ID` has the reason. room rising: decode engines are full, add one. lost rising: engines crash; see meridian_gateway_legs_total.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_kv_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "source", Values: []string{"handoff", "cached", "local", "found"}}},
		Help:   "Where decode engines had a prompt's cache from, as they tell.",
		Action: "local high beside prefill engines that idle: see meridian_gateway_handoff_fallbacks_total and gateway.direct_prompt_tokens.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_handoff_fallbacks_total", Type: Counter, Unit: "requests",
		Help:   "Hand-offs that came to nothing, so that the decode engine computed the prompt again.",
		Action: "Above zero: `meridian explain ID` of such a request has the reason and the hand-off's story below it.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_promises_total", Type: Counter, Unit: "requests",
		Help:   "Requests whose decode engine was asked before the prefill engine had answered, promised the cache.",
		Action: "Few beside many hand-offs: prompts, or what waits at prefill engines, are longer than gateway.promise_tokens.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_promises_broken_total", Type: Counter, Unit: "requests",
		Help:   "Promises whose prefill engine failed or had nothing to offer, so that the decode engine's work was given up.",
		Action: "Rising: prefill engines are ill, see meridian_gateway_legs_total.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_warm_total", Type: Counter, Unit: "turns",
		Labels: []Label{{Name: "end", Values: []string{"warmed", "failed", "busy", "full", "late", "stopped", "unfit"}}},
		Help: "Next turns of chats that were to be computed ahead (gateway.warm_next_turn), by what became of them. busy: given up for a request; full: too many waited; " +
			"late: no engine had time within 20 s; unfit: the answer calls tools, or is too long.",
		Action: "busy and late high beside few warmed: engines have no idle time, and gateway.warm_next_turn brings little. failed rising: engines refuse it; the log at level debug has the status.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_warming", Type: Gauge, Unit: "turns",
		Labels: []Label{{Name: "state", Values: []string{"waiting", "working"}}},
		Help:   "Next turns that wait for an idle engine, and those that one computes.",
		Action: "waiting high for long: no engine is idle.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_warm_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "source", Values: []string{"computed", "cached"}}},
		Help:   "Tokens of next turns that were computed ahead: those that had to be, and those that the engine had or found.",
		Action: "Beside meridian_gateway_tokens_total it is what computing ahead costs.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_tokens_total", Type: Counter, Unit: "tokens",
		Labels: []Label{{Name: "kind", Values: []string{"prompt", "output"}}},
		Help:   "Tokens of requests that ended.",
		Action: "Its rate is the cell's throughput.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_phase_seconds", Type: Histogram, Unit: "seconds",
		Labels: []Label{{Name: "phase", Values: []string{"queue", "prefill", "handoff", "ttft", "ttfvt", "ttot", "think_itl", "answer_itl", "total"}}},
		Help: "Latency by phase: waiting in the gateway; the prompt; the hand-off; to the first token; to the first token that a user sees; from the end of a thought to it; " +
			"between tokens of thoughts and of answers; all of it.",
		Action: "ttfvt far above ttft is thinking; ttft beside a small prefill is queueing; answer_itl above its habit: prompts are computed on decode engines, see gateway.direct_prompt_tokens.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_engines", Type: Gauge, Unit: "engines",
		Labels: []Label{{Name: "role", Values: []string{"prefill", "decode", "both"}}, {Name: "state", Values: []string{"up", "down"}}},
		Help:   "Engines that the gateway knows. down: it failed lately, or does not answer.",
		Action: "down above zero for long: /debug/engines has the reason of each.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_passed_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "result", Values: []string{"answered", "failed"}}},
		Help:   "Requests for endpoints that only engines know (gateway.proxy_paths). answered: an engine answered, whatever its status; failed: the gateway refused it, no engine could be asked, or the engine's answer broke off.",
		Action: "failed rising: clients ask for what is not passed on, or engines are lost; meridian_gateway_engines tells.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_placements_total", Type: Counter, Unit: "placements",
		Labels: []Label{{Name: "prefix", Values: []string{"told", "guessed", "stored", "none"}}},
		Help: "Placements by how it was known what the chosen engines hold of the prompt: by their cache events, by what was sent to them before, " +
			"because the cell's object cache was believed to keep it, or nothing.",
		Action: "guessed beside engines that publish events: prompts are texts whose tokens are not known, or a subscription is down.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_stored_total", Type: Counter, Unit: "requests",
		Labels: []Label{{Name: "end", Values: []string{"found", "less", "untold"}}},
		Help: "Requests that went straight to a decode engine because the cell's object cache was believed to keep most of their prompt, by what the engine told: " +
			"it had as much, it had less and computed the rest, or nothing.",
		Action: "less beside found for long: prefixes are evicted before they are used again, or computing is faster than fetching; see meridian_cache_finds_total, " +
			"give the store more memory, or raise gateway.stored_token_weight.",
		Room: "serve/gateway",
	},
	{
		Name: "meridian_gateway_cache_subscriptions", Type: Gauge, Unit: "subscriptions",
		Labels: []Label{{Name: "state", Values: []string{"up", "down"}}},
		Help:   "Publishers of cache events that the gateway follows, one for each rank of an engine.",
		Action: "down above zero: /debug/engines says why; until it is up, placement goes by what was sent.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_cache_blocks", Type: Gauge, Unit: "blocks",
		Help:   "Blocks that engines say they hold, all together.",
		Action: "Far below what the engines have: events were lost, or a cache is larger than what is remembered of one; see /debug/engines.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_cache_batches_total", Type: Counter, Unit: "batches",
		Help:   "Batches of cache events that were taken in.",
		Action: "Standing still while engines serve: they do not publish, or the subscription hangs.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_cache_resets_total", Type: Counter, Unit: "resets",
		Help:   "How often what was known of a cache was given up, because events were missed that could not be had again, or the engine is a new one.",
		Action: "Rising without restarts of engines: give them a replay endpoint, or a larger buffer_steps.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_directory_known", Type: Gauge, Unit: "1",
		Help:   "1 while the directory answers, 0 while the gateway goes by what it knew last; 1 without a directory.",
		Action: "0: bring the directory back; engines that come or go meanwhile are not seen.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_gateway_records_dropped_total", Type: Counter, Unit: "records",
		Help:   "Records of requests that are not on disk, because it did not keep up or could not be written to.",
		Action: "Above zero: the state directory's disk is slow or full; requests are served all the same.",
		Room:   "serve/gateway",
	},
	{
		Name: "meridian_vocab_fallback_total", Type: Counter, Unit: "events",
		Help:   "Batches whose logit rows had different vocabulary sizes, so that the probe ran row by row.",
		Action: "Rising: requests for different models share a batch; look at routing.",
		Room:   "decide/entropy", Planned: true,
	},
}, governorMetrics, engineMetrics, storeMetrics, tierMetrics, cacheMetrics)

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
