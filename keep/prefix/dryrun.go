package prefix

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// EngineFacts are what decides which units a prompt has at an engine, and what it costs to
// fetch them there; the scope besides, which each request may change.
type EngineFacts struct {
	Engine     string
	UnitTokens int
	UnitBytes  uint64
	Digest     keys.UnitDigest
	// TokenTime is what computing a token costs the engine, by its last Find; 0: it does not
	// say. FetchTime is what a fetch costs, and FetchToken what each token adds; 0 while it
	// is not known.
	TokenTime, FetchTime, FetchToken time.Duration
}

// Facts are those of the engines that have joined, in the order of their names.
func (c *Cache) Facts() []EngineFacts {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]EngineFacts, 0, len(c.engines))
	for id, e := range c.engines {
		f := EngineFacts{Engine: id, UnitTokens: e.unit.Tokens, UnitBytes: objectBytes(e.unit), Digest: e.digest, TokenTime: e.tokenTime}
		micros := func(tokens int) time.Duration {
			return time.Duration(e.breakEven.Micros(tokens) * float64(time.Microsecond))
		}
		f.FetchTime = micros(0)
		f.FetchToken = (micros(1000) - f.FetchTime) / 1000
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b EngineFacts) int { return strings.Compare(a.Engine, b.Engine) })
	return all
}

// Uses are what came of Finds and Keeps of this agent's engines, by model and tenant.
func (c *Cache) Uses() []keys.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.Uses()
}

// NamesOf is the key of names of a cell with such a ticket key.
func NamesOf(ticketKey handoff.Key) keys.NamesKey { return keys.NamesKeyOf(ticketKey) }

// MaxTokens is how many tokens of a prompt are looked for in units of so many.
func MaxTokens(unitTokens int) int { return keys.MaxUnits * unitTokens }

// DryRunResult is what owners have of a chain.
type DryRunResult struct {
	Path keys.LookupPath
	// Copies is what each owner has of each unit, Silent why one did not say.
	Copies map[string][]store.Availability
	Silent map[string]error
}

const (
	// maxOwnersAsked bounds how many owners are asked, askedTogether how many at a time.
	maxOwnersAsked = 256
	askedTogether  = 16
	// lookPatience is how long each may take, and the master: a person waits.
	lookPatience = 3 * time.Second
)

// DryRun finds out what a Find of a chain would be told, without one: nothing is leased,
// verified, brought to memory or counted as use, and nothing stays behind. A unit of which
// nothing is left but a copy is found there.
func DryRun(ctx context.Context, s *store.Store, chain keys.Chain) *DryRunResult {
	run := runOf(chain)
	l, sights, known := lookAt(ctx, s, run)
	for number := 2; number <= keys.MaxCopies && ctx.Err() == nil; number++ {
		_, others, _ := lookAt(ctx, s, run.Copy(number))
		some := false
		for i := range others {
			some = some || others[i].Tier != ""
			if sights[i].Tier == "" && others[i].Tier != "" {
				sights[i] = others[i]
			}
		}
		if !some {
			break
		}
	}
	l.Path = keys.PathOf(sights, known)
	return l
}

// lookAt looks at objects of a run, and says whether the master told who has what.
func lookAt(ctx context.Context, s *store.Store, run store.Run) (l *DryRunResult, sights []keys.Availability, known bool) {
	l = &DryRunResult{Copies: make(map[string][]store.Availability), Silent: make(map[string]error)}
	patient, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	where, problem := s.Where(patient, run)
	if where == nil {
		where = make([]string, len(run.Keys))
	}
	var wait sync.WaitGroup
	var mu sync.Mutex // protects l
	places := make(chan struct{}, askedTogether)
	owners := s.Owners()
	for _, o := range owners[:min(len(owners), maxOwnersAsked)] {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, lookPatience)
			defer cancel()
			seen, err := s.Inspect(ctx, o.Name, run)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				l.Silent[o.Name] = err
				return
			}
			l.Copies[o.Name] = seen
		})
	}
	wait.Wait()
	return l, l.sights(where), problem == nil
}

// sights says of each unit who would be asked for it: who the master names, else who has it
// in a tier.
func (l *DryRunResult) sights(where []string) []keys.Availability {
	names := make([]string, 0, len(l.Copies))
	for name := range l.Copies {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([]keys.Availability, len(where))
	for i, owner := range where {
		for _, name := range names {
			if tier := l.Copies[name][i].Tier; owner == "" && tier != "" && tier != store.Memory {
				owner = name
			}
		}
		all[i].Owner = owner
		if seen, told := l.Copies[owner]; told {
			one := seen[i]
			all[i].Tier, all[i].Bytes, all[i].AgeSeconds, all[i].Pinned = one.Tier, one.Bytes, one.AgeSeconds, one.Pinned
		} else {
			all[i].Silent = owner != ""
		}
	}
	return all
}

// ChainFor is the chain of a prompt at an engine of such facts.
func (f *EngineFacts) ChainFor(names keys.NamesKey, scope kv.Scope, tokens []uint32) keys.Chain {
	return keys.ChainOf(names, scope, f.Digest, tokens[:min(len(tokens), MaxTokens(f.UnitTokens))], f.UnitTokens)
}

// Worth says how long so many tokens would take to fetch and to compute, as far as that is
// known, and whether fetching is thought to be worth it, as Find would decide.
func (f *EngineFacts) Worth(tokens int) (fetch, compute time.Duration, worth bool) {
	if f.FetchTime > 0 || f.FetchToken > 0 {
		fetch = f.FetchTime + time.Duration(tokens)*f.FetchToken
	}
	compute = time.Duration(tokens) * f.TokenTime
	return fetch, compute, compute == 0 || fetch <= compute
}
