package roster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/kvevents"
)

// CacheEvents is where an engine publishes what its cache holds.
type CacheEvents struct {
	// Off asks for nothing. Without it and without Events the engine is asked
	// where it publishes, which vLLM tells.
	Off bool
	// Events and Replay are endpoints, as ZeroMQ writes them. Ranks is how many
	// data-parallel ranks publish, each at the next port; 0 is one.
	Events, Replay string
	Ranks          int
}

// source is where one rank of an engine publishes.
type source struct{ events, replay kvevents.Endpoint }

// sources are an engine's, by rank.
func (c CacheEvents) sources(engineURL string) ([]source, error) {
	if c.Off || c.Events == "" {
		return nil, nil
	}
	first, err := newSource(c.Events, c.Replay, hostOf(engineURL))
	if err != nil {
		return nil, err
	}
	var sources []source
	for rank := range max(c.Ranks, 1) {
		s := source{}
		if s.events, err = first.events.Rank(rank); err != nil {
			return nil, err
		}
		if !first.replay.IsZero() {
			if s.replay, err = first.replay.Rank(rank); err != nil {
				return nil, err
			}
		}
		sources = append(sources, s)
	}
	return sources, nil
}

func newSource(events, replay, host string) (s source, err error) {
	if s.events, err = kvevents.ParseEndpoint(events, host); err != nil {
		return source{}, err
	}
	if replay != "" {
		if s.replay, err = kvevents.ParseEndpoint(replay, host); err != nil {
			return source{}, err
		}
	}
	return s, nil
}

