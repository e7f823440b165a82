package config

var door = Section{
	Name: "door",
	Doc:  "The engine door: the socket by which engines of this host lend their memory to the agent.",
	Fields: []Field{
		{
			Name: "allow_uids", Kind: UserIDs, Default: []uint32{},
			Doc: "User ids, besides the agent's own, whose processes may open the door. With any here the socket is open to all users of the host, " +
				"and the kernel's word on who connects decides; without, only the agent's own user reaches it.",
			Tune: "Name the user that engines run as, where it is not the agent's.",
		},
		{
			Name: "require_leg", Kind: Bool, Default: false,
			Doc: "Whether an engine may hand over and take over only what a gateway of this cell has asked for, sealed with the cell's key.",
			Tune: "Set it to true where all requests come through the gateway: clients that reach an engine by themselves then cannot make it " +
				"take or give another request's cache.",
		},
		{
			Name: "require_cache_leg", Kind: Bool, Default: false,
			Doc: "Whether an engine may keep in the shared cache, and find there, only for requests that a gateway of this cell has sent it, sealed with the cell's key. " +
				"What comes without that seal, where it may, takes the share of its engine.",
			Tune: "Set it to true where all requests come through the gateway: clients that reach an engine by themselves then neither keep nor find anything. " +
				"Engines that the gateway finds in the directory have a seal for each request and hand it on; one whose software is older than that, or that is listed in gateway.backend, keeps and finds less, or nothing.",
		},
	},
}

