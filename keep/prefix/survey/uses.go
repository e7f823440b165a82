package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent/peerquery"
)

// Use is what an agent tells of one model and tenant: what came of its engines' Finds
// and Keeps since it started, and what its owner keeps of it in memory now.
type Use struct {
	// Model is its name, where an engine of the agent has said it; else Tag tells it, which
	// is how keys of its pieces begin. Tenant is a hash of the salt.
	Model       string `json:"model,omitempty"`
	Tag         string `json:"tag,omitempty"`
	Tenant      string `json:"tenant"`
	Finds       uint64 `json:"finds,omitempty"`
	Hits        uint64 `json:"hits,omitempty"`
	TokensAsked uint64 `json:"tokens_asked,omitempty"`
	TokensFound uint64 `json:"tokens_found,omitempty"`
	// FoundIn are the tokens that were found by the tier in which their owners had them.
	FoundIn     map[string]uint64 `json:"found_in,omitempty"`
	BytesKept   uint64            `json:"bytes_kept,omitempty"`
	Objects     uint64            `json:"objects,omitempty"`
	Bytes       uint64            `json:"bytes,omitempty"`
	PinnedBytes uint64            `json:"pinned_bytes,omitempty"`
	// MedianSeconds and OldestSeconds are since when its objects were not used.
	MedianSeconds uint64 `json:"median_seconds,omitempty"`
	OldestSeconds uint64 `json:"oldest_seconds,omitempty"`
	// Below is since when the oldest of each tier below memory was written, in seconds: in one
	// record of an agent, which is of no model and tenant.
	Below map[string]uint64 `json:"below,omitempty"`
	// Agent is who told it.
	Agent string `json:"-"`
}

// maxToldTiers bounds how many tiers an agent may tell of.
const maxToldTiers = 8

// canBe refuses a record that no agent would make.
func canBe(u *Use) bool {
	for _, tiers := range []map[string]uint64{u.FoundIn, u.Below} {
		if len(tiers) > maxToldTiers {
			return false
		}
		for name := range tiers {
			if !keys.IsTier(name) {
				return false
			}
		}
	}
	return len(u.Model) <= maxKeeperText && len(u.Tag) <= maxKeeperText && len(u.Tenant) <= maxKeeperText
}

// usesCache is what was last found out about what is kept, or why that failed: to look at
// every object is work, which is done once in a while however many ask, and however it ends.
type usesCache struct {
	mu     sync.Mutex
	coming chan struct{} // closed when the goroutine that looks has looked; nil: none does
	next   time.Time     // when it may be looked again
	kept   []Use
	err    error
}

// usesEvery is how often at most the objects of an owner are looked through; after a look that
// took long they are left alone usesShare times as long, but no longer than usesLatest.
// maxGroups is how many models and tenants of them are told apart, maxAges how many ages of
// each are looked at.
const (
	usesEvery  = time.Second
	usesShare  = 20
	usesLatest = time.Minute
	maxGroups  = 256
	maxAges    = 1 << 16
)

// get is what look last said, or says now; who asks while another looks waits for that one.
func (u *usesCache) get(ctx context.Context, now func() time.Time, look func(context.Context) ([]Use, error)) ([]Use, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.coming != nil {
		coming := u.coming
		u.mu.Unlock()
		select {
		case <-coming:
		case <-ctx.Done():
		}
		u.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	began := now()
	if began.Before(u.next) {
		return u.kept, u.err
	}
	u.coming = make(chan struct{})
	u.mu.Unlock()
	kept, err := look(ctx)
	u.mu.Lock()
	close(u.coming)
	ended := now()
	u.coming, u.kept, u.err = nil, kept, err
	u.next = ended.Add(min(max(usesEvery, usesShare*ended.Sub(began)), usesLatest))
	return kept, err
}

// ownUses is what this agent tells.
func (s *Survey) ownUses(ctx context.Context) ([]Use, error) {
	var all []Use
	if s.Cache != nil {
		for _, u := range s.Cache.Uses() {
			use := Use{Model: u.Model, Tenant: u.Tenant, Finds: u.Finds, Hits: u.Hits, TokensAsked: u.TokensAsked, TokensFound: u.TokensFound, BytesKept: u.BytesKept}
			for i, tokens := range u.FoundIn {
				addTo(&use.FoundIn, keys.Tiers[i], tokens)
			}
			all = append(all, use)
		}
	}
	if s.Store != nil {
		below := Use{Tag: keys.Others, Tenant: keys.Others}
		_, tiers := s.Store.Cold()
		for _, t := range tiers {
			addTo(&below.Below, t.Name, t.OldestSeconds+1) // what was written just now is there, too
		}
		if below.Below != nil {
			all = append(all, below)
		}
	}
	kept, err := s.uses.get(ctx, time.Now, s.lookThrough)
	return append(all, kept...), err
}

// addTo adds to what is counted under a name; nothing is not counted.
func addTo(counts *map[string]uint64, name string, more uint64) {
	if more == 0 {
		return
	}
	if *counts == nil {
		*counts = make(map[string]uint64)
	}
	(*counts)[name] += more
}

// lookThrough sums what this agent's owner keeps now.
func (s *Survey) lookThrough(ctx context.Context) ([]Use, error) {
	var g keptGroups
	if err := s.eachKept(ctx, keys.KeyPrefix, func(o *store.Object) bool {
		g.add(o)
		return true
	}); err != nil {
		return nil, err
	}
	return g.uses(), nil
}

// keptGroups sums objects by model and tenant, of so many apart and of the others together.
type keptGroups struct {
	by   map[[2]string]*Use
	ages map[*Use][]uint64
}

func (g *keptGroups) add(o *store.Object) {
	if g.by == nil {
		g.by, g.ages = make(map[[2]string]*Use), make(map[*Use][]uint64)
	}
	tag, is := keys.TagOf(o.Key)
	key := [2]string{tag.String(), o.Tenant}
	if !is || g.by[key] == nil && len(g.by) >= maxGroups {
		key = [2]string{keys.Others, keys.Others}
	}
	u := g.by[key]
	if u == nil {
		u = &Use{Tag: key[0], Tenant: key[1]}
		g.by[key] = u
	}
	u.Objects++
	u.Bytes += o.Bytes
	if o.Pinned {
		u.PinnedBytes += o.Bytes
	}
	u.OldestSeconds = max(u.OldestSeconds, o.AgeSeconds)
	if len(g.ages[u]) < maxAges {
		g.ages[u] = append(g.ages[u], o.AgeSeconds)
	}
}

func (g *keptGroups) uses() []Use {
	all := make([]Use, 0, len(g.by))
	for _, u := range g.by {
		ages := g.ages[u]
		slices.Sort(ages)
		u.MedianSeconds = ages[len(ages)/2]
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Tag, b.Tag), strings.Compare(a.Tenant, b.Tenant))
	})
	return all
}

