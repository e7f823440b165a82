package prefix

import (
	"maps"
	"time"

	"meridian/keep/prefix/keys"
)

// KeepOutcomes and FindOutcomes are what can come of a Keep and of a Find. Kept: copied, all
// that was missing; part: some of it; whole: all that could be there.
var (
	KeepOutcomes = []string{"kept", "part", "present", "short", "dropped", "declined", "full", "busy", "refused", "unknown", "failed", "withdrawn"}
	FindOutcomes = []string{"whole", "part", "miss", "short", "compute", "late", "busy", "refused", "unknown"}
)

// Metrics is a snapshot of what a cache has done.
type Metrics struct {
	// Keeps and Finds by what came of them.
	Keeps map[string]uint64 `metric:"meridian_cache_keeps_total"`
	Finds map[string]uint64 `metric:"meridian_cache_finds_total"`
	// Of this agent's engines: units that were kept, with their bytes, and that were there
	// already.
	UnitsKept    uint64 `metric:"meridian_cache_units_total,kept"`
	BytesKept    uint64 `metric:"meridian_cache_bytes_total"`
	UnitsPresent uint64 `metric:"meridian_cache_units_total,present"`
	// Tokens that engines asked for and did not have, and how many of them were found.
	TokensAsked uint64 `metric:"meridian_cache_tokens_total,missed" less:"TokensFound"`
	TokensFound uint64 `metric:"meridian_cache_tokens_total,found"`
	Segments    uint64 `metric:"meridian_cache_segments_total"`
	// FoundIn are the tokens that were found by the tier they were in, FindsIn the Finds to
	// which that tier brought something, in the order of keys.Tiers.
	FoundIn [len(keys.Tiers)]uint64 `metric:"meridian_cache_tier_tokens_total" index:"memory,disk,s3,unknown"`
	FindsIn [len(keys.Tiers)]uint64 `metric:"meridian_cache_tier_finds_total" index:"memory,disk,s3,unknown"`
	// Models are Finds by model, of a bounded number of them.
	Models   []keys.Use
	FindTime time.Duration `metric:"meridian_cache_find_seconds_total"` // of all Finds together
	// Of this agent's owner: units that came, and that were given up on their way; runs
	// that were granted to finders, or not; units whose bytes were found to be broken.
	UnitsTaken    uint64 `metric:"meridian_cache_owner_units_total,taken"`
	UnitsAborted  uint64 `metric:"meridian_cache_owner_units_total,aborted"`
	Grants        uint64 `metric:"meridian_cache_owner_asks_total,granted"`
	GrantsRefused uint64
	TakesRefused  uint64
	Broken        uint64 `metric:"meridian_cache_owner_units_total,broken"`
	// Runs of this agent's owner that are used often and that another took a copy of, or did
	// not.
	CopiesMade    uint64 `metric:"meridian_cache_copies_total,taken"`
	CopiesRefused uint64 `metric:"meridian_cache_copies_total,refused"`
	Malformed     uint64 `metric:"meridian_cache_owner_asks_total,malformed"`
	TurnedAway    uint64 `metric:"meridian_cache_owner_asks_total,overloaded"`
	// UsesHeard are words of other agents that something of this owner was used.
	UsesHeard uint64 `metric:"meridian_cache_owner_asks_total,used"`
	// What stands now: bytes and Keeps of this agent's engines on their way, bytes that come
	// to its owner, runs that are granted, kinds of units.
	BytesInFlight uint64 `metric:"meridian_cache_in_flight_bytes,out"`
	Taking        uint64 `metric:"meridian_cache_in_flight_bytes,in"`
	InFlight      int
	Granted       int `metric:"meridian_cache_held_runs"`
	Shapes        int `metric:"meridian_cache_shapes"`
}

// Metrics returns a snapshot.
func (c *Cache) Metrics() Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.metrics
	m.Keeps, m.Finds = maps.Clone(m.Keeps), maps.Clone(m.Finds)
	for _, outcome := range KeepOutcomes {
		m.Keeps[outcome] += 0 // what has not come yet is shown, too
	}
	for _, outcome := range FindOutcomes {
		m.Finds[outcome] += 0
	}
	m.Models = c.models.Uses()
	_, m.InFlight = c.keeps.InFlight()
	m.BytesInFlight, m.Taking = c.out.bytes(), c.in.bytes()
	m.Shapes = len(c.stores)
	return m
}

func (c *Cache) count(change func(*Metrics)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.metrics)
}

// outcomeOf is one of FindOutcomes.
func outcomeOf(found Found) string {
	switch {
	case found.Tokens > 0 && found.Reason == "":
		return "whole"
	case found.Tokens > 0:
		return "part"
	}
	return found.Reason
}

func (c *Cache) countFind(f Find, found Found, took time.Duration) {
	use := keys.Use{
		Model: f.Content.Scope.Model, Tenant: c.names.TenantOf(f.Content.Scope.Salt), Finds: 1,
		TokensAsked: uint64(max(0, len(f.Content.Tokens)-f.Present)), TokensFound: uint64(max(0, found.Tokens-f.Present)),
	}
	if found.Tokens > f.Present {
		use.Hits = 1
	}
	for _, s := range found.Segments {
		untold := s.End - s.Start
		for _, from := range s.From {
			use.FoundIn[keys.TierNumber(from.Tier)] += uint64(from.Tokens)
			untold -= from.Tokens
		}
		use.FoundIn[keys.TierNumber("")] += uint64(max(0, untold))
	}
	c.count(func(m *Metrics) {
		c.tally.Add(use)
		c.models.Add(use)
		for i, tokens := range use.FoundIn {
			m.FoundIn[i] += tokens
			if tokens > 0 {
				m.FindsIn[i]++
			}
		}
		m.Finds[outcomeOf(found)]++
		m.FindTime += took
		m.TokensAsked += use.TokensAsked
		m.TokensFound += use.TokensFound
		m.Segments += uint64(len(found.Segments))
	})
}