var gateway = Section{
	Name: "gateway",
	Doc:  "The user door: an HTTP server that speaks the OpenAI API. docs/gateway.md tells how it behaves.",
	Fields: []Field{
		{
			Name: "listen", Kind: Listen, Default: "127.0.0.1:8080",
			Doc:  "Address for clients; port 0 takes any that is free.",
			Tune: "Beyond loopback it needs gateway.tls_cert and gateway.tls_key, or gateway.insecure.",
		},
		{
			Name: "admin_listen", Kind: Listen, Default: "127.0.0.1:0",
			Doc:  "Address of the page about the cell, metrics, health detail and debug pages. Empty turns it off.",
			Tune: "Give it a port that your metrics collector knows. Beyond loopback it needs gateway.tls_cert, gateway.tls_key and gateway.admin_key_file.",
		},
		{
			Name: "admin_key_file", Kind: Text, Default: None,
			Doc: "File of keys for gateway.admin_listen, one a line, each of at least 16 bytes; lines that start with # are comments. Scripts send one as Authorization: Bearer KEY, " +
				"browsers as the password of any name. \"none\" lets in all that reach the listener, which is at loopback then.",
			Tune: "Keep it readable for the gateway's user alone, and apart from gateway.api_key_file: clients have no business there. SIGHUP reads it again.",
		},
		{
			Name: "metrics_listen", Kind: Listen, Default: "",
			Doc:  "A second address for /metrics alone, which may be beyond loopback; empty for none: then metrics are at gateway.admin_listen only.",
			Tune: "Set it where Prometheus runs on another host. Bind beyond loopback only where the network is yours: the endpoint has no authentication.",
		},
		{
			Name: "insecure", Kind: Bool, Default: false,
			Doc:  "Allow gateway.listen beyond loopback without TLS: a host on the way can read prompts, answers and API keys.",
			Tune: "Only behind something that has TLS; every start warns.",
		},
		{
			Name: "tls_cert", Kind: Text, Default: None,
			Rule: "gateway.tls_cert and gateway.tls_key: both or none",
			Doc:  "Certificate that clients see, in PEM, followed by intermediates. It is read again when it changes.",
			Tune: "Any certificate that your clients trust; it is not the agents' (tls.cert).",
		},
		{
			Name: "tls_key", Kind: Text, Default: None,
			Doc: "The private key of gateway.tls_cert, in PEM.",
		},
		{
			Name: "api_key_file", Kind: Text, Default: None,
			Doc: "File of API keys, one a line; lines that start with # are comments. Clients send one as Authorization: Bearer KEY. Behind a key, after a space, may stand the name of the tenant whose it is: one word of at most 64 bytes. " +
				"Keys of one tenant have one share of the shared cache; a key without a name is a tenant of its own. \"none\" lets everybody in.",
			Tune: "Keep it readable for the gateway's user alone.",
		},
		{
			Name: "proxy_paths", Kind: Paths,
			Default: []string{
				"/tokenize", "/detokenize", "/version", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
				"/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
			},
			Doc: "Endpoints that the gateway does not know itself and passes on to an engine that decodes, GET and POST, request and answer as they are. " +
				"Everything else is refused.",
			Tune: "Add what leaves nothing behind at the engine; what changes an engine (/sleep, /reset_prefix_cache) would change one, and be open to every client.",
		},
		{
			Name: "resume", Kind: Bool, Default: true,
			Doc:  "Whether a stream whose engine is lost goes on with another one, where that gives exactly the same tokens.",
			Tune: "Turn it off to see losses, or to save engines from telling token ids.",
		},
		{
			Name: "move_at_think_end", Kind: Bool, Default: false,
			Doc: "Whether a stream of a reference engine whose thought has ended leaves for a decode engine that runs fewer requests, with its cache. " +
				"Streams of an engine that drains leave in any case, where gateway.resume is on.",
			Tune: "Turn it on where thoughts are long and decode engines are loaded unevenly: answers, which users read, get the engines with the most room.",
		},
		{
			Name: "move_for_balance", Kind: Bool, Default: true,
			Doc: "Whether streams of a reference engine that has much more to do than another leave for it, with their cache: one engine has had four requests more, and a quarter of what it has, for two seconds. " +
				"At most two are on their way, none leaves within five seconds of coming or more than twice, and only where what it gains is worth the move.",
			Tune: "Turn it off to have every answer end where it began, as for measurements.",
		},
		{
			Name: "warm_next_turn", Kind: Bool, Default: false,
			Doc: "Whether idle engines compute what the next turn of a chat will begin with, after an answer that had a thought: its messages and the answer without the thought, " +
				"as chat templates write them that strip thoughts. The cell keeps it, where prefixes are kept. Requests come first: what is computed ahead is given up for them.",
			Tune: "Turn it on for models that think, where users take turns; leave it off where templates keep thoughts, or chats have one turn: every answer is computed once more then, and not used.",
		},
		{
			Name: "effort.minimal", Kind: Float, Default: 0.1, Unit: "of scheduler.max_think_tokens", Range: atLeast(0).atMost(1),
			Doc:  "How long a thought may be of a request that says reasoning_effort: minimal. With none it may have no token; who says nothing gets what the engine gives.",
			Tune: "Lower it when short thoughts are wanted and models do not stop by themselves.",
		},
		{
			Name: "effort.low", Kind: Float, Default: 0.2, Unit: "of scheduler.max_think_tokens", Range: atLeast(0).atMost(1),
			Doc: "The same for reasoning_effort: low.",
		},
		{
			Name: "effort.medium", Kind: Float, Default: 0.5, Unit: "of scheduler.max_think_tokens", Range: atLeast(0).atMost(1),
			Doc: "The same for reasoning_effort: medium.",
		},
		{
			Name: "effort.high", Kind: Float, Default: 0.8, Unit: "of scheduler.max_think_tokens", Range: atLeast(0).atMost(1),
			Doc: "The same for reasoning_effort: high.",
		},
		{
			Name: "effort.xhigh", Kind: Float, Default: 1.0, Unit: "of scheduler.max_think_tokens", Range: atLeast(0).atMost(1),
			Doc: "The same for reasoning_effort: xhigh, and for max.",
		},
		{
			Name: "direct_prompt_tokens", Kind: Int, Default: int64(256), Unit: "tokens", Range: atLeast(0),
			Doc:  "A prompt of which the decode engine lacks no more tokens than this is computed there, without a prefill engine and without a hand-off.",
			Tune: "Raise it while TTFT of short prompts is mostly hand-off; lower it when prompts delay the tokens of others.",
		},
		{
			Name: "promise_tokens", Kind: Int, Default: int64(4096), Unit: "tokens", Range: atLeast(0),
			Doc: "Where no more tokens of prompts wait at a prefill engine than this, with the request's own, the decode engine is asked at the same time, " +
				"promised the cache that the prefill engine is to offer. 0 always waits for the prefill engine's answer first.",
			Tune: "Lower it when blocks of decode engines are scarce: they are kept while the prompt is computed. Raise it with faster prefill engines.",
		},
		{
			Name: "prefix_affinity", Kind: Float, Default: 1.0, Unit: "tokens waited per token cached", Range: atLeast(0).atMost(1000),
			Doc:  "How much work waiting at an engine is outweighed by what it already holds of a prompt. 0 ignores caches.",
			Tune: "Lower it when one engine gets most of the requests because it has their common beginning.",
		},
		{
			Name: "stored_token_weight", Kind: Float, Default: 0.25, Unit: "tokens computed per token fetched", Range: atLeast(0).atMost(1),
			Doc: "What a token of a prompt counts in placement that an engine does not hold and can fetch from the cell's object cache, against one that it must compute. " +
				"It is assumed of an engine until its answers have told how long it takes to fetch and to compute, which reference engines do; /debug/engines shows what came of it. " +
				"A prompt of which no more than gateway.direct_prompt_tokens are neither held nor kept in the cell goes straight to decode. 1 leaves the object cache out of placement.",
			Tune: "For engines that do not tell, as vLLM: as long as a token takes to be fetched, divided by how long it takes to be computed: lower with large models and fast networks, 1 where prompts are computed as fast as they come. " +
				"meridian bench cache prints it for the reference engine.",
		},
		{
			Name: "max_body_bytes", Kind: Int, Default: int64(8 << 20), Unit: "bytes", Range: atLeast(1024).atMost(1 << 30),
			Doc: "Largest request that is read; beyond it the answer is 413.",
		},
		{
			Name: "max_body_memory_bytes", Kind: Int, Default: int64(512 << 20), Unit: "bytes", Range: atLeast(1024).atMost(1 << 40),
			Doc:  "Memory for the bodies of all requests that are read, wait or run; beyond it the answer is 429 with Retry-After. The largest body always fits.",
			Tune: "A few times gateway.max_running times the size of a usual request. Each leg to an engine takes its body once more.",
		},
		{
			Name: "max_running", Kind: Int, Default: int64(1024), Unit: "requests", Range: atLeast(1).atMost(1 << 20),
			Doc:  "Requests that run at a time; more wait.",
			Tune: "As many as all decode engines together run well, and some more to keep them busy.",
		},
		{
			Name: "max_waiting", Kind: Int, Default: int64(1024), Unit: "requests", Range: atLeast(0).atMost(1 << 20),
			Doc: "Requests that may wait for their turn; beyond it the answer is 429 with Retry-After. As many may be sent to the gateway at a time as may run and wait.",
		},
		{
			Name: "max_connections", Kind: Int, Default: int64(0), Unit: "connections", Range: atLeast(0).atMost(1 << 20),
			Doc: "Connections of clients at a time; where all are taken, one without a request makes room, or the newcomer gets 503 with Retry-After. " +
				"0 takes twice as many as requests may run and wait, as far as the limit of open files allows.",
			Tune: "Where it falls short, see the limit of open files (`ulimit -n`) first: each connection takes one, each request that runs up to two more.",
		},
		{
			Name: "queue_timeout_ms", Kind: Int, Default: int64(30_000), Unit: "ms", Range: atLeast(1).atMost(3_600_000),
			Doc: "How long a request waits for its turn; then the answer is 429 with Retry-After.",
		},
		{
			Name: "client_timeout_ms", Kind: Int, Default: int64(10_000), Unit: "ms", Range: atLeast(100).atMost(3_600_000),
			Doc: "How long a client may take to read each piece of its answer. One that is slower is given up, and its engine freed.",
		},
		{
			Name: "prefill_timeout_ms", Kind: Int, Default: int64(120_000), Unit: "ms", Range: atLeast(100).atMost(3_600_000),
			Doc:  "How long a prefill engine may take for a prompt before another one is asked.",
			Tune: "Longer than your longest prompt takes on a busy engine.",
		},
		{
			Name: "first_token_timeout_ms", Kind: Int, Default: int64(120_000), Unit: "ms", Range: atLeast(100).atMost(3_600_000),
			Doc: "How long a decode engine may take to the first sign of life of a stream.",
		},
		{
			Name: "answer_timeout_ms", Kind: Int, Default: int64(600_000), Unit: "ms", Range: atLeast(100).atMost(86_400_000),
			Doc:  "How long a decode engine may take for a whole answer that is not streamed.",
			Tune: "Longer than your longest answer takes on a busy engine.",
		},
		{
			Name: "stall_timeout_ms", Kind: Int, Default: int64(30_000), Unit: "ms", Range: atLeast(100).atMost(3_600_000),
			Doc: "How long a stream may stand still before its engine is taken for lost.",
		},
	},
}

