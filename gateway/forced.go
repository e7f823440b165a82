package gateway

import (
	"slices"

	"meridian/openai"
)

var forcedEnds = []string{openai.ForcedHardCap, openai.ForcedConverged, openai.ForcedOverthinking}

// noteForced takes in that an engine has ended a thought.
func (x *exchange) noteForced(r *openai.Report) {
	if slices.Contains(forcedEnds, r.ForcedThinkEnd) {
		x.rec.ForcedThinkEnd = r.ForcedThinkEnd
	}
}

// forcedEdits say in the usage that a chunk has, or a whole answer, why the thought ended.
func (x *exchange) forcedEdits(c *openai.Chunk) []openai.Edit {
	if x.rec.ForcedThinkEnd == "" || c.Usage == nil {
		return nil
	}
	usage := withDetail(c.Usage, "forced_end", quoted(x.rec.ForcedThinkEnd))
	if usage == nil {
		return nil
	}
	return []openai.Edit{{Name: "usage", Value: usage}}
}
