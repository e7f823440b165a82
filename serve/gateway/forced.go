package gateway

import (
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// noteForced takes in that an engine has ended a thought.
func (x *exchange) noteForced(r *openai.Report) {
	if openai.IsForcedEnd(r.ForcedThinkEnd) {
		x.rec.ForcedThinkEnd = r.ForcedThinkEnd
	}
}

// noteStopped takes in that vLLM has, as its last chunk of an answer says. Where the gateway did not
// ask for it, a client may have written it, as a text to stop at.
func (x *exchange) noteStopped(c *openai.Chunk) {
	if x.request.TellLimit == thought.LimitXArgs && c.ForcedEnd != "" && x.rec.ForcedThinkEnd == "" {
		x.rec.ForcedThinkEnd = c.ForcedEnd
	}
}

// forcedEdits say in the usage that a chunk has, or a whole answer, why the thought ended.
func (x *exchange) forcedEdits(c *openai.Chunk) []openai.Edit {
	if x.rec.ForcedThinkEnd == "" || c.Usage == nil {
		return nil
	}
	usage := openai.WithDetail(c.Usage, "forced_end", openai.Quote(x.rec.ForcedThinkEnd))
	if usage == nil {
		return nil
	}
	return []openai.Edit{{Name: "usage", Value: usage}}
}
