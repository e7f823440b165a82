package node

import (
	"context"
	"net/http"
	"time"

	"meridian/keep/store"
)

// CacheStatus is how the object cache of a cell stands, as one of its agents sees it.
type CacheStatus struct {
	Master string        `json:"master"`
	Term   uint64        `json:"term"`
	Owners []OwnerStatus `json:"owners"`
}

// OwnerStatus is how an owner stands. HeapUsed and the like are of its heap.
type OwnerStatus struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Rank        int    `json:"rank"`
	Answers     bool   `json:"answers"`
	Term        uint64 `json:"term"`
	HeapUsed    uint64 `json:"heap_used"`
	HeapTotal   uint64 `json:"heap_total"`
	Ready       uint64 `json:"ready"`
	Writing     uint64 `json:"writing"`
	RingDepth   uint64 `json:"ring_depth"`
	Hits        uint64 `json:"hits"`
	Misses      uint64 `json:"misses"`
	Evictions   uint64 `json:"evictions"`
	Reclaims    uint64 `json:"reclaims"`
	Timeouts    uint64 `json:"timeouts"`
	Refused     uint64 `json:"refused"`
	OutOfMemory uint64 `json:"out_of_memory"`
	Overloaded  uint64 `json:"overloaded"`
	CASFailures uint64 `json:"cas_failures"`
	Torn        uint64 `json:"torn"`
	BytesIn     uint64 `json:"bytes_in"`
	BytesOut    uint64 `json:"bytes_out"`
	// Tiers are what it has below its memory, the nearest first.
	Tiers   []TierStatus `json:"tiers,omitempty"`
	Problem string       `json:"problem,omitempty"`
}

// TierStatus is how a tier of an owner stands.
type TierStatus struct {
	Name        string `json:"name"`
	Down        bool   `json:"down"`
	Objects     uint64 `json:"objects"`
	Bytes       uint64 `json:"bytes"`
	Limit       uint64 `json:"limit"`
	Waiting     uint64 `json:"waiting"`
	Puts        uint64 `json:"puts"`
	PutsDropped uint64 `json:"puts_dropped"`
	PutsFailed  uint64 `json:"puts_failed"`
	Hits        uint64 `json:"hits"`
	Misses      uint64 `json:"misses"`
	Slow        uint64 `json:"slow"`
	Failed      uint64 `json:"failed"`
	Broken      uint64 `json:"broken"`
	Reclaimed   uint64 `json:"reclaimed"`
	Requests    uint64 `json:"requests"`
	OverBudget  uint64 `json:"over_budget"`
}

// Serves reports whether the owner was reached and answers clients.
func (o OwnerStatus) Serves() bool { return o.Problem == "" && o.Answers }

// Serving is how many owners serve.
func (c *CacheStatus) Serving() (n int) {
	for _, o := range c.Owners {
		if o.Serves() {
			n++
		}
	}
	return n
}

// CacheStatusOf asks every owner how it stands.
func CacheStatusOf(ctx context.Context, s *store.Store) (*CacheStatus, error) {
	stats, err := s.Stats(ctx)
	if err != nil {
		return nil, err
	}
	all := &CacheStatus{Owners: make([]OwnerStatus, len(stats.Owners))}
	all.Master, all.Term = s.Master()
	for i, o := range stats.Owners {
		all.Owners[i] = ownerStatus(o)
	}
	return all, nil
}

func ownerStatus(o store.OwnerStats) OwnerStatus {
	row := OwnerStatus{
		Name: o.Name, Incarnation: o.Incarnation.String(), Rank: o.Rank, Answers: o.Answers, Term: o.Term, HeapUsed: o.HeapUsed, HeapTotal: o.HeapTotal,
		Ready: o.Ready, Writing: o.Writing, RingDepth: o.Waiting, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Reclaims: o.Reclaims,
		Timeouts: o.Timeouts, Refused: o.Refused, OutOfMemory: o.OutOfMemory, Overloaded: o.Overloaded, CASFailures: o.CASFailures, Torn: o.Torn, BytesIn: o.BytesIn, BytesOut: o.BytesOut,
	}
	for _, t := range o.Cold {
		row.Tiers = append(row.Tiers, TierStatus{
			Name: t.Name, Down: t.Down, Objects: t.Objects, Bytes: t.Bytes, Limit: t.Limit, Waiting: t.Waiting, Puts: t.Puts, PutsDropped: t.PutsDropped, PutsFailed: t.PutsFailed,
			Hits: t.Hits, Misses: t.Misses, Slow: t.Slow, Failed: t.Failed, Broken: t.Broken, Reclaimed: t.Reclaimed, Requests: t.Requests, OverBudget: t.Exceeds,
		})
	}
	if o.Err != nil {
		row.Problem = o.Err.Error()
	}
	return row
}

// cacheTimeout is how long owners may take to tell how they stand, less than who asks
// waits: one that hangs is told of, not waited for.
const cacheTimeout = time.Second

func (n *Agent) replyCache(w http.ResponseWriter, r *http.Request) {
	if n.Store == nil {
		http.Error(w, "this agent has no part in the object cache", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), cacheTimeout)
	defer cancel()
	c, err := CacheStatusOf(ctx, n.Store)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	reply(w, c)
}
