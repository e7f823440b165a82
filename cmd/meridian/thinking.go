package main

import (
	"meridian/config"
	"meridian/gateway"
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
