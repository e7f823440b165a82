package config

// Names, defaults, units and ranges are those of the Meridian book; where the
// book is wrong about what a field means, the text here says what is true.

var scheduler = Section{
	Name: "scheduler",
	Doc:  "Who runs next, and how long a model may think: what governors decide by.",
	Fields: []Field{
		{
			Name: "policy", Kind: Enum, Default: "meridian",
			Choices: []Choice{{Name: "meridian"}, {Name: "stock"}, {Name: "static-budget"}, {Name: "dual-queue"}, {Name: "pascal"}},
			Doc:     "Who decides which requests run, wait or make room: Meridian's own policy, vLLM's, the same with a cap on thinking, the two queues of the Meridian book, or PASCAL's.",
			Tune:    "Compare them on your own workload with `meridian replay` first.",
		},
		{
			Name: "preempt_max_fraction", Kind: Float, Default: 0.1, Unit: "of the requests that hold blocks", Range: above(0).atMost(1),
			Doc:  "How many of them may lose their blocks in one step; one always may. Policy stock does not ask.",
			Tune: "Lower it when many answers stall at once under memory pressure; raise it when newcomers wait for blocks.",
		},
		{
			Name: "think_tpot_budget_ms", Kind: Float, Default: 80.0, Unit: "ms per think token", Range: above(0),
			Doc:  "Time a think token may take. No reader waits for these tokens, so the budget is loose and the batch may grow.",
			Tune: "Raise it when the accelerator idles while models think; lower it when thinking crowds out answers.",
		},
		{
			Name: "output_tpot_budget_ms", Kind: Float, Default: 20.0, Unit: "ms per output token", Range: above(0),
			Doc:  "Time an output token may take. This is the rhythm of the stream that a user reads.",
			Tune: "20 ms keeps a stream fluid at 30–50 tokens/s. Lower values cost think throughput.",
		},
		{
			Name: "think_batch_multiplier", Kind: Float, Default: 2.5, Unit: "× output batch tokens", Range: atLeast(1),
			Doc:  "How much larger the think batch's token budget is than the output batch's.",
			Tune: "Above about 3.5 expect jitter in output latency; watch meridian_queue_depth{queue=\"think\"}.",
		},
		{
			Name: "max_think_tokens", Kind: Int, Default: int64(32768), Unit: "tokens", Range: above(0),
			Rule: "> scheduler.min_think_tokens",
			Doc:  "A thought this long is ended whatever the entropy signals say. It bounds the KV memory one request can hold.",
			Tune: "Lower it when meridian_think_tokens_per_request piles up at the cap.",
		},
		{
			Name: "min_think_tokens", Kind: Int, Default: int64(512), Unit: "tokens", Range: atLeast(0),
			Rule: "< scheduler.max_think_tokens",
			Doc:  "No thought is ended before this many tokens, because the signals are noise on short chains.",
			Tune: "In a production trace of DeepSeek-R1 (ServeGen) about half of all thoughts are shorter than 512 tokens and so are never touched.",
		},
	},
}

var entropy = Section{
	Name: "entropy",
	Doc:  "When a thought has converged or has lost its way.",
	Fields: []Field{
		{
			Name: "enabled", Kind: Bool, Default: true,
			Doc:  "Whether entropy signals may end a thought. When false, only scheduler.max_think_tokens does.",
			Tune: "Set it to false for an A/B comparison, or where no probe is available.",
		},
		{
			Name: "ema_alpha", Kind: Float, Default: 0.05, Unit: "weight of the newest sample", Range: atLeast(0.001).atMost(1),
			Doc:  "Decay of the moving averages over entropy samples. Warm-up lasts about 4/alpha samples.",
			Tune: "Smaller remembers longer and reacts later.",
		},
		{
			Name: "rpdi_threshold", Kind: Float, Default: 3.0, Unit: "ratio, local over global mean entropy", Range: above(1),
			Doc:  "A chain is overthinking when the mean token entropy of the last 512 tokens exceeds this multiple of the chain's own mean (Reasoning Path Deviation Index, arXiv:2603.14251).",
			Tune: "3.0 is this project's cautious choice; the one re-implementation we know of reports the paper's setting as 2.0. Lower ends chains earlier.",
		},
		{
			Name: "eat_ema_variance_threshold", Kind: Float, Default: 0.001, Unit: "nats²", Range: above(0),
			Doc:  "A chain has converged when the moving variance of its entropy after a forced </think> falls below this (Entropy After </Think>, arXiv:2509.26522).",
			Tune: "The paper publishes no default. Lower defers, higher ends earlier.",
		},
		{
			Name: "transition_entropy_threshold", Kind: Float, Default: 2.5, Unit: "nats", Range: above(0),
			Doc:  "A token whose entropy exceeds this counts as a transition in meridian_entropy_transitions_total. It decides nothing.",
			Tune: "2.5 nats is the uncertainty of about twelve equally likely tokens.",
		},
		{
			Name: "eat_probe_interval_tokens", Kind: Int, Default: int64(32), Unit: "tokens", Range: atLeast(1),
			Doc:  "The convergence probe runs at the first paragraph end that is at least this many think tokens after the last probe.",
			Tune: "Every probe costs a forked row of a few tokens. Higher is cheaper and later.",
		},
	},
}

