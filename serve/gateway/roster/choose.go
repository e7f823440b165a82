package roster

import (
	"net/http"
	"slices"
	"strings"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

// LeastBusy is the engine to ask for something that no placement is made for:
// any that decodes and serves the model, where one is named. One of the directory
// that is silent is better than none.
func (r *Roster) LeastBusy(model string, avoid []string) *Engine {
	better := func(e, other *Engine) bool {
		if up := e.Up.Load(); up != other.Up.Load() {
			return up
		}
		return e.Running.Load() < other.Running.Load()
	}
	var best *Engine
	for _, e := range r.All() {
		a := e.About.Load()
		if e.hopeless() || !a.Asked || e.Role&placement.Decode == 0 || model != "" && !a.Serves(model) || slices.Contains(avoid, e.Key) {
			continue
		}
		if best == nil || better(e, best) {
			best = e
		}
	}
	return best
}

// WarmTarget is the engine that computes a prompt ahead: the one that is named, or of
// the agent's, or of all that serve the model, the one with the least to do, those first
// that compute prompts for others.
func (r *Roster) WarmTarget(model, id, agent string) (*Engine, *openai.Error) {
	var best *Engine
	var serving []string
	better := func(e *Engine) bool {
		if best == nil || e.Role&placement.Prefill != best.Role&placement.Prefill {
			return best == nil || e.Role&placement.Prefill != 0
		}
		load := func(e *Engine) int64 {
			return e.Waiting.Load() + e.Running.Load()*int64(r.options.RunningTokens)
		}
		return load(e) < load(best)
	}
	for _, e := range r.All() {
		if !e.Up.Load() || !e.About.Load().Serves(model) {
			continue
		}
		serving = append(serving, e.Name())
		home := ""
		if h := e.Home.Load(); h != nil {
			home = h.Name
		}
		if (id == "" || e.Name() == id) && (agent == "" || home == agent) && better(e) {
			best = e
		}
	}
	if best != nil {
		return best, nil
	}
	slices.Sort(serving)
	var fault *openai.Error
	switch {
	case len(serving) == 0:
		fault = openai.Invalid("model", "no engine that answers serves %.256q", model)
	case id != "":
		fault = openai.Invalid("engine", "no engine %.256q that answers serves %.256q; there is %s", id, model, strings.Join(serving, ", "))
	default:
		fault = openai.Invalid("agent", "no engine of an agent %.256q serves %.256q; `meridian peers` lists agents", agent, model)
	}
	fault.Status = http.StatusNotFound
	return nil, fault
}
