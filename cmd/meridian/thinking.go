package main

import (
	"meridian/run/config"
	"meridian/serve/gateway/thought"
)

// thinkingOf is what a [model] table tells a gateway. Where none fits a name, or several do,
// it knows nothing of the model.
func thinkingOf(in *config.Config) func(model string) thought.Markers {
	return func(model string) thought.Markers {
		_, m, err := in.ModelOf(model)
		if err != nil {
			return thought.Markers{}
		}
		starts, ends := m.MarkerIDs()
		limits := map[string]thought.Limit{"thinking_token_budget": thought.LimitBudget, "vllm_xargs": thought.LimitXArgs}
		return thought.Markers{
			Starts: m.ThinkStartTexts, Ends: m.ThinkEndTexts, StartIDs: starts, EndIDs: ends,
			Opened: m.SplitThoughts == "opened" || m.SplitThoughts == config.Auto && m.Markers.Opens,
			Whole:  m.SplitThoughts == "off", Limit: limits[m.ThinkLimit],
		}
	}
}

// effortsOf is how many tokens a thought may have, by what clients call its effort.
func effortsOf(in *config.Config) map[string]int {
	e, most := in.Gateway.Effort, float64(in.Scheduler.MaxThinkTokens)
	tokens := make(map[string]int)
	for name, share := range map[string]float64{"minimal": e.Minimal, "low": e.Low, "medium": e.Medium, "high": e.High, "xhigh": e.XHigh, "max": e.XHigh} {
		tokens[name] = int(share * most)
	}
	return tokens
}