var kvMemory = Section{
	Name: "kv_memory",
	Doc:  "Which blocks stay in an engine's memory, where it tells its governor of them.",
	Fields: []Field{
		{
			Name: "aggressive_think_eviction", Kind: Bool, Default: false,
			Doc: "The governor names blocks of finished thoughts that have a copy elsewhere at once, not under pressure. The reference engine frees them only with their whole sequence, vLLM not at all; they are counted as evicted all the same.",
		},
		{
			Name: "think_phase_memory_fraction", Kind: Float, Default: 0.40, Unit: "fraction of KV memory", Range: above(0).below(1),
			Doc: "Meant to say when think blocks go before cached ones. No engine asks which single blocks to free under pressure, so it decides nothing in this version.",
		},
		{
			Name: "block_size_bytes", Kind: Size, Default: Auto, Unit: "bytes per KV block", Range: above(0),
			Doc:  "Size of one block. \"auto\" derives it from the geometry that an engine registers; a number that disagrees with the engine is an error.",
			Tune: "Leave it on \"auto\". Qwen3-30B-A3B in bf16 has 1.5 MiB per 16-token block.",
		},
		{
			Name: "capacity_bytes", Kind: Size, Default: Auto, Unit: "bytes", Range: above(0),
			Doc:  "KV memory that may be used. \"auto\" is what the engine lent.",
			Tune: "Pin a number to share a device with others.",
		},
	},
}

var governor = Section{
	Name: "governor",
	Doc:  "The governors of this host's engines: one for each engine that tells of its steps. docs/governing.md tells what they do.",
	Fields: []Field{
		{
			Name: "enabled", Kind: Bool, Default: true,
			Doc:  "Whether engines that tell of their steps are governed. An engine that does not tell, or finds no governor, serves as it would alone.",
			Tune: "Set it to false to compare, or to leave every engine to itself.",
		},
		{
			Name: "wait_us", Kind: Int, Default: int64(500), Unit: "µs", Range: atLeast(0).atMost(100000),
			Doc:  "How long an engine waits for a decision before it plans a step without it. What comes later counts for the next step.",
			Tune: "Lower it when steps get longer, raise it when meridian_governor_late_total is above a tenth of the steps. 0 never waits: every decision is then a step late.",
		},
	},
}

var disagg = Section{
	Name: "disagg",
	Doc:  "Moving payloads of KV between machines, in frames: `meridian store push` and `pull`. Hand-offs between engines do not ask.",
	Fields: []Field{
		{
			Name: "enabled", Kind: Bool, Default: false,
			Doc:  "Whether payloads are pushed and pulled at all.",
			Tune: "Leave it false on a single node.",
		},
		{
			Name: "fabric", Kind: Enum, Default: "none",
			Choices: []Choice{
				{Name: "none"},
				{Name: "meridian"},
				{Name: "nixl", Refused: `this build has no NIXL adapter; use "meridian", which needs no library`},
				{Name: "mooncake", Refused: `this build has no Mooncake adapter; use "meridian", which needs no library`},
			},
			Rule: "not \"none\" while disagg.enabled is true",
			Doc:  "What carries the bytes: \"meridian\" is Meridian's own agent; \"nixl\" and \"mooncake\" name adapters to those libraries.",
			Tune: "Use \"meridian\".",
		},
		{
			Name: "offload_threshold_blocks", Kind: Int, Default: int64(4), Unit: "KV blocks", Range: atLeast(1),
			Doc:  "Blocks of finished thoughts are pushed in batches of this many; those of other tiers do not wait. Governors have finished thoughts copied out of engines in such batches, too, where an engine can.",
			Tune: "Larger batches cost less per block and start later.",
		},
	},
}