// maxRecords bounds what is kept of what agents tell.
const maxRecords = 4096

// Uses is what all agents of a cell tell, with models by name where one knows it.
type Uses struct {
	Uses   []Use                   `json:"uses"`
	Silent []peerquery.Unreachable `json:"silent,omitempty"`
}

// Uses asks every agent of the cell.
func (s *Survey) Uses(ctx context.Context, asks *peerquery.Service) (*Uses, error) {
	members, err := asks.Members(ctx)
	if err != nil {
		return nil, err
	}
	models := make(map[string]string) // by tag
	all := &Uses{}
	var mu sync.Mutex // protects both
	all.Silent = asks.Each(ctx, members, func(ctx context.Context, m kv.Member) error {
		if err := asks.Pages(ctx, m, peerquery.Question{Kind: peerquery.Keepers}, func(record []byte) {
			var k Engine
			if json.Unmarshal(record, &k) != nil || len(k.Model) > maxKeeperText || len(k.Revision) > maxKeeperText {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if len(models) < maxRecords {
				models[k.tag(s.Names)] = k.Model
			}
		}); err != nil {
			return err
		}
		return asks.Pages(ctx, m, peerquery.Question{Kind: peerquery.Uses}, func(record []byte) {
			var u Use
			if json.Unmarshal(record, &u) != nil || !canBe(&u) {
				return
			}
			u.Agent = m.Name
			mu.Lock()
			defer mu.Unlock()
			if len(all.Uses) < maxRecords {
				all.Uses = append(all.Uses, u)
			}
		})
	})
	for i := range all.Uses {
		if u := &all.Uses[i]; u.Model == "" {
			u.Model = cmp.Or(models[u.Tag], u.Tag)
		}
	}
	return all, ctx.Err()
}

// By sums uses by model or by tenant, the one with the most bytes and tokens first. Medians
// are those of the owner with the most bytes.
func (c *Uses) By(name func(*Use) string) []Use {
	sums, largest := make(map[string]*Use), make(map[string]uint64)
	var order []string
	for i := range c.Uses {
		u := &c.Uses[i]
		if u.Below != nil {
			continue
		}
		key := name(u)
		s := sums[key]
		if s == nil {
			s = &Use{}
			sums[key] = s
			order = append(order, key)
		}
		s.Finds, s.Hits, s.TokensAsked, s.TokensFound = s.Finds+u.Finds, s.Hits+u.Hits, s.TokensAsked+u.TokensAsked, s.TokensFound+u.TokensFound
		s.BytesKept, s.Objects, s.Bytes, s.PinnedBytes = s.BytesKept+u.BytesKept, s.Objects+u.Objects, s.Bytes+u.Bytes, s.PinnedBytes+u.PinnedBytes
		s.OldestSeconds = max(s.OldestSeconds, u.OldestSeconds)
		for tier, tokens := range u.FoundIn {
			addTo(&s.FoundIn, tier, tokens)
		}
		if u.Bytes > largest[key] {
			largest[key], s.MedianSeconds = u.Bytes, u.MedianSeconds
		}
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b].Bytes, sums[a].Bytes), cmp.Compare(sums[b].TokensAsked, sums[a].TokensAsked), strings.Compare(a, b))
	})
	all := make([]Use, len(order))
	for i, key := range order {
		all[i] = *sums[key]
		all[i].Model = key
	}
	return all
}

// Ages are since when what a tier of an owner keeps was not used, in memory, or was written,
// below it: half of it at least, where that is known, and all of it at most.
func (c *Uses) Ages(owner, tier string) (median, oldest uint64) {
	largest := uint64(0)
	for i := range c.Uses {
		u := &c.Uses[i]
		if u.Agent != owner {
			continue
		}
		if tier != store.Memory {
			oldest = max(oldest, max(u.Below[tier], 1)-1)
			continue
		}
		oldest = max(oldest, u.OldestSeconds)
		if u.Bytes > largest {
			largest, median = u.Bytes, u.MedianSeconds
		}
	}
	return median, oldest
}
