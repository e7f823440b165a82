package meta

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
}