var model = Section{
	Name:  "model",
	Named: true,
	Doc: "How a model marks its thoughts; the table's name is the one that engines give the model, as in [model.\"Qwen/Qwen3-32B\"]. " +
		"Case, what stands before the last slash, and which of - . _ separates words do not count. Give token ids, or texts, or a channel (gpt-oss); " +
		"run/models/*.toml holds checked tables. Without markers the whole answer is one phase.",
	Fields: []Field{
		{
			Name: "think_start_token_ids", Kind: Tokens,
			Rule: "think_end_token_ids must be given too, and share no id",
			Doc:  "Any of these ids starts a thought. May be left out where the chat template already puts the marker into the prompt.",
		},
		{
			Name: "think_end_token_ids", Kind: Tokens,
			Doc: "Any of these ids ends a thought.",
		},
		{
			Name: "think_start_texts", Kind: Texts,
			Rule: "think_end_texts must be given too",
			Doc:  "Texts that start a thought, for models without ids of their own (Granite) or to be looked up in tokenizer.",
		},
		{
			Name: "think_end_texts", Kind: Texts,
			Doc: "Texts that end a thought.",
		},
		{
			Name: "channel.open", Kind: Text,
			Rule: "all five channel fields or none; not beside ids or texts",
			Doc:  "Text before a channel's name, as in gpt-oss: <|channel|>.",
		},
		{Name: "channel.message", Kind: Text, Doc: "Text between a channel's name and its content: <|message|>."},
		{Name: "channel.close", Kind: Text, Doc: "Text after a channel's content: <|end|>."},
		{Name: "channel.think", Kind: Text, Doc: "Name of the channel that holds thoughts: analysis."},
		{Name: "channel.answer", Kind: Text, Doc: "Name of the channel that holds the answer: final."},
		{
			Name: "tokenizer", Kind: Text,
			Rule: "every marker text must be whole tokens of it, and agree with ids that are given too, unless the parser is granite or anthropic",
			Doc:  "Path of the model's tokenizer.json, relative to this file. Marker texts are resolved to ids in it; a miss is an error.",
		},
		{
			Name: "reasoning_parser", Kind: Enum,
			Choices: []Choice{{Name: "deepseek_r1"}, {Name: "qwen3"}, {Name: "glm45"}, {Name: "gpt_oss"}, {Name: "granite"}, {Name: "anthropic"}},
			Rule:    "anthropic and granite take texts, gpt_oss takes a channel",
			Doc: "Which family's habits the markers follow: with deepseek_r1 a stream without a start marker is a thought, with granite and anthropic texts are " +
				"looked for whatever tokens spell them, with gpt_oss a thought ends where a message opens in another channel.",
		},
		{
			Name: "supports_think_disable", Kind: Bool, Default: false,
			Doc: "Whether the model honours /no_think; such a request is output from its first token. The directive is found with tokenizer.",
		},
		{
			Name: "split_thoughts", Kind: Enum, Default: Auto,
			Choices: []Choice{{Name: Auto}, {Name: "marked"}, {Name: "opened"}, {Name: "off"}},
			Doc: "How the gateway splits answers whose engine leaves thoughts in the text; it looks for think_start_texts and think_end_texts. \"marked\": what begins with a start marker is a thought. " +
				"\"opened\": so is what has none, up to an end marker, since the chat template wrote the start into the prompt. \"auto\" is opened with the parser deepseek_r1, else marked. " +
				"Engines that split by themselves are not touched.",
			Tune: "\"opened\" for models whose template begins the thought (Qwen3-Thinking-2507); an answer of theirs that does not think at all would then be shown as a thought.",
		},
		{
			Name: "think_limit", Kind: Enum, Default: None,
			Choices: []Choice{{Name: None}, {Name: "thinking_token_budget"}, {Name: "vllm_xargs"}},
			Doc: "How the gateway tells vLLM how many tokens a thought of a request may have, where the client did not in that member: vLLM's own thinking_token_budget, or " +
				"meridian_max_think_tokens in vllm_xargs, which Meridian's logits processor reads. Reference engines are told in max_think_tokens, whatever stands here.",
			Tune: "A vLLM without --reasoning-parser or --reasoning-config refuses requests with thinking_token_budget.",
		},
		{
			Name: "source", Kind: Text,
			Doc: "Where the ids or texts were read.",
		},
	},
}

