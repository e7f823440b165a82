package policy

import "meridian/kv"

// StaticBudget is Stock with a cap on thinking, as vLLM's thinking_token_budget.
type StaticBudget struct {
	stock Stock
	cap   int32
}

// Name is "static-budget".
func (p *StaticBudget) Name() string { return "static-budget" }

// Decide implements Policy.
func (p *StaticBudget) Decide(s *Snapshot, d *Decision) {
	p.stock.Decide(s, d)
	for _, run := range d.Run {
		r := &s.Requests[run.Request]
		if r.Phase != kv.Think || run.Tokens < r.Pending {
			continue
		}
		// This step finds one more token of the thought.
		if left := p.cap - r.Think - 1; left <= 0 {
			d.Force = append(d.Force, run.Request)
			d.Steps = 1
		} else {
			d.Steps = min(d.Steps, left)
		}
	}
}