var gatewayBackend = Section{
	Name:   "gateway.backend",
	Listed: true,
	Doc: "An engine that the gateway knows without a directory: a table for each. Any engine that speaks the OpenAI API will do; for hand-offs it must pass on " +
		"kv_transfer_params. With one or more of these the directory is not asked.",
	Fields: []Field{
		{
			Name: "url", Kind: Endpoint,
			Rule: "must be given",
			Doc:  "Base URL of the engine, without /v1.",
		},
		{
			Name: "role", Kind: Enum, Default: "both",
			Choices: []Choice{{Name: "prefill"}, {Name: "decode"}, {Name: "both"}},
			Doc:     "What it may be asked for; one that is \"both\" plays either part, request by request.",
		},
		{
			Name: "phases", Kind: Enum, Default: "both",
			Choices: []Choice{{Name: "think"}, {Name: "answer"}, {Name: "both"}},
			Doc: "What it is meant to generate: thoughts, answers, or both. Requests prefer an engine for the phase that they are in, and streams that can move leave one for thoughts " +
				"when their thought has ended and another has room. It is no rule: where the others are much busier or gone, any engine serves.",
			Tune: "For a cell that keeps long thoughts from delaying answers.",
		},
		{
			Name: "engine", Kind: Text, Default: Auto,
			Doc: "Its engine id, as its agent knows it. \"auto\" asks the engine, and takes host:port where it does not say.",
		},
		{
			Name: "api_key_file", Kind: Text, Default: None,
			Doc:  "File with the key that the engine itself asks for, sent as Authorization: Bearer KEY. Keys of clients are never passed on.",
			Tune: "For an engine that was started with a key of its own, as vllm serve --api-key.",
		},
		{
			Name: "kv_events", Kind: Publisher, Default: Auto,
			Doc: "Where the engine publishes what its cache holds: vLLM's kv-events-config. \"auto\" asks the engine, which vLLM 0.32 answers; \"none\" does not follow it. " +
				"A host of * is the engine's.",
			Tune: "Name it for engines that publish and do not say where.",
		},
		{
			Name: "kv_events_replay", Kind: Publisher, Default: None,
			Doc:  "Where the engine can be asked for events that were missed: vLLM's replay_endpoint. Used with a kv_events that names an endpoint.",
			Tune: "Without it, what is known of a cache begins anew with every lost connection.",
		},
		{
			Name: "kv_events_ranks", Kind: Int, Default: int64(1), Unit: "ranks", Range: atLeast(1).atMost(1024),
			Doc: "How many data-parallel ranks publish, each at the next port after kv_events and kv_events_replay.",
		},
	},
}
