package roster

// EngineState is an engine as pages show it.
type EngineState struct {
	ID      string   `json:"id"`
	URL     string   `json:"url"`
	Role    string   `json:"role"`
	Kind    string   `json:"kind"`
	Models  []string `json:"models"`
	Cut     string   `json:"cut,omitempty"`
	Agent   string   `json:"agent,omitempty"` // its home
	Listed  bool     `json:"listed"`
	Phases  string   `json:"phases"`
	Up      bool     `json:"up"`
	Problem string   `json:"problem,omitempty"`
	Running int64    `json:"running"`
	Waiting int64    `json:"waiting_tokens"`
	Served  uint64   `json:"served"`
	Failed  uint64   `json:"failed"`
	// CacheTokens is a piece of a prefix that it shares with others, 0 where it does not.
	CacheTokens int64 `json:"cache_tokens,omitempty"`
	// StoredWeight is what a token costs that it fetches against one that it computes, as
	// its answers tell; 0 where they do not yet.
	StoredWeight float64 `json:"stored_token_weight,omitempty"`
	// Caches is what it says of its caches, rank by rank.
	Caches []CacheState `json:"caches,omitempty"`
}

// States are the engines as they are now.
func (r *Roster) States() []EngineState {
	states := []EngineState{}
	for _, e := range r.All() {
		a := e.About.Load()
		s := EngineState{
			ID: a.ID, URL: e.URL, Role: e.Role.String(), Kind: a.Kind.String(), Models: a.Models, Cut: e.cut, Listed: e.listed, Phases: e.Phases.String(), Up: e.Up.Load(),
			Running: e.Running.Load(), Waiting: e.Waiting.Load(), Served: e.Served.Load(), Failed: e.Failed.Load(),
			Caches: r.CacheStates(e), CacheTokens: e.Unit.Load(), StoredWeight: r.storedWeight(e),
		}
		if home := e.Home.Load(); home != nil {
			s.Agent = home.Name
		}
		if why := e.problem.Load(); why != nil {
			s.Problem = *why
		}
		states = append(states, s)
	}
	return states
}
