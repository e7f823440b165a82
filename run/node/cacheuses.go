package node

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/see/peerquery"
)

// CacheUse is what an agent tells of one model and tenant: what came of its engines' Finds
// and Keeps since it started, and what its owner keeps of it in memory now.
type CacheUse struct {
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

// canBeUse refuses a record that no agent would make.
func canBeUse(u *CacheUse) bool {
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
	kept   []CacheUse
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
func (u *usesCache) get(ctx context.Context, now func() time.Time, look func(context.Context) ([]CacheUse, error)) ([]CacheUse, error) {
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

// cacheUses is what this agent tells.
func (n *Agent) cacheUses(ctx context.Context) ([]CacheUse, error) {
	var all []CacheUse
	if n.Prefixes != nil {
		for _, u := range n.Prefixes.Uses() {
			use := CacheUse{Model: u.Model, Tenant: u.Tenant, Finds: u.Finds, Hits: u.Hits, TokensAsked: u.TokensAsked, TokensFound: u.TokensFound, BytesKept: u.BytesKept}
			for i, tokens := range u.FoundIn {
				addTo(&use.FoundIn, keys.Tiers[i], tokens)
			}
			all = append(all, use)
		}
	}
	if n.Store != nil {
		below := CacheUse{Tag: keys.Others, Tenant: keys.Others}
		_, tiers := n.Store.Cold()
		for _, t := range tiers {
			addTo(&below.Below, t.Name, t.OldestSeconds+1) // what was written just now is there, too
		}
		if below.Below != nil {
			all = append(all, below)
		}
	}
	kept, err := n.keptUses(ctx)
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

func (n *Agent) keptUses(ctx context.Context) ([]CacheUse, error) {
	if n.Store == nil {
		return nil, nil
	}
	if _, keeps := n.Store.Kept(); !keeps {
		return nil, nil
	}
	return n.uses.get(ctx, time.Now, n.lookThrough)
}

// lookThrough sums what this agent's owner keeps now.
func (n *Agent) lookThrough(ctx context.Context) ([]CacheUse, error) {
	var g keptGroups
	from := store.ListPlace{Owner: n.Name()}
	for {
		objects, next, err := n.Store.ListPage(ctx, store.ListOptions{AllTenants: true, Prefix: keys.KeyPrefix, Most: 512}, from)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			if objects[i].Owner == n.Name() { // another is next where the directory does not list this one
				g.add(&objects[i])
			}
		}
		if from = next; next.Owner != n.Name() {
			break
		}
	}
	return g.uses(), nil
}

// keptGroups sums objects by model and tenant, of so many apart and of the others together.
type keptGroups struct {
	by   map[[2]string]*CacheUse
	ages map[*CacheUse][]uint64
}

func (g *keptGroups) add(o *store.Object) {
	if g.by == nil {
		g.by, g.ages = make(map[[2]string]*CacheUse), make(map[*CacheUse][]uint64)
	}
	tag, is := keys.TagOf(o.Key)
	key := [2]string{tag.String(), o.Tenant}
	if !is || g.by[key] == nil && len(g.by) >= maxGroups {
		key = [2]string{keys.Others, keys.Others}
	}
	u := g.by[key]
	if u == nil {
		u = &CacheUse{Tag: key[0], Tenant: key[1]}
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

func (g *keptGroups) uses() []CacheUse {
	all := make([]CacheUse, 0, len(g.by))
	for _, u := range g.by {
		ages := g.ages[u]
		slices.Sort(ages)
		u.MedianSeconds = ages[len(ages)/2]
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b CacheUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Tag, b.Tag), strings.Compare(a.Tenant, b.Tenant))
	})
	return all
}

// CacheUses is what all agents of a cell tell, with models by name where one knows it.
type CacheUses struct {
	Uses   []CacheUse    `json:"uses"`
	Silent []Unreachable `json:"silent,omitempty"`
}

// GatherUses asks every agent of the cell.
func (n *Agent) GatherUses(ctx context.Context) (*CacheUses, error) {
	members, err := n.Members(ctx)
	if err != nil {
		return nil, err
	}
	names := prefix.NamesOf(n.proof.key.Derive(trust.ForTickets))
	models := make(map[string]string) // by tag
	all := &CacheUses{}
	var mu sync.Mutex // protects both
	all.Silent = n.askEach(ctx, members, func(ctx context.Context, m kv.Member) error {
		if err := n.pages(ctx, m, peerquery.Question{Kind: peerquery.Keepers}, func(record []byte) {
			var k PrefixEngine
			if json.Unmarshal(record, &k) != nil || len(k.Model) > maxKeeperText || len(k.Revision) > maxKeeperText {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if len(models) < maxGathered {
				models[names.ModelTag(kv.Scope{Model: k.Model, Revision: k.Revision}).String()] = k.Model
			}
		}); err != nil {
			return err
		}
		return n.pages(ctx, m, peerquery.Question{Kind: peerquery.Uses}, func(record []byte) {
			var u CacheUse
			if json.Unmarshal(record, &u) != nil || !canBeUse(&u) {
				return
			}
			u.Agent = m.Name
			mu.Lock()
			defer mu.Unlock()
			if len(all.Uses) < maxGathered {
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
func (c *CacheUses) By(name func(*CacheUse) string) []CacheUse {
	sums, largest := make(map[string]*CacheUse), make(map[string]uint64)
	var order []string
	for i := range c.Uses {
		u := &c.Uses[i]
		if u.Below != nil {
			continue
		}
		key := name(u)
		s := sums[key]
		if s == nil {
			s = &CacheUse{}
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
	all := make([]CacheUse, len(order))
	for i, key := range order {
		all[i] = *sums[key]
		all[i].Model = key
	}
	return all
}

// Ages are since when what a tier of an owner keeps was not used, in memory, or was written,
// below it: half of it at least, where that is known, and all of it at most.
func (c *CacheUses) Ages(owner, tier string) (median, oldest uint64) {
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