func hostOf(engineURL string) string {
	u, err := url.Parse(engineURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// isLocal tells whether an engine is on this host: of another one, a socket's path
// would be a path here.
func isLocal(engineURL string) bool {
	host := hostOf(engineURL)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parseSources reads what vLLM answers to GET /kv_event_sources: a publisher's
// configuration for each rank.
func parseSources(data []byte, engineURL string) ([]source, error) {
	var told map[string]struct {
		Enabled   bool   `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
	}
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	if len(told) > maxRanks {
		return nil, fmt.Errorf("%d ranks publish, more than %d", len(told), maxRanks)
	}
	ranks := slices.SortedFunc(maps.Keys(told), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	var sources []source
	for _, rank := range ranks {
		publisher := told[rank]
		if !publisher.Enabled || publisher.Publisher != "zmq" {
			continue
		}
		s, err := newSource(publisher.Endpoint, publisher.Replay, hostOf(engineURL))
		if err == nil && !isLocal(engineURL) && (s.events.IsLocal() || s.replay.IsLocal()) {
			err = fmt.Errorf("rank %.20q publishes at a socket of its own host", rank)
		}
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

const (
	maxRanks = 256
	// maxBlocks bounds what is remembered of one rank's cache, and maxEngineBlocks of
	// all ranks of an engine: it is the engine that says how many ranks it has.
	maxBlocks       = 1 << 18
	maxEngineBlocks = 1 << 20
	// maxEngineEvents is what messages of all ranks of an engine may take.
	maxEngineEvents = 256 << 20
)

// cache is what one rank of an engine says that it holds.
type cache struct {
	source     source
	subscriber *kvevents.Subscriber

	mu     sync.Mutex // protects blocks
	blocks *placement.Blocks
}

// cacheCounts count what engines tell of their caches.
type cacheCounts struct{ batches, resets atomic.Uint64 }

// follow subscribes to an engine's ranks. forgotten is called when what an
// engine holds is not what it was.
func follow(sources []source, forgotten func(), count *cacheCounts, logger *slog.Logger) ([]*cache, error) {
	var caches []*cache
	for _, s := range sources {
		c := &cache{source: s, blocks: placement.NewBlocks(min(maxBlocks, maxEngineBlocks/len(sources)))}
		var err error
		c.subscriber, err = kvevents.Open(kvevents.Options{
			Events: s.events, Replay: s.replay, MessageBytes: maxEngineEvents / len(sources), Logger: logger,
			Apply: func(b kvevents.Batch) {
				count.batches.Add(1)
				if c.apply(b) {
					forgotten()
				}
			},
			Reset: func(string) {
				count.resets.Add(1)
				c.clear()
				forgotten()
			},
		})
		if err != nil {
			closeCaches(caches)
			return nil, err
		}
		caches = append(caches, c)
	}
	return caches, nil
}

func closeCaches(caches []*cache) {
	for _, c := range caches {
		c.subscriber.Close()
	}
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocks.Clear()
}

// fullAttention are the kinds of layers whose blocks say what a prompt can be
// spared; an engine that does not say has no others.
var fullAttention = []string{"", "full_attention", "mla_attention", "sink_full_attention"}

// apply takes in a batch, and tells whether the cache was emptied.
func (c *cache) apply(b kvevents.Batch) (cleared bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case kvevents.Stored:
			if e.Remote {
				continue // no engine is nearer to it than another
			}
			stored := placement.NewlyStored{
				Scope: placement.Scope{Adapter: e.Adapter, Salt: e.Salt}, Names: e.Blocks, Tokens: e.Tokens, Others: e.Others,
				Medium: e.Medium, Group: e.Group, Partly: !slices.Contains(fullAttention, e.Spec),
			}
			if e.HasParent {
				stored.Parent = &e.Parent
			}
			c.blocks.Store(stored)
		case kvevents.Removed:
			if !e.Remote {
				c.blocks.Remove(e.Blocks, e.Medium, e.Group)
			}
		case kvevents.Cleared:
			c.blocks.Clear()
			cleared = true
		}
	}
	return cleared
}

// holding is how many leading tokens of a prompt are there; all means every
// block of it.
type holding struct {
	tokens int
	all    bool
}

// held looks for a prompt; told is false where the engine does not say at the
// moment.
func (c *cache) held(p *request.Prompt) (h holding, told bool) {
	if !c.subscriber.Status().Connected {
		return h, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	size := c.blocks.BlockTokens()
	if size == 0 {
		return h, true // it holds nothing
	}
	chain := p.Chain(size)
	blocks := c.blocks.Held(chain)
	return holding{blocks * size, blocks == len(chain.Hashes)}, true
}

// heldByAll is what every rank holds: the engine itself decides which of them
// serves.
func heldByAll(caches []*cache, p *request.Prompt) (least holding, told bool) {
	for i, c := range caches {
		h, told := c.held(p)
		if !told {
			return holding{}, false
		}
		if i == 0 || h.tokens < least.tokens {
			least = h
		}
	}
	return least, len(caches) > 0
}

// CacheState is a cache as pages show it.
type CacheState struct {
	Rank        int        `json:"rank"`
	Events      string     `json:"events"`
	Replay      string     `json:"replay,omitempty"`
	Connected   bool       `json:"connected"`
	Blocks      int        `json:"blocks"`
	BlockTokens int        `json:"block_tokens,omitempty"`
	Sequence    uint64     `json:"sequence"`
	Batches     uint64     `json:"batches"`
	Gaps        uint64     `json:"gaps"`
	Resets      uint64     `json:"resets"`
	Reconnects  uint64     `json:"reconnects"`
	Replayed    uint64     `json:"replayed"`
	Orphans     uint64     `json:"orphans,omitempty"`
	Overflow    uint64     `json:"overflow,omitempty"`
	LastEvent   *time.Time `json:"last_event,omitempty"`
	Problem     string     `json:"problem,omitempty"`
}

// CacheEvents is how often engines have told of their caches, and how often what they told
// before counted no more.
func (r *Roster) CacheEvents() (batches, resets uint64) {
	return r.told.batches.Load(), r.told.resets.Load()
}

// CacheStates are those of an engine, rank by rank.
func (r *Roster) CacheStates(e *Engine) []CacheState {
	r.mu.Lock()
	caches := e.caches
	r.mu.Unlock()
	var states []CacheState
	for rank, c := range caches {
		st := c.subscriber.Status()
		c.mu.Lock()
		count, size := c.blocks.Count(), c.blocks.BlockTokens()
		c.mu.Unlock()
		state := CacheState{
			Rank: rank, Events: c.source.events.String(), Connected: st.Connected, Blocks: count.Known, BlockTokens: size, Sequence: st.Sequence,
			Batches: st.Batches, Gaps: st.Gaps, Resets: st.Resets, Reconnects: st.Reconnects, Replayed: st.Replayed,
			Orphans: count.Orphans, Overflow: count.Overflow, Problem: st.Problem,
		}
		if !c.source.replay.IsZero() {
			state.Replay = c.source.replay.String()
		}
		if !st.LastBatch.IsZero() {
			state.LastEvent = &st.LastBatch
		}
		states = append(states, state)
	}
	return states
}
