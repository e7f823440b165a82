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
	"member/directory": {
		owns:     "the directory: leased records, compare-and-swap, watches",
		testsMay: []string{"member/directory/directorytest"},
	},
	"member/directory/directorytest": {
		owns: "the suite every directory passes",
		may:  map[string]string{"member/directory": "the contract", "member/directory/election": "what a directory is trusted with", "kv": "candidates"},
		uses: map[string]string{"go.uber.org/goleak": "no goroutine is left"},
	},
	"member/directory/memdir": {
		owns:     "a directory in this process, for tests and simulation",
		may:      map[string]string{"member/directory": "the contract"},
		testsMay: []string{"member/directory/directorytest"},
	},
	"member/directory/etcd": {
		owns: "the directory in an etcd",
		may:  map[string]string{"member/directory": "the contract"},
		uses: map[string]string{
			"go.etcd.io/etcd": "the client", "google.golang.org/grpc": "its connection", "go.uber.org/zap": "its logger, silenced",
		},
		testsMay: []string{"member/directory/directorytest", "member/directory/etcd/embedded"},
	},
	"member/directory/etcd/embedded": {
		owns: "an etcd of one member in a process of its own",
		may:  map[string]string{"member/directory": "errors", "member/trust": "its certificate"},
		uses: map[string]string{
			"go.etcd.io/etcd": "the server", "google.golang.org/grpc": "its listener", "go.uber.org/zap": "its logger",
			"golang.org/x/sys": "the lock on its data",
		},
	},
	"member/directory/election": {
		owns:     "who of a cell leads, in which term, and for how long that is certain",
		may:      map[string]string{"member/directory": "the record and its lease", "kv": "members", joins: "closing waits for what was started"},
		testsMay: []string{"member/directory/memdir", "member/directory/directorytest"},
	},
	"member/trust": {
		owns: "who a peer is: certificates, the cell's key and its proof",
		testsMay: []string{
			required, "member/directory", "member/directory/etcd", "go.etcd.io/etcd/client/pkg/v3/transport", "go.etcd.io/etcd/server/v3/embed", "go.uber.org/zap",
		},
	},
	"decide/phase": {
		owns: "in which phase a sequence is, token by token, and the sequences of one engine",
		may:  map[string]string{"kv": "phases"},
		pure: true,
	},
	"decide/entropy": {
		owns: "entropy of a row of logits; the estimators EAT and RPDI",
		uses: map[string]string{"golang.org/x/sys": "which instructions the processor has"},
		pure: true,
	},
	"decide/block": {
		owns: "which blocks of an engine's KV memory stay: holds, tiers, victims, copies elsewhere",
		may:  map[string]string{"kv": "tiers"},
		pure: true,
	},
	"decide/policy": {
		owns: "who runs next: policies from a snapshot of an engine to a decision",
		may:  map[string]string{"kv": "phases"},
		pure: true,
	},
	"decide/placement": {
		owns: "which engine prefills and which decodes",
		uses: map[string]string{"github.com/zeebo/xxh3": "chains of prefixes"},
		pure: true,
	},
	"decide/governor": {
		owns: "decisions for one engine from the facts of its steps",
		may: map[string]string{
			"decide/block": "which blocks may go", "kv": "phases and tiers", "decide/phase": "where a sequence stands", "decide/entropy": "how sure it is",
			"decide/policy": "who runs",
		},
		pure: true,
	},
	"move/mem": {
		owns: "memory that transfers touch: sections, spans, references",
		uses: map[string]string{"golang.org/x/sys": "memfd, process_vm_readv"},
	},
	"move/cuda": {
		owns: "the GPUs of this machine through CUDA's driver: memory, imports, streams, kernels that move and sum",
		uses: map[string]string{"github.com/ebitengine/purego": "calls libcuda without cgo, under the tag accel alone"},

		testsMay: []string{"move/checksum", "move/cuda/cudatest", required},
	},
	"move/cuda/cudatest": {
		owns: "tests: a GPU made of host memory, and processes that share it",
		may:  map[string]string{"move/cuda": "whose driver it is"},
		uses: map[string]string{"github.com/zeebo/xxh3": "what the kernels compute", "golang.org/x/sys": "memory that Go does not manage"},
	},
	"move/mem/vram": {
		owns:     "sections of GPU memory: our own, and what other processes lend",
		may:      map[string]string{"move/cuda": "devices and their memory", "move/mem": "sections"},
		testsMay: []string{"move/cuda/cudatest"},
	},
	"move/mrdn": {
		owns: "bytes on the wire: the MRDN v1 frame, the frames of a link",
		may:  map[string]string{"kv": "a frame carries a Tier"},
		uses: map[string]string{
			"github.com/zeebo/blake3": "a frame carries a BLAKE3-128 checksum", "github.com/zeebo/xxh3": "a link's frames carry a check",
		},
	},
	"move/checksum": {
		owns: "the checksum of KV bytes, in segments that can be hashed in parallel",
		uses: map[string]string{"github.com/zeebo/xxh3": "the hash of a segment, and of the sums"},
		pure: true,
	},
	"move/fabric": {
		owns: "the transfer contract: regions, links, lists, transfers",
		may:  map[string]string{"move/checksum": "sums of what is placed", clips: "what peers wrote", "kv": "ids", "move/mem": "lists are spans of sections", "move/mrdn": "ids and error codes"},
	},
	"move/fabric/session": {
		owns: "the conversation of a link as state machines without I/O",
		may:  map[string]string{"kv": "ids", "move/fabric": "states and errors", "move/mrdn": "frames"},
		pure: true,
	},
	"move/fabric/link": {
		owns: "both ends of a link, over streams that carry bytes or lend memory",
		may: map[string]string{
			"kv": "ids", "move/fabric": "the contract", "move/fabric/session": "the machines it feeds", "move/mrdn": "frames", joins: "closing waits for what was started",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "chunk checksums"},
		testsMay: []string{"move/mem"},
	},
	"move/fabric/handshake": {
		owns: "how two agents introduce themselves, and the door where strangers wait",
		may:  map[string]string{"kv": "ids", "move/fabric": "errors", "move/mrdn": "frames", "member/trust": "proofs"},
	},
	"move/fabric/workers": {
		owns:     "bounded workers for fabrics that reach both sides from one process",
		may:      map[string]string{"kv": "ids", "move/fabric": "the contract"},
		testsMay: []string{"move/fabric/fabrictest", "move/mem"},
	},
	"move/fabric/inproc": {
		owns: "the fabric within one process",
		may: map[string]string{
			"kv": "ids", "move/fabric": "the contract", "move/fabric/workers": "its workers", "move/mem": "sections",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "checksums"},
		testsMay: []string{"move/fabric/fabrictest"},
	},
	"move/fabric/file": {
		owns: "the fabric to local disks",
		may: map[string]string{
			"kv": "ids", "move/fabric": "the contract", "move/fabric/workers": "its workers", "move/mem": "sections",
		},
		uses:     map[string]string{"golang.org/x/sys": "O_DIRECT, fdatasync"},
		testsMay: []string{"move/fabric/fabrictest", required},
	},
	"move/fabric/host": {
		owns: "the fabric between agents of one machine: one copy, through read-only mappings",
		may: map[string]string{
			"move/checksum": "sums of what is placed", "kv": "ids", "move/fabric": "the contract", "move/fabric/link": "what its stream reports to", "move/fabric/handshake": "who is who",
			"move/mem": "sections, lent", "move/mrdn": "frames", "member/trust": "the cell's key", joins: "closing waits for what was started",
			"move/cuda": "kernels that copy and sum", "move/mem/vram": "GPU memory, lent, and what moves it",
		},
		uses:     map[string]string{"golang.org/x/sys": "descriptor passing, memfds"},
		testsMay: []string{"move/cuda/cudatest", "move/fabric/fabrictest", required},
	},
	"move/fabric/tcp": {
		owns: "the data plane between hosts",
		may: map[string]string{
			"move/checksum": "of every chunk", "kv": "ids", "move/fabric": "the contract", "move/fabric/link": "what its streams report to", "move/fabric/handshake": "who is who",
			"move/mem": "sections", "move/mrdn": "frames", "member/trust": "TLS, the cell's key", joins: "closing waits for what was started",
			"move/cuda": "kernels that gather and scatter", "move/mem/vram": "GPU memory, and what moves it",
		},
		uses:     map[string]string{"golang.org/x/sys": "readv, writev"},
		testsMay: []string{"move/cuda/cudatest", "move/fabric/fabrictest", required},
	},
	"move/fabric/fabrictest": {
		owns: "the suite every fabric passes",
		may:  map[string]string{"move/checksum": "what sums must be", "kv": "ids", "move/fabric": "the contract", "move/mem": "sections"},
		uses: map[string]string{"go.uber.org/goleak": "no goroutine is left"},
	},
	"move/agent": {
		owns: "registration, metadata, requests, transfers, notifications; the choice of fabric",
		may: map[string]string{
			"kv": "ids", "move/fabric": "what moves the bytes", "move/mem": "sections", "member/directory": "where agents are found", joins: "closing waits for what was started",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "the checksum of a metadata blob"},
		testsMay: []string{"move/fabric/tcp", "member/directory/memdir"},
	},
	"move/reshard": {
		owns: "plans: who sends which bytes to whom when a cache changes its cut",
		may:  map[string]string{"kv": "geometries, parallelisms, layouts"},
		uses: map[string]string{"github.com/zeebo/blake3": "the digest that both sides compare"},
		pure: true,
	},
	"move/transceiver/handoff": {
		owns: "the conversation of a hand-off as state machines without I/O: tickets, messages, holder, taker, follower",
		may:  map[string]string{clips: "what peers wrote", fields: "messages", "kv": "what a cache is of", "move/mrdn": "ids", "move/reshard": "plans and their digests"},
		uses: map[string]string{"github.com/zeebo/blake3": "seals of tickets, fingerprints of contents"},
		pure: true,

		testsMay: []string{"move/transceiver/handoff/handoffsim", golden, mutants},
	},
	"move/transceiver/handoff/handoffsim": {
		owns: "the seeded world of hand-offs: engines, memory, network, trouble, checkers",
		may: map[string]string{
			"kv": "models", "move/reshard": "plans", "move/transceiver/handoff": "what is simulated",
		},
	},
	"move/transceiver": {
		owns: "the hand-off of one request from its prefill ranks to its decode ranks",
		may: map[string]string{
			"move/agent": "what moves bytes and carries messages", "move/fabric": "operations, lists, errors", "kv": "token ranges", "move/mem": "runs",
			"move/reshard": "plans", "move/transceiver/handoff": "the machines it feeds", joins: "closing waits for what was started",
		},
		testsMay: []string{"move/fabric/host", "move/fabric/inproc", "move/fabric/tcp"},
	},
	"keep/store/extent": {
		owns: "which bytes of an arena are free, taken, or taken by others without a word yet",
		pure: true,
	},
	"keep/store/arena": {
		owns:     "the memory of an object cache: headers, extents, free lists and the ring, a stable layout",
		may:      map[string]string{"move/checksum": "the sums of segments", "keep/store/extent": "the granule of extents"},
		uses:     map[string]string{"github.com/zeebo/xxh3": "the hash of keys"},
		testsMay: []string{golden, required, "keep/store/owner", "keep/store/protocol"},
	},
	"keep/store/owner": {
		owns: "the truth about one arena: its objects, their readers, who leaves when room is needed",
		may: map[string]string{
			"kv":                "instants",
			"keep/store/arena":  "the memory that others read and write",
			"keep/store/extent": "what of it is free",
		},
		pure: true,
	},
	"keep/store/master": {
		owns: "who owns a key: the conversation between a master and the owners, both sides",
		may:  map[string]string{"kv": "incarnations"},
		pure: true,
	},
	"keep/store/protocol": {
		owns: "what clients, owners and the master of an object cache say, and the machines of all three",
		may: map[string]string{
			clips: "what peers wrote", fields: "messages", "kv": "instants, ids", "keep/store/arena": "names and their hashes",
			"keep/store/master": "leases and claims", "keep/store/owner": "objects",
		},
		uses:     map[string]string{"github.com/zeebo/xxh3": "where a key belongs"},
		testsMay: []string{golden},
		pure:     true,
	},
	"keep/store/admission": {
		owns: "what colder tiers are given and asked: a sketch of uses, what is fetched ahead, budgets, when one is left alone",
		may:  map[string]string{"kv": "instants"},
		pure: true,
	},
	"keep/store/record": {
		owns: "an object at rest: one MRDN frame with key and header in its body",
		may:  map[string]string{"move/checksum": "the sum of a payload", "kv": "the tier of a frame", "move/mrdn": "frames"},
		uses: map[string]string{"github.com/zeebo/xxh3": "the sum of what comes before a payload, and the hash of keys"},
	},
	"keep/store/tier": {
		owns: "what the object cache asks of the places that keep objects outside of memory",
	},
	"keep/store/tier/tiertest": {
		owns: "tests: the suite that every tier passes",
		may:  map[string]string{"keep/store/tier": "what is tested"},
	},
	"keep/store/disk": {
		owns: "a tier in files of one folder: segments of records, an index that is made from them",
		may: map[string]string{
			"kv": "instants", joins: "closing waits for the writer", "keep/store/admission": "when a disk is left alone", "keep/store/record": "what lies in segments", "keep/store/tier": "what it is",
		},
		uses:     map[string]string{"golang.org/x/sys/unix": "direct I/O, locks"},
		testsMay: []string{required, "keep/store/tier/tiertest"},
	},
	"keep/store/s3": {
		owns: "a tier in a bucket of an S3 server: segments of records, and an index of each",
		may: map[string]string{
			"kv": "instants, the tier of a frame", joins: "closing waits for uploads", "move/mrdn": "indexes are frames", "keep/store/admission": "budgets, when a server is left alone",
			"keep/store/record": "what lies in segments", "keep/store/tier": "what it is",
		},
		uses:     map[string]string{"github.com/minio/minio-go/v7": "requests to S3, and their signatures"},
		testsMay: []string{required, "keep/store/tier/tiertest"},
	},
	"keep/store": {
		owns: "the object cache of a cell: its client, and the shell of owners and of the master",
		may: map[string]string{
			"move/agent": "what moves bytes and carries messages", "move/checksum": "readers check what they got", "move/fabric": "operations, lists, errors", "kv": "instants, ids",
			"move/mem": "arenas, landings", "member/directory": "owners and marks", "member/directory/election": "who is the master", joins: "closing waits for what was started",
			"keep/store/arena": "the memory of an owner", "keep/store/extent": "room in the landing", "keep/store/master": "the master it runs",
			"keep/store/admission": "what tiers are given, and what is fetched ahead", "keep/store/tier": "where objects go that leave memory", "keep/store/owner": "the objects it keeps", "keep/store/protocol": "the machines it feeds",
		},
		testsMay: []string{"move/fabric/host", "move/fabric/inproc", "move/fabric/tcp", "keep/store/disk", "keep/store/tier/tiertest", "member/directory/memdir", "member/trust"},
	},
	"keep/store/payload": {
		owns: "the fabric of the Meridian book: whole payloads through a handle, as MRDN frames in the object cache",
		may:  map[string]string{"kv": "tiers", "move/mrdn": "frames", "keep/store": "where they are kept"},
	},
	"keep/store/storesim": {
		owns: "the seeded world of the object cache: clients, owners, masters, arenas, network, trouble, checkers",
		may: map[string]string{
			"move/checksum": "what readers check", "kv": "instants, ids", "keep/store/admission": "what is simulated of tiers", "keep/store/arena": "memory, and producers", "keep/store/master": "what is simulated",
			"keep/store/owner": "what is simulated", "keep/store/protocol": "what is simulated",
		},
		uses:     map[string]string{"github.com/anishathalye/porcupine": "judges the history of each key"},
		testsMay: []string{mutants},
	},
	"keep/prefix/keys": {
		owns: "how caches are kept and found: keys, messages, and the conversations of who keeps and who finds",
		may: map[string]string{
			clips: "what peers wrote", fields: "messages", "kv": "block keys, geometries", "move/reshard": "what units look like", "move/transceiver/handoff": "tickets and fingerprints",
		},
		uses:     map[string]string{"github.com/zeebo/blake3": "the roots of chains, the names of tenants"},
		testsMay: []string{"keep/store/admission"},
		pure:     true,
	},
	"keep/prefix": {
		owns: "caches of engines kept for later: hand-offs whose other party is an owner of the object cache",
		may: map[string]string{
			"move/agent": "what carries messages", "move/fabric": "notifications, clocks", "kv": "ids, members", "keep/prefix/keys": "the machines it feeds", "move/reshard": "units and their places",
			"keep/store": "where they are kept", "keep/store/admission": "what is used often, and how much is copied", "move/transceiver": "hand-offs", "move/transceiver/handoff": "engines, contents, events", joins: "closing waits for what was started",
		},
		testsMay: []string{"move/fabric/host", "move/fabric/inproc", "move/fabric/tcp", "move/mem", "member/directory/memdir", "keep/store/disk", "keep/store/tier"},
	},
	"see/telemetry": {
		owns: "slog, Prometheus, OpenTelemetry; the metric catalogue",
		uses: map[string]string{
			"github.com/prometheus/client_golang": "the endpoint; no other room may import it",
			"github.com/prometheus/client_model":  "series, as the endpoint encodes them: made here without a registry, at a third of the cost",
			"go.opentelemetry.io":                 "OTLP export; no other room may import it",
		},
		testsMay: []string{golden, required},
	},
	"see/telemetry/collectortest": {
		owns: "tests: a collector of traces that decodes OTLP",
		uses: map[string]string{"go.opentelemetry.io/proto": "what OTLP is", "google.golang.org/protobuf": "how it is read"},
	},
	"see/ledger": {
		owns: "bounded records of requests, in memory and on disk; files of bounded records of any kind",
		may:  map[string]string{clips: "what clients and engines wrote"},
	},
	"see/peerquery": {
		owns: "questions between agents of a cell about what they remember, and the answers",
		may: map[string]string{
			"move/agent": "what carries messages", "move/fabric": "notifications", "kv": "members", joins: "closing waits for what was started",
			clips: "what peers wrote", fields: "messages",
		},
		testsMay: []string{"move/fabric/tcp", "member/directory/memdir", "member/trust"},
	},
	"see/dash": {
		owns:     "a page about a running cell: the page, and the events that feed it",
		testsMay: []string{"serve/gateway", "decide/placement", required, "github.com/chromedp/cdproto/emulation", "github.com/chromedp/cdproto/network", "github.com/chromedp/chromedp"},
	},
	"see/top": {
		owns: "a cell in a terminal: figures of what its processes show, and a screen of them",
		uses: map[string]string{"charm.land/bubbletea": "keys, sizes and repainting; no other room may import it"},
	},
	"see/doctor": {
		owns: "what this machine has and what it enables",
		uses: map[string]string{"golang.org/x/sys": "limits and kernel facts"},
	},
	"serve/openai": {
		owns: "the OpenAI API: requests, answers, errors, the event stream",
	},
	"serve/kvevents": {
		owns:     "what engines publish of their caches: ZMTP, msgpack, numbers, replays",
		testsMay: []string{"serve/kvevents/kveventstest", required},
	},
	"serve/kvevents/kveventstest": {owns: "tests: a publisher of cache events, as vLLM's"},
	"serve/gateway": {
		owns: "the user door: OpenAI HTTP, legs to engines, what happens when they fail, latency by phase",
		may: map[string]string{
			clips: "what engines wrote", "serve/kvevents": "what engines hold, by their own word", "see/ledger": "what became of a request", "member/directory": "engines in the directory",
			"serve/openai": "what it speaks", "decide/placement": "who serves", "member/trust": "legs are sealed",
		},
		testsMay: []string{"serve/kvevents/kveventstest", "member/directory/memdir"},
	},
	"serve/door": {
		owns: "the engine door as engines see it: frames, and the client",
		may:  map[string]string{"serve/door/doorpb": "its messages", "kv": "what an engine caches", "move/mem": "what an engine lends", "move/mem/vram": "what it lends of a GPU"},
		uses: map[string]string{"golang.org/x/sys": "descriptor passing, prctl", "google.golang.org/protobuf": "messages"},
	},
	"serve/door/doorpb": {
		owns: "the messages of the engine door, generated",
		uses: map[string]string{"google.golang.org/protobuf": "what generated code stands on"},
	},
	"serve/doorserver": {
		owns: "the engine door's server: registrations, offers, accepts; fences on an engine's death",
		may: map[string]string{
			"move/agent": "what engines' memory is registered with", "serve/door": "frames", "serve/door/doorpb": "messages", "kv": "what caches are of",
			"move/cuda": "why GPU memory is refused", "move/mem": "lent sections", "move/mem/vram": "lent GPU memory", "member/directory": "engines' records", "move/reshard": "how engines are cut", "move/transceiver": "hand-offs",
			"move/transceiver/handoff": "engines, events, errors", "member/trust": "legs", joins: "closing waits for what was started",
		},
		uses: map[string]string{
			"golang.org/x/sys": "peer credentials, pidfds, seals", "google.golang.org/protobuf": "messages",
		},
		testsMay: []string{"decide/block", "move/cuda/cudatest", "move/fabric", "move/fabric/host", "move/fabric/tcp", "decide/governor", "serve/governing", required, "member/directory/memdir"},
	},
	"serve/governing": {
		owns: "governors of engines that serve: one for each engine that tells of its steps",
		may: map[string]string{
			"decide/block": "blocks", "serve/door/doorpb": "messages", "decide/governor": "what decides", "kv": "phases", "decide/phase": "what a sequence wrote elsewhere", "decide/policy": "policies",
		},
		testsMay: []string{"decide/entropy"},
		uses:     map[string]string{"google.golang.org/protobuf": "tests compare messages"},
	},
	"serve/producer": {
		owns: "puts of programs that map an agent's arena: without a question where there is room, else by its door",
		may: map[string]string{
			"serve/door": "the mapping, and puts that need the owner", "keep/store/arena": "the memory", "keep/store/protocol": "how objects are named",
		},
		uses: map[string]string{"golang.org/x/sys/unix": "mapping"},
	},
	"engine/token": {
		owns: "tokenizers: BPE and think markers from tokenizer.json, built-in bytes, chat templates",
		uses: map[string]string{"golang.org/x/text": "the normal forms of Unicode that tokenizers ask for"},
	},
	"engine/model/kernel": {
		owns: "loops with one order of operations in every instruction set",
		uses: map[string]string{"golang.org/x/sys": "which instructions the processor has"},
	},
	"engine/model": {
		owns: "the mathematics of the reference engine: transformers over paged KV in the memory of ranks, with the same bits under every cut",
		may:  map[string]string{"kv": "geometry, cuts and layouts of KV memory", "engine/model/kernel": "dot products and their like"},

		testsMay: []string{required, "move/reshard"},
	},
	"engine/batch": {
		owns: "what a step computes: who, how much, in which blocks; the prefix cache, preemption",
		may:  map[string]string{"kv": "block keys"},
		pure: true,
	},
	"engine": {
		owns: "the reference engine: requests, step loop, sampling, streams, HTTP, its side of hand-offs",
		may: map[string]string{
			"serve/door": "its agent", "serve/door/doorpb": "steps and decisions", "engine/batch": "what a step computes", "engine/model": "what computes it",
			"kv": "cuts and scopes", "move/mem": "the arenas of its ranks", "serve/openai": "requests and answers", "decide/phase": "whether an answer is still a thought",
			"decide/entropy": "entropies of logits", "engine/token": "texts",
		},
		testsMay: []string{"decide/block", "decide/governor", "serve/governing", "move/reshard", "decide/policy"},
		uses:     map[string]string{"google.golang.org/protobuf": "tests copy decisions"},
	},
	"run/config": {
		owns:     "meridian.toml: schema, defaults, strict validation",
		may:      map[string]string{"decide/phase": "what a model's table comes down to", "engine/token": "marker texts are resolved in a model's tokenizer"},
		uses:     map[string]string{"github.com/pelletier/go-toml": "TOML, with positions"},
		testsMay: []string{golden, "kv"},
	},
	"run/models": {
		owns:     "the checked table of think markers",
		testsMay: []string{"run/config", "decide/phase"},
	},
	"run/cell": {
		owns: "a whole cell on one machine: its processes, started in order, watched, stopped in the other",
		may:  map[string]string{"kv": "layouts of a cut"},
		uses: map[string]string{"golang.org/x/sys": "the lock that says that a cell runs"},
	},
	"run/cell/talk": {
		owns: "a client of the OpenAI API, for people and for the demo",
		may:  map[string]string{"serve/openai": "requests, events, errors"},
	},
	"run/cell/demo": {
		owns: "a small load through a cell, compared with one engine alone, token by token",
		may: map[string]string{
			"run/cell/talk": "how prompts are sent", "serve/openai": "requests", "see/ledger": "latency by phase, and where caches came from",
		},
	},
	"run/node": {
		owns: "the fuse box: which adapters a process has",
		may: map[string]string{
			"kv": "ids", "move/agent": "agents", "move/fabric": "their fabrics", "move/fabric/tcp": "between hosts", "move/fabric/host": "within one",
			"move/fabric/file": "to its disks", "member/directory": "the directory", "keep/prefix": "what engines keep and find", "keep/prefix/keys": "how that is named", "move/reshard": "how they are cut",
			"member/directory/etcd": "the one there is", "member/directory/etcd/embedded": "where it is by default", "see/telemetry": "metrics",
			"see/dash": "where operators look", clips: "what members tell",
			"serve/door": "where its socket is", "serve/door/doorpb": "what engines tell governors", "serve/doorserver": "where engines come in", "decide/governor": "reasons", "serve/governing": "who decides for engines", "decide/policy": "reasons", "move/mem/vram": "GPU memory that they lend", "move/cuda": "whether there can be any", "serve/gateway": "where users do", "see/peerquery": "what agents are asked", "see/ledger": "records of requests", "move/mem": "kinds of memory",
			"keep/store": "its part in the object cache", "keep/store/owner": "the numbers of an owner", "keep/store/disk": "a tier of it", "keep/store/s3": "another", "keep/store/tier": "what it closes", "move/transceiver": "hand-offs", "move/transceiver/handoff": "their records", "member/trust": "who the agent is",
		},
		testsMay: []string{"decide/block", "move/cuda/cudatest", "engine", "kv", "move/mem", "member/directory/memdir", "serve/openai", "decide/phase", "decide/placement", "move/reshard", "serve/producer", "engine/token"},
	},
	"prove/bench": {
		owns: "what all measurements share: figures, the machine and its cores, processes",
		uses: map[string]string{"golang.org/x/sys": "pinning, and the clocks of other processes"},
	},
	"prove/bench/transfer": {
		owns: "measurements of transfers and of hand-offs, side by side with peers",
		may: map[string]string{
			"prove/bench": "figures, processes", "move/fabric": "what is measured", "move/fabric/tcp": "between hosts", "move/fabric/host": "within one",
			"move/fabric/inproc": "within one process", "move/fabric/file": "to a disk", "move/mem": "sections",
			"move/agent": "what grants cost; both ends of a hand-off", "member/trust": "what TLS costs", "move/transceiver": "hand-offs",
			"move/transceiver/handoff": "engines, contents and records of hand-offs", "move/reshard": "how engines are cut", "kv": "models and layouts",
			"run/node": "agents and a gateway as they run, for what being watched costs", "see/dash": "the page, read as a browser does", "serve/gateway": "where it is",
			"member/directory/etcd/embedded": "where they meet", "see/telemetry": "spans, and a scrape",
		},
		testsMay: []string{required},
	},
	"prove/bench/gpu": {
		owns: "measurements of GPU memory, beside CUDA's own copies and other libraries",
		may: map[string]string{
			"prove/bench": "figures, processes", "move/cuda": "its own copies", "move/fabric": "what is measured", "move/fabric/host": "within a host", "move/fabric/tcp": "between hosts",
			"kv": "ids", "move/mem": "host memory", "move/mem/vram": "GPU memory",
		},
		testsMay: []string{"move/cuda/cudatest", required},
	},
	"prove/bench/store": {
		owns: "measurements of the object cache, side by side with others that keep objects",
		may: map[string]string{
			"move/agent": "those of owners and clients", "prove/bench": "figures, processes", "prove/bench/deciding": "how parts are measured, each by itself",
			"prove/bench/transfer": "a plain transfer beside it, and fabrics", "move/fabric": "operations", "kv": "clocks of owners", "move/mem": "what memcpy copies",
			"member/directory": "directories", "member/directory/etcd": "where processes meet", "member/directory/etcd/embedded": "the same", "keep/store": "what is measured",
			"keep/store/arena": "what is measured of it by itself", "keep/store/owner": "the same",
		},
		testsMay: []string{required},
	},
	"prove/bench/deciding": {
		owns: "measurements of the rooms that decide, beside plain ways of doing the same",
		may:  map[string]string{"prove/bench": "figures, the machine", "decide/block": "what is measured", "decide/governor": "what is measured", "kv": "tiers", "decide/phase": "what is measured", "decide/entropy": "what is measured", "prove/replay": "what is measured", "prove/replay/workload": "what is replayed", "decide/policy": "what is measured, what a governor asks, and what is replayed"},
	},
	"prove/bench/serving": {
		owns: "measurements of the gateway, of second turns, of answers that move, of policies under a mixed load, of thoughts that are ended, of steps over the door, and of hand-offs between servers of vLLM",
		may: map[string]string{
			"prove/bench": "figures, processes", "prove/bench/deciding": "rounds and rows of steps", "serve/door": "what an engine tells of a step", "serve/door/doorpb": "the same",
			"run/cell": "servers of vLLM, and what stands before them", "run/cell/talk": "chats of two turns, and what else is sent", "kv": "models", "serve/openai": "their streams",
		},
	},
	"prove/bench/cache": {
		owns: "measurements of the shared cache of prefixes, beside models of caches, a plain file and vLLM's own connector",
		may: map[string]string{
			"prove/bench": "figures, processes", "prove/bench/load": "a trace, sent", "prove/bench/serving": "models and questions for servers of vLLM", "run/cell": "engines and what keeps for them", "run/node": "what an agent found and kept for a request", "serve/openai": "requests, and where a cache came from",
			"prove/replay/workload": "traces", "keep/store/disk": "what is measured by itself", "keep/store/tier": "its objects",
		},
		uses:     map[string]string{"golang.org/x/sys": "direct I/O of the plain file"},
		testsMay: []string{"engine/model"},
	},
	"prove/bench/load": {
		owns: "a live endpoint under a workload, and what its clients see",
		may: map[string]string{
			"run/cell/talk": "which models there are, how chats are counted", clips: "what endpoints wrote", "serve/openai": "requests and their streams",
			"prove/replay": "the same figures", "prove/replay/workload": "what is sent",
		},
		testsMay: []string{"prove/bench/record", "engine", "serve/gateway", "decide/placement"},
	},
	"prove/bench/record": {
		owns: "the workload of a running gateway, written down",
		may:  map[string]string{"serve/gateway": "what its admin listener answers", "see/ledger": "records", "prove/replay/workload": "how requests are written"},
	},
	"prove/replay/workload": {
		owns:     "which requests arrive, when, and how long they are: drawn from a seed, or read from traces",
		testsMay: []string{golden, required},
	},
	"prove/replay": {
		owns: "engines in virtual time, under the policies and the placement that real ones have",
		may: map[string]string{
			"decide/governor": "what ends thoughts, what steps cost", "kv": "phases and tiers", "decide/placement": "who serves", "prove/replay/workload": "what arrives", "decide/policy": "who runs",
		},
		testsMay: []string{"decide/entropy"},
	},
	"prove/replay/report": {
		owns:     "what runs of a replay amount to: intervals, verdicts, tables, pictures",
		testsMay: []string{golden},
	},
	"prove/replay/sweep": {
		owns: "replays of every policy at every load with every seed, on all cores; the search for a policy's parameters",
		may: map[string]string{
			"prove/replay": "a run", "prove/replay/report": "what runs amount to", "prove/replay/workload": "requests", "decide/policy": "policies",
		},
	},
	"prove/replay/validation": {
		owns: "replay held to the reference engine: its profile measured, its load predicted, both side by side",
		may: map[string]string{
			"prove/bench": "the machine, and who else uses it", "engine": "what is measured", "prove/replay": "what predicts", "prove/replay/workload": "requests",
			"decide/policy": "the policy that the engine has",
		},
		testsMay: []string{"engine/batch"},
	},
	"prove/sim": {
		owns: "the seeded world: network, directory, memory, clocks, faults, checkers",
		may: map[string]string{
			"move/checksum": "of every chunk", "kv": "ids", "move/agent": "what is simulated", "move/fabric": "the contract that its network fulfils", "move/fabric/link": "both ends of its links",
			"move/mem": "sections", "member/directory": "the directory over its store", "move/mrdn": "frames",
			"move/transceiver/handoff/handoffsim": "another kind of world", "keep/store/storesim": "and another",
		},
		testsMay: []string{mutants, "keep/store/owner", "move/transceiver/handoff"},
	},
	"prove/faultproxy": {owns: "tests: a bad network between two processes"},
	"prove/chaos": {
		owns: "tests: agents in processes of their own, to be broken",
		may: map[string]string{
			"kv": "ids", "move/agent": "what a puppet is", "move/fabric": "operations and errors", "move/fabric/file": "its disk", "move/fabric/tcp": "its network",
			"move/mem": "its memory", "member/directory": "its directory", "member/directory/etcd": "the one there is", "member/trust": "the cell's key",
		},
		uses:     map[string]string{"golang.org/x/sys": "limits of another process"},
		testsMay: []string{"prove/faultproxy", "member/directory/etcd/embedded", "member/directory/directorytest", required},
	},
	"prove/hostile": {
		owns: "tests: a peer that knows the protocol and means harm",
		may: map[string]string{
			"kv": "ids", "move/checksum": "bytes that pass for right", "move/fabric": "lists", "move/fabric/handshake": "how an insider comes in", "move/mrdn": "frames",
			"member/trust": "nonces",
		},
		testsMay: []string{"prove/chaos"},
	},
	"prove/storm": {
		owns:     "tests: a whole cell under load, with parts of it killed",
		may:      map[string]string{"run/cell/talk": "asks", "serve/openai": "requests and errors"},
		testsMay: []string{"run/cell", "serve/door", required, "serve/producer", "engine/token"},
	},
	"cmd/meridian": {
		owns: "the command line",
		may: map[string]string{
			"run/config": "config …", "run/models": "config init --model", "see/doctor": "doctor",
			"kv": "frame encode --tier, plan --model", "move/reshard": "plan", "move/mrdn": "frame …", "see/telemetry": "--log-level, --log-format",
			"prove/bench/gpu": "bench cuda", "run/cell": "up, down, status, logs", "see/dash": "where the page is", "run/cell/demo": "up --demo", "run/cell/talk": "chat", "serve/openai": "chat", "see/top": "top",
			"serve/door": "where an agent's socket is", "engine": "engine", "serve/gateway": "gateway", "decide/placement": "gateway", "see/ledger": "explain",
			"prove/bench": "bench …", "prove/bench/cache": "bench cache", "prove/bench/deciding": "bench phase, bench block, bench probe, bench replay, bench sched", "prove/bench/load": "load", "prove/bench/record": "record", "prove/bench/serving": "bench forcing, bench gateway, bench moves, bench policies, bench step, bench turns, bench vllm", "prove/bench/store": "bench store", "prove/bench/transfer": "bench transfer, bench handoff", "run/node": "agents", "move/agent": "send, recv, explain", "move/fabric": "operations", "move/mem": "file sections",
			"member/directory": "peers", "member/directory/etcd/embedded": "directory", "keep/store": "store …, explain", "keep/store/disk": "store.disk", "keep/store/s3": "store.s3", "keep/store/owner": "store serve --policy", "keep/store/payload": "store push, store pull", "keep/store/protocol": "what is small to put", "member/trust": "cert …", "prove/sim": "sim", "move/transceiver/handoff": "explain",
			"decide/block": "what governors are told of memory", "serve/governing": "what an agent governs by", "decide/phase": "how models mark thoughts", "engine/token": "where clauses end", "decide/governor": "replay --entropy", "decide/entropy": "replay --entropy", "prove/replay": "replay --engine", "prove/replay/report": "replay diff", "prove/replay/sweep": "replay, replay tune", "prove/replay/workload": "replay --workload", "prove/replay/validation": "replay validate", "decide/policy": "replay --policy",
		},
		uses: map[string]string{
			"github.com/alecthomas/kong": "commands as structs",
			"golang.org/x/sys":           "whether output goes to a terminal",
			"golang.org/x/term":          "chat: lines that can be edited",
		},
		testsMay: []string{golden, required, "see/telemetry/collectortest"},
	},
	fields:   {owns: "the fields of messages between agents, written, and read from strangers", may: map[string]string{"kv": "ids and hashes"}, pure: true},
	clips:    {owns: "texts that another process wrote, cut to what is kept of them", pure: true},
	joins:    {owns: "waiting for what a room has started, as long as a context lasts"},
	golden:   {owns: "tests: committed files that code makes"},
	required: {owns: "tests: what a machine may lack"},
	mutants:  {owns: "tests of tests: known bugs, and where each would be made"},
	"internal/mutant/overlay": {
		owns: "tests of tests: the known bugs for a build by hand",
		may:  map[string]string{mutants: "the bugs"},
	},
	"": {owns: "tests of the tree itself", testsMay: []string{mutants, required, golden}},
}
