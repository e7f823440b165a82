package meridian

// room is one row of the house's table: what a package may lean on, and why.
// ARCHITECTURE.md draws it. A package or an arrow that is not in here fails
// TestRooms; adding one is a decision, so write down its reason.
type room struct {
	owns string
	// may names the rooms it may import, each with the reason.
	may map[string]string
	// uses names the modules of others it may import, each with the reason.
	uses map[string]string
	// pure rooms compute: no clock, no I/O, no goroutines, no randomness.
	pure bool
	// tests may import more than the room itself.
	testsMay []string
}

const (
	golden   = "internal/golden"
	required = "internal/require"
	mutants  = "internal/mutant"
	joins    = "internal/join"
	clips    = "internal/clip"
	fields   = "internal/fields"
)

var rooms = map[string]room{
	"kv": {
		owns: "the nouns: geometry, layout, parallelism, block keys, tiers, phases",
		uses: map[string]string{"github.com/zeebo/blake3": "block keys are BLAKE3-256"},
		pure: true,
	},
	"phase": {
		owns: "in which phase a sequence is, token by token, and the sequences of one engine",
		may:  map[string]string{"kv": "phases"},
		pure: true,
	},
	"reshard": {
		owns: "plans: who sends which bytes to whom when a cache changes its cut",
		may:  map[string]string{"kv": "geometries, parallelisms, layouts"},
		uses: map[string]string{"github.com/zeebo/blake3": "the digest that both sides compare"},
		pure: true,
	},
	"checksum": {
		owns: "the checksum of KV bytes, in segments that can be hashed in parallel",
		uses: map[string]string{"github.com/zeebo/xxh3": "the hash of a segment, and of the sums"},
		pure: true,
	},
	"store": {
		owns: "the object cache of a cell: its client, and the shell of owners and of the master",
		may: map[string]string{
			"agent": "what moves bytes and carries messages", "checksum": "readers check what they got", "fabric": "operations, lists, errors", "kv": "instants, ids",
			"mem": "arenas, landings", "meta": "owners and marks", "meta/election": "who is the master", joins: "closing waits for what was started",
			"store/arena": "the memory of an owner", "store/extent": "room in the landing", "store/master": "the master it runs",
			"store/admission": "what tiers are given, and what is fetched ahead", "store/tier": "where objects go that leave memory", "store/owner": "the objects it keeps", "store/protocol": "the machines it feeds",
		},
		testsMay: []string{"fabric/host", "fabric/inproc", "fabric/tcp", "store/disk", "store/tier/tiertest", "meta/memdir", "trust"},
	},
	"store/payload": {
		owns: "the fabric of the Meridian book: whole payloads through a handle, as MRDN frames in the object cache",
		may:  map[string]string{"kv": "tiers", "mrdn": "frames", "store": "where they are kept"},
	},
	"store/producer": {
		owns: "puts of programs that map an agent's arena: without a question where there is room, else by its door",
		may: map[string]string{
			"door": "the mapping, and puts that need the owner", "store/arena": "the memory", "store/protocol": "how objects are named",
		},
		uses: map[string]string{"golang.org/x/sys/unix": "mapping"},
	},
	"store/extent": {
		owns: "which bytes of an arena are free, taken, or taken by others without a word yet",
		pure: true,
	},
	"store/arena": {
		owns:     "the memory of an object cache: headers, extents, free lists and the ring, a stable layout",
		may:      map[string]string{"checksum": "the sums of segments", "store/extent": "the granule of extents"},
		uses:     map[string]string{"github.com/zeebo/xxh3": "the hash of keys"},
		testsMay: []string{golden, required, "store/owner", "store/protocol"},
	},
	"store/master": {
		owns: "who owns a key: the conversation between a master and the owners, both sides",
		may:  map[string]string{"kv": "incarnations"},
		pure: true,
	},
	"store/protocol": {
		owns: "what clients, owners and the master of an object cache say, and the machines of all three",
		may: map[string]string{
			clips: "what peers wrote", fields: "messages", "kv": "instants, ids", "store/arena": "names and their hashes",
			"store/master": "leases and claims", "store/owner": "objects",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "where a key belongs"},
		testsMay: []string{golden},
		pure:     true,
	},
	"store/owner": {
		owns: "the truth about one arena: its objects, their readers, who leaves when room is needed",
		may: map[string]string{
			"kv":           "instants",
			"store/arena":  "the memory that others read and write",
			"store/extent": "what of it is free",
		},
		pure: true,
	},
	"store/tier": {
		owns: "what the object cache asks of the places that keep objects outside of memory",
	},
	"store/tier/tiertest": {
		owns: "tests: the suite that every tier passes",
		may:  map[string]string{"store/tier": "what is tested"},
	},
	"store/record": {
		owns: "an object at rest: one MRDN frame with key and header in its body",
		may:  map[string]string{"checksum": "the sum of a payload", "kv": "the tier of a frame", "mrdn": "frames"},
		uses: map[string]string{"github.com/zeebo/xxh3": "the sum of what comes before a payload, and the hash of keys"},
	},
	"store/admission": {
		owns: "what colder tiers are given and asked: a sketch of uses, what is fetched ahead, budgets, when one is left alone",
		may:  map[string]string{"kv": "instants"},
		pure: true,
	},
	"store/disk": {
		owns: "a tier in files of one folder: segments of records, an index that is made from them",
		may: map[string]string{
			"kv": "instants", joins: "closing waits for the writer", "store/admission": "when a disk is left alone", "store/record": "what lies in segments", "store/tier": "what it is",
		},
		uses:     map[string]string{"golang.org/x/sys/unix": "direct I/O, locks"},
		testsMay: []string{required, "store/tier/tiertest"},
	},
	"store/s3": {
		owns: "a tier in a bucket of an S3 server: segments of records, and an index of each",
		may: map[string]string{
			"kv": "instants, the tier of a frame", joins: "closing waits for uploads", "mrdn": "indexes are frames", "store/admission": "budgets, when a server is left alone",
			"store/record": "what lies in segments", "store/tier": "what it is",
		},
		uses:     map[string]string{"github.com/minio/minio-go/v7": "requests to S3, and their signatures"},
		testsMay: []string{required, "store/tier/tiertest"},
	},
	"store/storesim": {
		owns: "the seeded world of the object cache: clients, owners, masters, arenas, network, trouble, checkers",
		may: map[string]string{
			"checksum": "what readers check", "kv": "instants, ids", "store/admission": "what is simulated of tiers", "store/arena": "memory, and producers", "store/master": "what is simulated",
			"store/owner": "what is simulated", "store/protocol": "what is simulated",
		},
		uses:     map[string]string{"github.com/anishathalye/porcupine": "judges the history of each key"},
		testsMay: []string{mutants},
	},
	"cuda": {
		owns: "the GPUs of this machine through CUDA's driver: memory, imports, streams, kernels that move and sum",
		uses: map[string]string{"github.com/ebitengine/purego": "calls libcuda without cgo, under the tag accel alone"},

		testsMay: []string{"checksum", "cuda/cudatest", required},
	},
	"cuda/cudatest": {
		owns: "tests: a GPU made of host memory, and processes that share it",
		may:  map[string]string{"cuda": "whose driver it is"},
		uses: map[string]string{"github.com/zeebo/xxh3": "what the kernels compute", "golang.org/x/sys": "memory that Go does not manage"},
	},
	"mem": {
		owns: "memory that transfers touch: sections, spans, references",
		uses: map[string]string{"golang.org/x/sys": "memfd, process_vm_readv"},
	},
	"mem/vram": {
		owns:     "sections of GPU memory: our own, and what other processes lend",
		may:      map[string]string{"cuda": "devices and their memory", "mem": "sections"},
		testsMay: []string{"cuda/cudatest"},
	},
	"fabric": {
		owns: "the transfer contract: regions, links, lists, transfers",
		may:  map[string]string{"checksum": "sums of what is placed", clips: "what peers wrote", "kv": "ids", "mem": "lists are spans of sections", "mrdn": "ids and error codes"},
	},
	"fabric/session": {
		owns: "the conversation of a link as state machines without I/O",
		may:  map[string]string{"kv": "ids", "fabric": "states and errors", "mrdn": "frames"},
		pure: true,
	},
	"fabric/fabrictest": {
		owns: "the suite every fabric passes",
		may:  map[string]string{"checksum": "what sums must be", "kv": "ids", "fabric": "the contract", "mem": "sections"},
		uses: map[string]string{"go.uber.org/goleak": "no goroutine is left"},
	},
	"fabric/workers": {
		owns:     "bounded workers for fabrics that reach both sides from one process",
		may:      map[string]string{"kv": "ids", "fabric": "the contract"},
		testsMay: []string{"fabric/fabrictest", "mem"},
	},
	"fabric/inproc": {
		owns: "the fabric within one process",
		may: map[string]string{
			"kv": "ids", "fabric": "the contract", "fabric/workers": "its workers", "mem": "sections",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "checksums"},
		testsMay: []string{"fabric/fabrictest"},
	},
	"fabric/file": {
		owns: "the fabric to local disks",
		may: map[string]string{
			"kv": "ids", "fabric": "the contract", "fabric/workers": "its workers", "mem": "sections",
		},
		uses:     map[string]string{"golang.org/x/sys": "O_DIRECT, fdatasync"},
		testsMay: []string{"fabric/fabrictest", required},
	},
	"fabric/host": {
		owns: "the fabric between agents of one machine: one copy, through read-only mappings",
		may: map[string]string{
			"checksum": "sums of what is placed", "kv": "ids", "fabric": "the contract", "fabric/link": "what its stream reports to", "fabric/handshake": "who is who",
			"mem": "sections, lent", "mrdn": "frames", "trust": "the cell's key", joins: "closing waits for what was started",
			"cuda": "kernels that copy and sum", "mem/vram": "GPU memory, lent, and what moves it",
		},
		uses:     map[string]string{"golang.org/x/sys": "descriptor passing, memfds"},
		testsMay: []string{"cuda/cudatest", "fabric/fabrictest", required},
	},
	"bench": {
		owns: "what all measurements share: figures, the machine and its cores, processes",
		uses: map[string]string{"golang.org/x/sys": "pinning, and the clocks of other processes"},
	},
	"bench/transfer": {
		owns: "measurements of transfers and of hand-offs, side by side with peers",
		may: map[string]string{
			"bench": "figures, processes", "fabric": "what is measured", "fabric/tcp": "between hosts", "fabric/host": "within one",
			"fabric/inproc": "within one process", "fabric/file": "to a disk", "mem": "sections",
			"agent": "what grants cost; both ends of a hand-off", "trust": "what TLS costs", "transceiver": "hand-offs",
			"transceiver/handoff": "engines, contents and records of hand-offs", "reshard": "how engines are cut", "kv": "models and layouts",
			"node": "agents and a gateway as they run, for what being watched costs", "dash": "the page, read as a browser does", "gateway": "where it is",
			"meta/etcd/embedded": "where they meet", "telemetry": "spans, and a scrape",
		},
		testsMay: []string{required},
	},
	"bench/gpu": {
		owns: "measurements of GPU memory, beside CUDA's own copies and other libraries",
		may: map[string]string{
			"bench": "figures, processes", "cuda": "its own copies", "fabric": "what is measured", "fabric/host": "within a host", "fabric/tcp": "between hosts",
			"kv": "ids", "mem": "host memory", "mem/vram": "GPU memory",
		},
		testsMay: []string{"cuda/cudatest", required},
	},
	"bench/store": {
		owns: "measurements of the object cache, side by side with others that keep objects",
		may: map[string]string{
			"agent": "those of owners and clients", "bench": "figures, processes", "bench/deciding": "how parts are measured, each by itself",
			"bench/transfer": "a plain transfer beside it, and fabrics", "fabric": "operations", "kv": "clocks of owners", "mem": "what memcpy copies",
			"meta": "directories", "meta/etcd": "where processes meet", "meta/etcd/embedded": "the same", "store": "what is measured",
			"store/arena": "what is measured of it by itself", "store/owner": "the same",
		},
		testsMay: []string{required},
	},
	"bench/deciding": {
		owns: "measurements of the rooms that decide, beside plain ways of doing the same",
		may:  map[string]string{"bench": "figures, the machine", "block": "what is measured", "governor": "what is measured", "kv": "tiers", "phase": "what is measured", "probe": "what is measured", "replay": "what is measured", "replay/workload": "what is replayed", "sched": "what is measured, what a governor asks, and what is replayed"},
	},
	"bench/serving": {
		owns: "measurements of the gateway, of second turns, of answers that move, of policies under a mixed load, of thoughts that are ended, of steps over the door, and of hand-offs between servers of vLLM",
		may: map[string]string{
			"bench": "figures, processes", "bench/deciding": "rounds and rows of steps", "door": "what an engine tells of a step", "door/doorpb": "the same",
			"cell": "servers of vLLM, and what stands before them", "cell/talk": "chats of two turns, and what else is sent", "kv": "models", "openai": "their streams",
		},
	},
	"bench/cache": {
		owns: "measurements of the shared cache of prefixes, beside models of caches, a plain file and vLLM's own connector",
		may: map[string]string{
			"bench": "figures, processes", "bench/load": "a trace, sent", "bench/serving": "models and questions for servers of vLLM", "cell": "engines and what keeps for them", "node": "what an agent found and kept for a request", "openai": "requests, and where a cache came from",
			"replay/workload": "traces", "store/disk": "what is measured by itself", "store/tier": "its objects",
		},
		uses:     map[string]string{"golang.org/x/sys": "direct I/O of the plain file"},
		testsMay: []string{"engine/model"},
	},
	"bench/load": {
		owns: "a live endpoint under a workload, and what its clients see",
		may: map[string]string{
			"cell/talk": "which models there are, how chats are counted", clips: "what endpoints wrote", "openai": "requests and their streams",
			"replay": "the same figures", "replay/workload": "what is sent",
		},
		testsMay: []string{"bench/record", "engine", "gateway", "place"},
	},
	"bench/record": {
		owns: "the workload of a running gateway, written down",
		may:  map[string]string{"gateway": "what its admin listener answers", "ledger": "records", "replay/workload": "how requests are written"},
	},
	"fabric/link": {
		owns: "both ends of a link, over streams that carry bytes or lend memory",
		may: map[string]string{
			"kv": "ids", "fabric": "the contract", "fabric/session": "the machines it feeds", "mrdn": "frames", joins: "closing waits for what was started",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "chunk checksums"},
		testsMay: []string{"mem"},
	},
	"fabric/handshake": {
		owns: "how two agents introduce themselves, and the door where strangers wait",
		may:  map[string]string{"kv": "ids", "fabric": "errors", "mrdn": "frames", "trust": "proofs"},
	},
	"fabric/tcp": {
		owns: "the data plane between hosts",
		may: map[string]string{
			"checksum": "of every chunk", "kv": "ids", "fabric": "the contract", "fabric/link": "what its streams report to", "fabric/handshake": "who is who",
			"mem": "sections", "mrdn": "frames", "trust": "TLS, the cell's key", joins: "closing waits for what was started",
			"cuda": "kernels that gather and scatter", "mem/vram": "GPU memory, and what moves it",
		},
		uses:     map[string]string{"golang.org/x/sys": "readv, writev"},
		testsMay: []string{"cuda/cudatest", "fabric/fabrictest", required},
	},
	"meta": {
		owns:     "the directory: leased records, compare-and-swap, watches",
		testsMay: []string{"meta/metatest"},
	},
	"meta/metatest": {
		owns: "the suite every directory passes",
		may:  map[string]string{"meta": "the contract", "meta/election": "what a directory is trusted with", "kv": "candidates"},
		uses: map[string]string{"go.uber.org/goleak": "no goroutine is left"},
	},
	"meta/election": {
		owns:     "who of a cell leads, in which term, and for how long that is certain",
		may:      map[string]string{"meta": "the record and its lease", "kv": "members", joins: "closing waits for what was started"},
		testsMay: []string{"meta/memdir", "meta/metatest"},
	},
	"meta/memdir": {
		owns:     "a directory in this process, for tests and simulation",
		may:      map[string]string{"meta": "the contract"},
		testsMay: []string{"meta/metatest"},
	},
	"meta/etcd": {
		owns: "the directory in an etcd",
		may:  map[string]string{"meta": "the contract"},
		uses: map[string]string{
			"go.etcd.io/etcd": "the client", "google.golang.org/grpc": "its connection", "go.uber.org/zap": "its logger, silenced",
		},
		testsMay: []string{"meta/metatest", "meta/etcd/embedded"},
	},
	"meta/etcd/embedded": {
		owns: "an etcd of one member in a process of its own",
		may:  map[string]string{"meta": "errors", "trust": "its certificate"},
		uses: map[string]string{
			"go.etcd.io/etcd": "the server", "google.golang.org/grpc": "its listener", "go.uber.org/zap": "its logger",
			"golang.org/x/sys": "the lock on its data",
		},
	},
	"trust": {
		owns: "who a peer is: certificates, the cell's key and its proof",
		testsMay: []string{
			required, "meta", "meta/etcd", "go.etcd.io/etcd/client/pkg/v3/transport", "go.etcd.io/etcd/server/v3/embed", "go.uber.org/zap",
		},
	},
	"agent": {
		owns: "registration, metadata, requests, transfers, notifications; the choice of fabric",
		may: map[string]string{
			"kv": "ids", "fabric": "what moves the bytes", "mem": "sections", "meta": "where agents are found", joins: "closing waits for what was started",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "the checksum of a metadata blob"},
		testsMay: []string{"fabric/tcp", "meta/memdir"},
	},
	"transceiver/handoff": {
		owns: "the conversation of a hand-off as state machines without I/O: tickets, messages, holder, taker, follower",
		may:  map[string]string{clips: "what peers wrote", fields: "messages", "kv": "what a cache is of", "mrdn": "ids", "reshard": "plans and their digests"},
		uses: map[string]string{"github.com/zeebo/blake3": "seals of tickets, fingerprints of contents"},
		pure: true,

		testsMay: []string{"transceiver/handoff/handoffsim", golden, mutants},
	},
	"transceiver/handoff/handoffsim": {
		owns: "the seeded world of hand-offs: engines, memory, network, trouble, checkers",
		may: map[string]string{
			"kv": "models", "reshard": "plans", "transceiver/handoff": "what is simulated",
		},
	},
	"transceiver": {
		owns: "the hand-off of one request from its prefill ranks to its decode ranks",
		may: map[string]string{
			"agent": "what moves bytes and carries messages", "fabric": "operations, lists, errors", "kv": "token ranges", "mem": "runs",
			"reshard": "plans", "transceiver/handoff": "the machines it feeds", joins: "closing waits for what was started",
		},
		testsMay: []string{"fabric/host", "fabric/inproc", "fabric/tcp"},
	},
	"offload/keeping": {
		owns: "how caches are kept and found: keys, messages, and the conversations of who keeps and who finds",
		may: map[string]string{
			clips: "what peers wrote", fields: "messages", "kv": "block keys, geometries", "reshard": "what units look like", "transceiver/handoff": "tickets and fingerprints",
		},
		uses:     map[string]string{"github.com/zeebo/blake3": "the roots of chains, the names of tenants"},
		testsMay: []string{"store/admission"},
		pure:     true,
	},
	"offload": {
		owns: "caches of engines kept for later: hand-offs whose other party is an owner of the object cache",
		may: map[string]string{
			"agent": "what carries messages", "fabric": "notifications, clocks", "kv": "ids, members", "offload/keeping": "the machines it feeds", "reshard": "units and their places",
			"store": "where they are kept", "store/admission": "what is used often, and how much is copied", "transceiver": "hand-offs", "transceiver/handoff": "engines, contents, events", joins: "closing waits for what was started",
		},
		testsMay: []string{"fabric/host", "fabric/inproc", "fabric/tcp", "mem", "meta/memdir", "store/disk", "store/tier"},
	},
	"door": {
		owns: "the engine door as engines see it: frames, and the client",
		may:  map[string]string{"door/doorpb": "its messages", "kv": "what an engine caches", "mem": "what an engine lends", "mem/vram": "what it lends of a GPU"},
		uses: map[string]string{"golang.org/x/sys": "descriptor passing, prctl", "google.golang.org/protobuf": "messages"},
	},
	"door/doorpb": {
		owns: "the messages of the engine door, generated",
		uses: map[string]string{"google.golang.org/protobuf": "what generated code stands on"},
	},
	"doorserver": {
		owns: "the engine door's server: registrations, offers, accepts; fences on an engine's death",
		may: map[string]string{
			"agent": "what engines' memory is registered with", "door": "frames", "door/doorpb": "messages", "kv": "what caches are of",
			"cuda": "why GPU memory is refused", "mem": "lent sections", "mem/vram": "lent GPU memory", "meta": "engines' records", "reshard": "how engines are cut", "transceiver": "hand-offs",
			"transceiver/handoff": "engines, events, errors", "trust": "legs", joins: "closing waits for what was started",
		},
		uses: map[string]string{
			"golang.org/x/sys": "peer credentials, pidfds, seals", "google.golang.org/protobuf": "messages",
		},
		testsMay: []string{"block", "cuda/cudatest", "fabric", "fabric/host", "fabric/tcp", "governor", "governor/live", required, "meta/memdir"},
	},
	"dash": {
		owns:     "a page about a running cell: the page, and the events that feed it",
		testsMay: []string{"gateway", "place", required, "github.com/chromedp/cdproto/emulation", "github.com/chromedp/cdproto/network", "github.com/chromedp/chromedp"},
	},
	"inquiry": {
		owns: "questions between agents of a cell about what they remember, and the answers",
		may: map[string]string{
			"agent": "what carries messages", "fabric": "notifications", "kv": "members", joins: "closing waits for what was started",
			clips: "what peers wrote", fields: "messages",
		},
		testsMay: []string{"fabric/tcp", "meta/memdir", "trust"},
	},
	"node": {
		owns: "the fuse box: which adapters a process has",
		may: map[string]string{
			"kv": "ids", "agent": "agents", "fabric": "their fabrics", "fabric/tcp": "between hosts", "fabric/host": "within one",
			"fabric/file": "to its disks", "meta": "the directory", "offload": "what engines keep and find", "offload/keeping": "how that is named", "reshard": "how they are cut",
			"meta/etcd": "the one there is", "meta/etcd/embedded": "where it is by default", "telemetry": "metrics",
			"dash": "where operators look", clips: "what members tell",
			"door": "where its socket is", "door/doorpb": "what engines tell governors", "doorserver": "where engines come in", "governor": "reasons", "governor/live": "who decides for engines", "sched": "reasons", "mem/vram": "GPU memory that they lend", "cuda": "whether there can be any", "gateway": "where users do", "inquiry": "what agents are asked", "ledger": "records of requests", "mem": "kinds of memory",
			"store": "its part in the object cache", "store/owner": "the numbers of an owner", "store/disk": "a tier of it", "store/s3": "another", "store/tier": "what it closes", "transceiver": "hand-offs", "transceiver/handoff": "their records", "trust": "who the agent is",
		},
		testsMay: []string{"block", "cuda/cudatest", "engine", "kv", "mem", "meta/memdir", "openai", "phase", "place", "reshard", "store/producer", "token"},
	},
	"mrdn": {
		owns: "bytes on the wire: the MRDN v1 frame, the frames of a link",
		may:  map[string]string{"kv": "a frame carries a Tier"},
		uses: map[string]string{
			"github.com/zeebo/blake3": "a frame carries a BLAKE3-128 checksum", "github.com/zeebo/xxh3": "a link's frames carry a check",
		},
	},
	"token": {
		owns: "tokenizers: BPE and think markers from tokenizer.json, built-in bytes, chat templates",
		uses: map[string]string{"golang.org/x/text": "the normal forms of Unicode that tokenizers ask for"},
	},
	"config": {
		owns:     "meridian.toml: schema, defaults, strict validation",
		may:      map[string]string{"phase": "what a model's table comes down to", "token": "marker texts are resolved in a model's tokenizer"},
		uses:     map[string]string{"github.com/pelletier/go-toml": "TOML, with positions"},
		testsMay: []string{golden, "kv"},
	},
	"models": {
		owns:     "the checked table of think markers",
		testsMay: []string{"config", "phase"},
	},
	"telemetry": {
		owns: "slog, Prometheus, OpenTelemetry; the metric catalogue",
		uses: map[string]string{
			"github.com/prometheus/client_golang": "the endpoint; no other room may import it",
			"github.com/prometheus/client_model":  "series, as the endpoint encodes them: made here without a registry, at a third of the cost",
			"go.opentelemetry.io":                 "OTLP export; no other room may import it",
		},
		testsMay: []string{golden, required},
	},
	"telemetry/collectortest": {
		owns: "tests: a collector of traces that decodes OTLP",
		uses: map[string]string{"go.opentelemetry.io/proto": "what OTLP is", "google.golang.org/protobuf": "how it is read"},
	},
	"top": {
		owns: "a cell in a terminal: figures of what its processes show, and a screen of them",
		uses: map[string]string{"charm.land/bubbletea": "keys, sizes and repainting; no other room may import it"},
	},
	"doctor": {
		owns: "what this machine has and what it enables",
		uses: map[string]string{"golang.org/x/sys": "limits and kernel facts"},
	},
	"sim": {
		owns: "the seeded world: network, directory, memory, clocks, faults, checkers",
		may: map[string]string{
			"checksum": "of every chunk", "kv": "ids", "agent": "what is simulated", "fabric": "the contract that its network fulfils", "fabric/link": "both ends of its links",
			"mem": "sections", "meta": "the directory over its store", "mrdn": "frames",
			"transceiver/handoff/handoffsim": "another kind of world", "store/storesim": "and another",
		},
		testsMay: []string{mutants, "store/owner", "transceiver/handoff"},
	},
	"cell": {
		owns: "a whole cell on one machine: its processes, started in order, watched, stopped in the other",
		may:  map[string]string{"kv": "layouts of a cut"},
		uses: map[string]string{"golang.org/x/sys": "the lock that says that a cell runs"},
	},
	"cell/talk": {
		owns: "a client of the OpenAI API, for people and for the demo",
		may:  map[string]string{"openai": "requests, events, errors"},
	},
	"cell/demo": {
		owns: "a small load through a cell, compared with one engine alone, token by token",
		may: map[string]string{
			"cell/talk": "how prompts are sent", "openai": "requests", "ledger": "latency by phase, and where caches came from",
		},
	},
	"openai": {
		owns: "the OpenAI API: requests, answers, errors, the event stream",
	},
	"place": {
		owns: "which engine prefills and which decodes",
		uses: map[string]string{"github.com/zeebo/xxh3": "chains of prefixes"},
		pure: true,
	},
	"block": {
		owns: "which blocks of an engine's KV memory stay: holds, tiers, victims, copies elsewhere",
		may:  map[string]string{"kv": "tiers"},
		pure: true,
	},
	"sched": {
		owns: "who runs next: policies from a snapshot of an engine to a decision",
		may:  map[string]string{"kv": "phases"},
		pure: true,
	},
	"governor": {
		owns: "decisions for one engine from the facts of its steps",
		may: map[string]string{
			"block": "which blocks may go", "kv": "phases and tiers", "phase": "where a sequence stands", "probe": "how sure it is",
			"sched": "who runs",
		},
		pure: true,
	},
	"governor/live": {
		owns: "governors of engines that serve: one for each engine that tells of its steps",
		may: map[string]string{
			"block": "blocks", "door/doorpb": "messages", "governor": "what decides", "kv": "phases", "phase": "what a sequence wrote elsewhere", "sched": "policies",
		},
		testsMay: []string{"probe"},
		uses:     map[string]string{"google.golang.org/protobuf": "tests compare messages"},
	},
	"probe": {
		owns: "entropy of a row of logits; the estimators EAT and RPDI",
		uses: map[string]string{"golang.org/x/sys": "which instructions the processor has"},
		pure: true,
	},
	"ledger": {
		owns: "bounded records of requests, in memory and on disk; files of bounded records of any kind",
		may:  map[string]string{clips: "what clients and engines wrote"},
	},
	"kvevents": {
		owns:     "what engines publish of their caches: ZMTP, msgpack, numbers, replays",
		testsMay: []string{"kvevents/kveventstest", required},
	},
	"kvevents/kveventstest": {owns: "tests: a publisher of cache events, as vLLM's"},
	"gateway": {
		owns: "the user door: OpenAI HTTP, legs to engines, what happens when they fail, latency by phase",
		may: map[string]string{
			clips: "what engines wrote", "kvevents": "what engines hold, by their own word", "ledger": "what became of a request", "meta": "engines in the directory",
			"openai": "what it speaks", "place": "who serves", "trust": "legs are sealed",
		},
		testsMay: []string{"kvevents/kveventstest", "meta/memdir"},
	},
	"engine": {
		owns: "the reference engine: requests, step loop, sampling, streams, HTTP, its side of hand-offs",
		may: map[string]string{
			"door": "its agent", "door/doorpb": "steps and decisions", "engine/batch": "what a step computes", "engine/model": "what computes it",
			"kv": "cuts and scopes", "mem": "the arenas of its ranks", "openai": "requests and answers", "phase": "whether an answer is still a thought",
			"probe": "entropies of logits", "token": "texts",
		},
		testsMay: []string{"block", "governor", "governor/live", "reshard", "sched"},
		uses:     map[string]string{"google.golang.org/protobuf": "tests copy decisions"},
	},
	"engine/batch": {
		owns: "what a step computes: who, how much, in which blocks; the prefix cache, preemption",
		may:  map[string]string{"kv": "block keys"},
		pure: true,
	},
	"engine/model": {
		owns: "the mathematics of the reference engine: transformers over paged KV in the memory of ranks, with the same bits under every cut",
		may:  map[string]string{"kv": "geometry, cuts and layouts of KV memory", "engine/model/kernel": "dot products and their like"},

		testsMay: []string{required, "reshard"},
	},
	"engine/model/kernel": {
		owns: "loops with one order of operations in every instruction set",
		uses: map[string]string{"golang.org/x/sys": "which instructions the processor has"},
	},
	"replay": {
		owns: "engines in virtual time, under the policies and the placement that real ones have",
		may: map[string]string{
			"governor": "what ends thoughts, what steps cost", "kv": "phases and tiers", "place": "who serves", "replay/workload": "what arrives", "sched": "who runs",
		},
		testsMay: []string{"probe"},
	},
	"replay/report": {
		owns:     "what runs of a replay amount to: intervals, verdicts, tables, pictures",
		testsMay: []string{golden},
	},
	"replay/sweep": {
		owns: "replays of every policy at every load with every seed, on all cores; the search for a policy's parameters",
		may: map[string]string{
			"replay": "a run", "replay/report": "what runs amount to", "replay/workload": "requests", "sched": "policies",
		},
	},
	"replay/validation": {
		owns: "replay held to the reference engine: its profile measured, its load predicted, both side by side",
		may: map[string]string{
			"bench": "the machine, and who else uses it", "engine": "what is measured", "replay": "what predicts", "replay/workload": "requests",
			"sched": "the policy that the engine has",
		},
		testsMay: []string{"engine/batch"},
	},
	"replay/workload": {
		owns:     "which requests arrive, when, and how long they are: drawn from a seed, or read from traces",
		testsMay: []string{golden, required},
	},
	"cmd/meridian": {
		owns: "the command line",
		may: map[string]string{
			"config": "config …", "models": "config init --model", "doctor": "doctor",
			"kv": "frame encode --tier, plan --model", "reshard": "plan", "mrdn": "frame …", "telemetry": "--log-level, --log-format",
			"bench/gpu": "bench cuda", "cell": "up, down, status, logs", "dash": "where the page is", "cell/demo": "up --demo", "cell/talk": "chat", "openai": "chat", "top": "top",
			"door": "where an agent's socket is", "engine": "engine", "gateway": "gateway", "place": "gateway", "ledger": "explain",
			"bench": "bench …", "bench/cache": "bench cache", "bench/deciding": "bench phase, bench block, bench probe, bench replay, bench sched", "bench/load": "load", "bench/record": "record", "bench/serving": "bench forcing, bench gateway, bench moves, bench policies, bench step, bench turns, bench vllm", "bench/store": "bench store", "bench/transfer": "bench transfer, bench handoff", "node": "agents", "agent": "send, recv, explain", "fabric": "operations", "mem": "file sections",
			"meta": "peers", "meta/etcd/embedded": "directory", "store": "store …, explain", "store/disk": "store.disk", "store/s3": "store.s3", "store/owner": "store serve --policy", "store/payload": "store push, store pull", "store/protocol": "what is small to put", "trust": "cert …", "sim": "sim", "transceiver/handoff": "explain",
			"block": "what governors are told of memory", "governor/live": "what an agent governs by", "phase": "how models mark thoughts", "token": "where clauses end", "governor": "replay --entropy", "probe": "replay --entropy", "replay": "replay --engine", "replay/report": "replay diff", "replay/sweep": "replay, replay tune", "replay/workload": "replay --workload", "replay/validation": "replay validate", "sched": "replay --policy",
		},
		uses: map[string]string{
			"github.com/alecthomas/kong": "commands as structs",
			"golang.org/x/sys":           "whether output goes to a terminal",
			"golang.org/x/term":          "chat: lines that can be edited",
		},
		testsMay: []string{golden, required, "telemetry/collectortest"},
	},
	fields:                {owns: "the fields of messages between agents, written, and read from strangers", may: map[string]string{"kv": "ids and hashes"}, pure: true},
	clips:                 {owns: "texts that another process wrote, cut to what is kept of them", pure: true},
	joins:                 {owns: "waiting for what a room has started, as long as a context lasts"},
	golden:                {owns: "tests: committed files that code makes"},
	required:              {owns: "tests: what a machine may lack"},
	"internal/faultproxy": {owns: "tests: a bad network between two processes"},
	mutants:               {owns: "tests of tests: known bugs, and where each would be made"},
	"internal/mutant/overlay": {
		owns: "tests of tests: the known bugs for a build by hand",
		may:  map[string]string{mutants: "the bugs"},
	},
	"internal/chaos": {
		owns: "tests: agents in processes of their own, to be broken",
		may: map[string]string{
			"kv": "ids", "agent": "what a puppet is", "fabric": "operations and errors", "fabric/file": "its disk", "fabric/tcp": "its network",
			"mem": "its memory", "meta": "its directory", "meta/etcd": "the one there is", "trust": "the cell's key",
		},
		uses:     map[string]string{"golang.org/x/sys": "limits of another process"},
		testsMay: []string{"internal/faultproxy", "meta/etcd/embedded", "meta/metatest", required},
	},
	"internal/hostile": {
		owns: "tests: a peer that knows the protocol and means harm",
		may: map[string]string{
			"kv": "ids", "checksum": "bytes that pass for right", "fabric": "lists", "fabric/handshake": "how an insider comes in", "mrdn": "frames",
			"trust": "nonces",
		},
		testsMay: []string{"internal/chaos"},
	},
	"internal/storm": {
		owns:     "tests: a whole cell under load, with parts of it killed",
		may:      map[string]string{"cell/talk": "asks", "openai": "requests and errors"},
		testsMay: []string{"cell", "door", required, "store/producer", "token"},
	},
	"": {owns: "tests of the tree itself", testsMay: []string{mutants, required, golden}},
}
