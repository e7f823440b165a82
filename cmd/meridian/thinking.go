package main

import (
	"meridian/run/config"
	"meridian/serve/gateway"
)

// thinkingOf is what a [model] table tells a gateway. Where none fits a name, or several do,
// it knows nothing of the model.
func thinkingOf(in *config.Config) func(model string) gateway.Thinking {
	return func(model string) gateway.Thinking {
		_, m, err := in.ModelOf(model)
		if err != nil {
			return gateway.Thinking{}
		}
		starts, ends := m.MarkerIDs()
		limits := map[string]gateway.ThinkLimit{"thinking_token_budget": gateway.LimitBudget, "vllm_xargs": gateway.LimitXArgs}
		return gateway.Thinking{
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