var agent = Section{
	Name: "agent",
	Doc:  "The transfer agent of this host.",
	Fields: []Field{
		{
			Name: "name", Kind: Text, Default: Auto,
			Doc:  "Name of the agent, unique in its cell. \"auto\" is the host's name.",
			Tune: "Name it when one host runs several.",
		},
		{
			Name: "fabrics", Kind: Enums, Default: []string{"host", "file", "tcp"},
			Choices: []Choice{{Name: "host"}, {Name: "file"}, {Name: "tcp"}},
			Doc: "Ways to move bytes, the preferred one first: \"host\" between agents of one user on one machine, through shared memory; " +
				"\"file\" between the agent's own memory and its own files; \"tcp\" between any two. " +
				"A transfer takes the first that reaches the memory on both sides.",
			Tune: "Leave one out to do without it. Without \"tcp\" an agent reaches no other machine, and none finds it by the directory.",
		},
		{
			Name: "listen", Kind: Listen, Default: "127.0.0.1:0",
			Doc:  "Address of the data plane; port 0 takes any that is free.",
			Tune: "Bind to the address by which other hosts reach this one to serve them; that needs TLS, or agent.insecure.",
		},
		{
			Name: "advertise", Kind: Text, Default: Auto,
			Doc:  "Host, or host:port, by which others reach agent.listen. \"auto\" is the host of agent.listen.",
			Tune: "Name it when agent.listen is 0.0.0.0 or behind a forwarded port.",
		},
		{
			Name: "insecure", Kind: Bool, Default: false,
			Doc: "Allow addresses beyond loopback without TLS, for the data plane, a directory and an S3 server. Agents then still prove to each other that " +
				"they know the cell's key, but a host on the way can read and change everything that follows.",
			Tune: "Only on a network that is yours alone; every start warns.",
		},
		{
			Name: "streams", Kind: Int, Default: int64(0), Unit: "TCP streams per peer", Range: atLeast(0).atMost(64),
			Doc:  "Connections over which a large transfer is spread. 0 is one per core, at most 8.",
			Tune: "More streams help where one cannot fill the link.",
		},
		{
			Name: "max_strangers", Kind: Int, Default: int64(256), Unit: "connections", Range: atLeast(1).atMost(65536),
			Doc:  "Connections to the data plane that have not yet said and proven who they are. More than these are closed at once.",
			Tune: "Raise it when many agents start at the same moment and are turned away; each costs a few KiB.",
		},
		{
			Name: "handshake_timeout_ms", Kind: Int, Default: int64(5000), Unit: "ms", Range: atLeast(100).atMost(60000),
			Doc:  "Time a new connection may take to say and prove who it is, in either direction.",
			Tune: "Raise it only where hosts are far apart or very busy; strangers may occupy their places for as long.",
		},
		{
			Name: "max_grants", Kind: Int, Default: int64(65536), Unit: "grants", Range: atLeast(1).atMost(1 << 24),
			Doc:  "Grants that may hold at a time. Beyond it a new one is refused; expired ones make room.",
			Tune: "One per request and direction is usual; each remembers its spans.",
		},
		{
			Name: "state_dir", Kind: Text, Default: Auto,
			Doc: "Where sockets and the embedded directory live; it belongs to one user. \"auto\" is ~/.local/state/meridian.",
		},
	},
}

var tls = Section{
	Name: "tls",
	Doc:  "Who an agent is between hosts: TLS 1.3 with certificates on both sides. docs/security-setup.md shows how.",
	Fields: []Field{
		{
			Name: "mode", Kind: Enum, Default: "auto",
			Choices: []Choice{{Name: "auto"}, {Name: "off"}, {Name: "required"}},
			Doc: "\"auto\" takes TLS when the agent has a certificate, else the cell's key, which is for one machine; " +
				"\"required\" does not start without a certificate; \"off\" never looks for one. It holds for links over tcp.",
			Tune: "Set it to \"required\" where hosts talk to each other, so that a certificate that is lost is noticed.",
		},
		{
			Name: "ca", Kind: Text, Default: Auto,
			Doc:  "Certificates of the CAs that are trusted, in PEM. \"auto\" is tls/ca.crt in agent.state_dir.",
			Tune: "Name your own PKI's.",
		},
		{
			Name: "cert", Kind: Text, Default: Auto,
			Rule: "tls.cert and tls.key: both or none",
			Doc:  "The agent's certificate, in PEM, followed by intermediates. \"auto\" is what `meridian cert issue NAME` made in agent.state_dir: tls/agent-NAME.crt.",
			Tune: "It is read again when it changes; nothing needs to be restarted.",
		},
		{
			Name: "key", Kind: Text, Default: Auto,
			Doc: "The private key of tls.cert, in PEM, which others than its owner and group cannot read. \"auto\" is tls/agent-NAME.key.",
		},
	},
}

