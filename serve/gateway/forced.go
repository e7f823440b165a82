package gateway

import (
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// noteForced takes in that an engine has ended a thought.
func (x *exchange) noteForced(r *openai.Report) {
	if openai.IsForcedEnd(r.ForcedThinkEnd) {
		x.life.Record.ForcedThinkEnd = r.ForcedThinkEnd
	}
}

// noteStopped takes in that vLLM has, as its last chunk of an answer says. Where the gateway did not
// ask for it, a client may have written it, as a text to stop at.
func (x *exchange) noteStopped(c *openai.Chunk) {
	if x.life.Request.TellLimit == thought.LimitXArgs && c.ForcedEnd != "" && x.life.Record.ForcedThinkEnd == "" {
		x.life.Record.ForcedThinkEnd = c.ForcedEnd
	}
}

// forcedEdits say in the usage that a chunk has, or a whole answer, why the thought ended.
func (x *exchange) forcedEdits(c *openai.Chunk) []openai.Edit {
	if x.life.Record.ForcedThinkEnd == "" || c.Usage == nil {
		return nil
	}
	usage := openai.WithDetail(c.Usage, "forced_end", openai.Quote(x.life.Record.ForcedThinkEnd))
	if usage == nil {
		return nil
	}
	return []openai.Edit{{Name: "usage", Value: usage}}
}
