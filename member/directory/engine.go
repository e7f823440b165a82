package directory

import (
	"encoding/json"
	"fmt"
)

// EnginePrefix is where engines are found, each under its id.
const EnginePrefix = "engines/"

// EngineRecord is an engine as its home agent publishes it, in JSON, for those
// who send it requests. It is here because two rooms that know nothing of each
// other, door server and gateway, must agree on it.
type EngineRecord struct {
	ID string `json:"id"`
	// Incarnation is of this registration: an engine that comes back has another.
	Incarnation string `json:"incarnation"`
	Home        string `json:"home"` // the agent that speaks for it
	// HomeIncarnation is that agent's. An agent that tells it redeems promises.
	HomeIncarnation string `json:"home_incarnation"`
	URL             string `json:"url"`  // where requests reach it; empty: not by HTTP
	Role            string `json:"role"` // prefill, decode or both
	Model           string `json:"model"`
	Cut             string `json:"cut"` // how it cuts and keeps the cache, for people
	BlockTokens     int    `json:"block_tokens"`
	Blocks          int    `json:"blocks"`
	// Legs is the newest version of a gateway's legs that its home reads; 0 for homes
	// of builds that did not say.
	Legs int `json:"legs,omitempty"`
	// CacheTokens: the engine keeps prefixes in the cell's object cache and finds those
	// of others there, in pieces of so many tokens; 0 where it does not.
	CacheTokens int `json:"cache_tokens,omitempty"`
}

// Bounds of what an engine's record may say.
const (
	maxNameBytes = 255
	maxTextBytes = 1 << 10
	// maxCount bounds each of two counts so that their product is a number still.
	maxCount = 1 << 30
)

// ParseEngineRecord reads an engine's record as any client that can write to the directory
// left it: what it returns has a name that is its key's, texts of bounded length
// and counts that can be multiplied.
func ParseEngineRecord(record Record) (EngineRecord, error) {
	refuse := func(why string, args ...any) (EngineRecord, error) {
		return EngineRecord{}, invalid("read an engine's record", fmt.Sprintf("%.80q", record.Key), fmt.Sprintf(why, args...), "its home agent writes it anew when the engine registers again")
	}
	if len(record.Value) > MaxValueBytes {
		return refuse("it has %d bytes; %d is the limit", len(record.Value), MaxValueBytes)
	}
	var r EngineRecord
	if err := json.Unmarshal(record.Value, &r); err != nil {
		return refuse("it is no JSON of an engine: %.200v", err)
	}
	if len(r.ID) < 1 || len(r.ID) > maxNameBytes || EnginePrefix+r.ID != record.Key || keyProblem(record.Key) != "" {
		return refuse("it is of engine %.80q, which is not its key's", r.ID)
	}
	for _, text := range []struct {
		name, value string
		limit       int
	}{
		{"incarnation", r.Incarnation, maxNameBytes},
		{"home", r.Home, maxNameBytes},
		{"home_incarnation", r.HomeIncarnation, maxNameBytes},
		{"role", r.Role, maxNameBytes},
		{"url", r.URL, maxTextBytes},
		{"model", r.Model, maxTextBytes},
		{"cut", r.Cut, maxTextBytes},
	} {
		if len(text.value) > text.limit {
			return refuse("its %s has %d bytes; %d is the limit", text.name, len(text.value), text.limit)
		}
	}
	if r.Blocks < 0 || r.Blocks > maxCount || r.BlockTokens < 0 || r.BlockTokens > maxCount {
		return refuse("%d blocks of %d tokens are no cache", r.Blocks, r.BlockTokens)
	}
	if r.CacheTokens < 0 || r.CacheTokens > maxCount {
		return refuse("pieces of %d tokens are none of a prefix", r.CacheTokens)
	}
	return r, nil
}