var directory = Section{
	Name: "directory",
	Doc:  "Where agents are found.",
	Fields: []Field{
		{
			Name: "endpoint", Kind: Text, Default: Auto,
			Doc:  "Address of the directory: unix:///path, http://host:port or https://host:port of an etcd; several with commas between. \"auto\" is the socket of `meridian directory` in agent.state_dir.",
			Tune: "Name your own etcd, or a `meridian directory` on one of the hosts, when the cell spans hosts; https needs a certificate, see tls.",
		},
		{
			Name: "prefix", Kind: Text, Default: "meridian",
			Doc:  "What all keys of the cell begin with: segments of letters, digits and -._~:@%+= joined by slashes.",
			Tune: "Give each of several cells in one etcd its own. Every process of a cell has the same, or they do not find each other.",
		},
	},
}

var store = Section{
	Name: "store",
	Doc:  "The object cache of the cell: what an agent keeps of it. docs/store.md tells what it is.",
	Fields: append([]Field{
		{
			Name: "enabled", Kind: Bool, Default: false,
			Doc:  "Whether `meridian agent` takes part in the object cache. `meridian store` does in any case.",
			Tune: "Turn it on for the hosts whose memory is to keep objects, or whose engines use them.",
		},
		{
			Name: "bytes", Kind: Int, Default: int64(1 << 30), Unit: "bytes", Range: atLeast(0).atMost(1 << 46),
			Doc:  "Memory for objects and their headers, at least 1 MiB; it is taken as it is used. 0 keeps nothing: the agent is a client.",
			Tune: "As much as the host can spare: what does not fit is evicted, and computed again by the engine that needs it.",
		},
		{
			Name: "page_bytes", Kind: Int, Default: int64(256 << 10), Unit: "bytes", Range: atLeast(4096).atMost(1 << 30),
			Doc:  "Page of objects whose writer names none: the unit in which programs write them, as headers say.",
			Tune: "That of the engine's own pages, so that each is one object or a whole number of pages.",
		},
		{
			Name: "master", Kind: Bool, Default: true,
			Doc:  "Whether this agent may become the master, who knows which owner has a key. Without one nothing can be stored.",
			Tune: "Leave it on for at least two agents of a cell, so that another takes over when the master is lost.",
		},
		{
			Name: "policy", Kind: Enum, Default: "lru",
			Choices: []Choice{{Name: "lru"}, {Name: "fifo"}, {Name: "priority"}},
			Doc:     "Which objects leave first: those asked for least recently, those that came first, or those of the lowest priority. Pinned ones stay, and so does what is being read.",
		},
		{
			Name: "high_watermark", Kind: Int, Default: int64(95), Unit: "% of the heap", Range: atLeast(2).atMost(100),
			Rule: "> store.low_watermark",
			Doc:  "Above it objects are evicted.",
			Tune: "Lower it when puts find no room (meridian_store_out_of_memory_total).",
		},
		{
			Name: "low_watermark", Kind: Int, Default: int64(85), Unit: "% of the heap", Range: atLeast(1).atMost(99),
			Rule: "< store.high_watermark",
			Doc:  "Eviction goes on until no more than this is used.",
		},
		{
			Name: "tenant_quota", Kind: Int, Default: int64(100), Unit: "% of the heap", Range: atLeast(1).atMost(100),
			Doc:  "The most that one tenant may have of this agent's memory: of what engines keep, the tenant of an API key (gateway.api_key_file), or an engine; of what programs put, a name that they give. Beyond it its own objects leave for its new ones. Without it a tenant may have what others do not want: when room is needed, the tenant that is most above its fair share loses.",
			Tune: "Lower it where one tenant must never fill the cache, even while no other wants the room. The tenants beyond the 254th count as one.",
		},
		{
			Name: "write_timeout_ms", Kind: Int, Default: int64(30000), Unit: "ms", Range: atLeast(100).atMost(3600000),
			Doc:  "Longest that the writer of an object may take. Then its room is taken back, as that of a writer that died.",
			Tune: "Raise it when large objects come over slow links (meridian_store_reclaims_total).",
		},
		{
			Name: "direct_map", Kind: Bool, Default: false,
			Doc:  "Whether programs of the agent's own user may map the memory that it keeps objects in, to read and to write it (docs/store-layout.md). It serves none that does not match its sums, and believes such programs in nothing; but they can read and break what others stored.",
			Tune: "Turn it on for producers on the host that are trusted with every object.",
		},
		{
			Name: "tenant", Kind: Text, Default: None,
			Doc: "Whose keys are meant where a request names no tenant; \"none\" is no tenant's. Tenants cannot name each other's keys.",
		},
		{
			Name: "block_tokens", Kind: Int, Default: int64(64), Unit: "tokens", Range: atLeast(1).atMost(65536),
			Doc:  "Prefixes that engines keep are kept in pieces of this many tokens, each an object; where an engine's cache is packed, its own block counts. Agents find only what was kept with the same.",
			Tune: "Raise it for models whose tokens take few bytes, lower it where prompts share short prefixes. Every agent of a cell has the same.",
		},
		{
			Name: "replicas", Kind: Int, Default: int64(1), Unit: "copies", Range: atLeast(1).atMost(8),
			Doc:  "How many copies there are of prefixes that are found often, each at another owner: one that is lost loses none of them then. Copies take room that nothing else wants, and leave first.",
			Tune: "2 where several hosts have owners and prompts share prefixes. Every agent of a cell has the same.",
		},
		{
			Name: "find_wait_us", Kind: Int, Default: int64(300), Unit: "µs", Range: atLeast(0).atMost(1000000),
			Doc:  "How long an engine's scheduler stands still for the answer to whether a prompt's prefix is kept. Later it goes on with other requests until the answer comes. A server of vLLM that has no others waits up to 5 ms: an empty step would take as long.",
			Tune: "Lower it when steps get longer, raise it when requests wait for a step before they begin.",
		},
		{
			Name: "find_timeout_ms", Kind: Int, Default: int64(500), Unit: "ms", Range: atLeast(1).atMost(1000),
			Doc:  "How long a prefix is looked for at most. Later it counts as not kept, and is computed.",
			Tune: "Lower it where engines compute faster than that. Owners look at every byte of a run before they grant it: long runs of large models need time.",
		},
		{
			Name: "keep_bytes_in_flight", Kind: Int, Default: int64(256 << 20), Unit: "bytes", Range: atLeast(0).atMost(1 << 40),
			Doc:  "How many bytes of prefixes this agent's engines may have on their way to be kept. What is beyond it waits; a long prefix goes piece after piece, each a quarter of this at most. 0 keeps none.",
			Tune: "Lower it where keeping takes bandwidth from hand-offs. It must have room for one piece (store.block_tokens) of the largest model.",
		},
	}, storeTiers...),
}

