package engine

import "fmt"

// Counters count since the start.
type Counters struct {
	Steps     uint64 `json:"steps" metric:"meridian_engine_steps_total"`
	Prompt    uint64 `json:"prompt" metric:"meridian_engine_tokens_total,prompt"`       // tokens of prompts
	Computed  uint64 `json:"computed" metric:"meridian_engine_tokens_total,computed"`   // tokens, prompts and answers, preempted ones again
	Generated uint64 `json:"generated" metric:"meridian_engine_tokens_total,generated"` // tokens of answers
	Preempted uint64 `json:"preempted" metric:"meridian_engine_preempted_total"`
	Paused    uint64 `json:"paused"` // for a reader that was slow

	Finished  uint64 `json:"finished" metric:"meridian_engine_requests_ended_total,finished"` // requests
	Cancelled uint64 `json:"cancelled" metric:"meridian_engine_requests_ended_total,cancelled"`
	Failed    uint64 `json:"failed" metric:"meridian_engine_requests_ended_total,failed"`
	Moved     uint64 `json:"moved"` // to other engines, among those that finished

	Told       uint64 `json:"told"`        // steps that a governor was told of
	Decided    uint64 `json:"decided"`     // decisions of it that were applied …
	Late       uint64 `json:"late"`        // … of which these came after another step had been told
	FailedOpen uint64 `json:"failed_open"` // pauses were lifted since it was silent
	Stopped    uint64 `json:"stopped"`     // sequences whose blocks it took
	Unheeded   uint64 `json:"unheeded"`    // preemptions that would have kept a sequence from its next token
	Forced     uint64 `json:"forced"`      // thoughts that were ended, by it or by their cap
	Forked     uint64 `json:"forked"`      // looks behind the end of a thought
	CopiedOut  uint64 `json:"copied_out"`  // blocks whose copies it asked for
	Recalled   uint64 `json:"recalled"`    // sequences that came back, with what they had

	Offered  uint64 `json:"offered" metric:"meridian_engine_offers_total,taken"`     // prompts
	Declined uint64 `json:"declined" metric:"meridian_engine_offers_total,declined"` // prompts that the agent did not take
	Ready    uint64 `json:"ready" metric:"meridian_engine_handoffs_total,ready"`     // prompts that came from elsewhere
	Broken   uint64 `json:"broken" metric:"meridian_engine_handoffs_total,failed"`   // that were on their way and did not come
	Local    uint64 `json:"local" metric:"meridian_engine_handoffs_total,local"`     // that should have come, and were computed here

	Kept        uint64 `json:"kept"`         // prefixes that the agent was told of
	Unkept      uint64 `json:"unkept"`       // that it was not, or did not take
	Found       uint64 `json:"found"`        // that came from the cell
	Regained    uint64 `json:"regained"`     // sequences that lost their blocks, and of which some came from there
	FoundTokens uint64 `json:"found_tokens"` // of them, that were not here
	Missed      uint64 `json:"missed"`       // that the cell did not have, or not in time
}

// Stats is what GET /stats answers.
type Stats struct {
	Engine string     `json:"engine"`
	Model  string     `json:"model"`
	Cut    string     `json:"cut"`
	Blocks BlockStats `json:"blocks"`
	// Running are answers that are computed, Fetching those whose prompt comes
	// from elsewhere, Waiting the rest.
	Running  int `json:"running" metric:"meridian_engine_requests,running"`
	Fetching int `json:"fetching" metric:"meridian_engine_requests,fetching"`
	Waiting  int `json:"waiting" metric:"meridian_engine_requests,waiting"`
	// Room is how many more would be computed without waiting, as far as their blocks fit.
	Room     int          `json:"room"`
	Handoffs HandoffStats `json:"handoffs"`
	Tokens   TokenStats   `json:"tokens"`
	// Door is absent, serving or lost.
	Door     string   `json:"door"`
	Counters Counters `json:"counters"`
}

// BlockStats is of KV memory. When nothing runs, free and cached are all.
type BlockStats struct {
	Total  int `json:"total" metric:"meridian_engine_blocks,used" less:"Free,Cached"`
	Free   int `json:"free" metric:"meridian_engine_blocks,free"`
	Cached int `json:"cached" metric:"meridian_engine_blocks,cached"`
	Held   int `json:"held" metric:"meridian_engine_blocks_held"` // that the door was told of
}

// HandoffStats is of prompts that were to come from elsewhere.
type HandoffStats struct {
	Ready  uint64 `json:"ready"`
	Failed uint64 `json:"failed"`
	Local  uint64 `json:"local"`
}

// TokenStats counts tokens.
type TokenStats struct {
	Prompt    uint64 `json:"prompt"`
	Generated uint64 `json:"generated"`
}

// Stats is how things stood after the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Metrics is the counters after the last step.
func (e *Engine) Metrics() Counters { return e.Stats().Counters }

// publishStats lets others see where the step loop is.
func (e *Engine) publishStats() {
	s, c := e.scheduler.Stats(), e.counters
	stats := Stats{
		Engine: e.options.ID, Model: e.options.ServedName, Cut: e.cutText,
		Blocks:  BlockStats{Total: s.Total, Free: s.Free, Cached: s.Cached, Held: s.Held},
		Running: s.Running, Fetching: s.Fetching, Waiting: s.Waiting,
		Handoffs: HandoffStats{Ready: c.Ready, Failed: c.Broken, Local: c.Local},
		Tokens:   TokenStats{Prompt: c.Prompt, Generated: c.Generated},
		Door:     e.doorState, Counters: c,
	}
	if s.Waiting == 0 {
		stats.Room = max(e.options.MaxRunning-s.Running-s.Fetching, 0)
	}
	e.mu.Lock()
	e.stats = stats
	e.mu.Unlock()
}

// describeCut says how the model lies in memory, as commands take it.
func (e *Engine) describeCut() string {
	return fmt.Sprintf("tp=%d,pp=%d,block=%d,layout=%s", e.cut.Parallelism.TP, len(e.cut.Parallelism.Stages), e.cut.BlockTokens, e.cut.Layout)
}
