package dash

import (
	"context"
	"time"

	"meridian/see/history"
)

// Cell is what the page is about.
type Cell interface {
	// Look tells how the cell is now, and what has ended since the call before, the
	// last few the first time. One goroutine calls it, and waits a second or two.
	Look(ctx context.Context) View
	// Explain tells what is remembered under an id, or how one begins.
	Explain(ctx context.Context, id string) (Explanation, error)
}

// View is a cell as it is at one moment. Counters are since the start of who counts.
type View struct {
	Gateway Gateway             `json:"gateway"`
	Workers []Worker            `json:"workers"`
	Members []Member            `json:"members"`
	Flows   []history.FlowTotal `json:"flows"`
	// MoreFlows is between how many further pairs of ranks something went.
	MoreFlows int `json:"more_flows,omitempty"`
	// Problem says why nothing is known of agents.
	Problem string `json:"problem,omitempty"`

	// Requests and HandOffs have ended since the view before; LeftOut are those
	// that are not among them because there were too many.
	Requests []Request `json:"requests,omitempty"`
	HandOffs []HandOff `json:"handoffs,omitempty"`
	LeftOut  LeftOut   `json:"left_out,omitzero"`
}

// LeftOut counts what is not shown.
type LeftOut struct {
	Requests uint64 `json:"requests,omitempty"`
	HandOffs uint64 `json:"handoffs,omitempty"`
}

// Gateway is the process that serves the page.
type Gateway struct {
	Version        string            `json:"version"`
	URL            string            `json:"url"`
	Ready          bool              `json:"ready"`
	Running        int               `json:"running"`
	Waiting        int               `json:"waiting"`
	Connections    int               `json:"connections"`
	DirectoryKnown bool              `json:"directory_known"`
	Outcomes       map[string]uint64 `json:"outcomes"`
	KV             map[string]uint64 `json:"kv"` // where prompts' caches came from
	PromptTokens   uint64            `json:"prompt_tokens"`
	OutputTokens   uint64            `json:"output_tokens"`
	Resumed        uint64            `json:"resumed"`
	Phases         []Phase           `json:"-"`
}

// Phase is how long one phase of requests has taken, as a histogram: Counts are of
// those that took at most each of Bounds, in seconds, and the last of all.
type Phase struct {
	Name   string
	Bounds []float64
	Counts []uint64
}

// Worker is an engine.
type Worker struct {
	ID      string   `json:"id"`
	Role    string   `json:"role"`
	Kind    string   `json:"kind"`
	Models  []string `json:"models"`
	Cut     string   `json:"cut,omitempty"`
	Agent   string   `json:"agent,omitempty"`
	URL     string   `json:"url"`
	Up      bool     `json:"up"`
	Problem string   `json:"problem,omitempty"`
	Running int64    `json:"running"`
	Waiting int64    `json:"waiting_tokens"`
	Served  uint64   `json:"served"`
	Failed  uint64   `json:"failed"`
}

// Member is an agent, or a gateway among agents.
type Member struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Kind        string `json:"kind"`
	Version     string `json:"version,omitempty"`
	// Problem says why it did not answer.
	Problem          string   `json:"problem,omitempty"`
	UpMs             float64  `json:"up_ms,omitempty"`
	Engines          int      `json:"engines,omitempty"`
	Transfers        uint64   `json:"transfers"`
	TransfersFailed  uint64   `json:"transfers_failed"`
	ChecksumFailures uint64   `json:"checksum_failures"`
	Bytes            uint64   `json:"bytes"` // read and written by its transfers
	HandOffs         uint64   `json:"handoffs"`
	HandOffsFailed   uint64   `json:"handoffs_failed"`
	HandOffBytes     uint64   `json:"handoff_bytes"`
	UnderWay         int      `json:"under_way"`
	Memory           []Memory `json:"memory,omitempty"`
	Objects          *Objects `json:"objects,omitempty"`
	// Prefixes is nil where its engines share none.
	Prefixes *history.PrefixCounts `json:"prefixes,omitempty"`
}

// Memory is KV memory of one kind that engines have lent.
type Memory struct {
	Tier  string `json:"tier"`
	Bytes uint64 `json:"bytes"`
}

// Objects is how an owner of the object cache stands.
type Objects struct {
	Ready     uint64 `json:"ready"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Evictions uint64 `json:"evictions"`
	Master    bool   `json:"master,omitempty"`
	// Tiers are where its objects lie: its memory, and what is below, the nearest first.
	Tiers []history.TierCounts `json:"tiers,omitempty"`
}

// Request is one that has ended.
type Request struct {
	ID      string    `json:"id"`
	Began   time.Time `json:"began"`
	Model   string    `json:"model"`
	Outcome string    `json:"outcome"`
	Problem string    `json:"problem,omitempty"`
	Status  int       `json:"status"`
	Prompt  int       `json:"prompt_tokens"`
	Output  int       `json:"output_tokens"`
	Think   int       `json:"think_tokens,omitempty"`
	Prefill string    `json:"prefill,omitempty"` // engine
	Decode  string    `json:"decode,omitempty"`
	KV      string    `json:"kv,omitempty"`
	Resumed int       `json:"resumed,omitempty"`
	TTFTMs  float64   `json:"ttft_ms,omitempty"`
	TotalMs float64   `json:"total_ms"`
}

// HandOff is one side of one that has ended.
type HandOff struct {
	ID       string  `json:"id"`
	As       string  `json:"as"`
	Agent    string  `json:"agent"`
	Engine   string  `json:"engine"`
	Peer     string  `json:"peer,omitempty"`
	PeerName string  `json:"peer_engine,omitempty"`
	Tokens   int     `json:"tokens"`
	Bytes    uint64  `json:"bytes"`
	Ranks    string  `json:"ranks"` // as 2×8
	Fabric   string  `json:"fabric,omitempty"`
	Retries  int     `json:"retries,omitempty"`
	Push     bool    `json:"push,omitempty"`
	Promised bool    `json:"promised,omitempty"`
	EndedMs  float64 `json:"ended_ms"` // since 1970
	TotalMs  float64 `json:"total_ms"`
	Stages   []Stage `json:"stages"`
	Problem  string  `json:"problem,omitempty"`
}

// Stage is a part of a hand-off's time.
type Stage struct {
	Name string  `json:"name"`
	Ms   float64 `json:"ms"`
}

// Explanation is what is remembered under an id.
type Explanation struct {
	ID string `json:"id"`
	// Text tells it to a person.
	Text      string `json:"text"`
	Requests  any    `json:"requests"`
	HandOffs  any    `json:"handoffs"`
	Transfers any    `json:"transfers"`
	// Objects are pieces of prefixes that are kept.
	Objects any `json:"objects"`
	// IDs are those that begin so, where there are several.
	IDs []string `json:"ids,omitempty"`
	// Asked is how many members answered, Silent who did not.
	Asked  int      `json:"asked"`
	Silent []string `json:"silent,omitempty"`
}