var telemetry = Section{
	Name: "telemetry",
	Doc:  "Numbers for operators.",
	Fields: []Field{
		{
			Name: "prometheus_listen", Kind: Listen, Default: "127.0.0.1:9464",
			Doc:  "Address of the Prometheus endpoint /metrics. Empty turns it off.",
			Tune: "Bind beyond loopback only where the network is yours: the endpoint has no authentication.",
		},
		{
			Name: "otlp_enabled", Kind: Bool, Default: false,
			Doc:  "Whether metrics and traces are also sent to an OpenTelemetry collector over OTLP/HTTP.",
			Tune: "Off by default: nothing leaves the machine unasked.",
		},
		{
			Name: "otlp_endpoint", Kind: Endpoint, Default: "http://127.0.0.1:4318",
			Doc:  "Base URL of the collector; /v1/metrics and /v1/traces are appended.",
			Tune: "Use https beyond loopback.",
		},
		{
			Name: "trace_fraction", Kind: Float, Default: 0.01, Unit: "of requests", Range: atLeast(0).atMost(1),
			Doc:  "How many of the requests whose client does not say are traced, while telemetry.otlp_enabled is true. A client that sends traceparent decides for its own.",
			Tune: "1 while looking for something; builds without this field refuse requests that are traced: upgrade agents before gateways.",
		},
	},
}

var logging = Section{
	Name: "logging",
	Doc:  "What is written to standard error.",
	Fields: []Field{
		{
			Name: "level", Kind: Enum, Default: "info",
			Choices: []Choice{{Name: "debug"}, {Name: "info"}, {Name: "warn"}, {Name: "error"}},
			Doc:     "The least serious message that is still written.",
			Tune:    "debug adds what was coped with: a link that was lost, an offer that was not taken.",
		},
		{
			Name: "format", Kind: Enum, Default: "text",
			Choices: []Choice{{Name: "text"}, {Name: "json"}},
			Doc:     "text for people, json for machines.",
		},
	},
}
