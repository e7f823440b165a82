package gateway

import (
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// forcedEdits say in the usage that a chunk has, or a whole answer, why the thought ended.
func forcedEdits(r *ledger.Record, c *openai.Chunk) []openai.Edit {
	if r.ForcedThinkEnd == "" || c.Usage == nil {
		return nil
	}
	usage := openai.WithDetail(c.Usage, "forced_end", openai.Quote(r.ForcedThinkEnd))
	if usage == nil {
		return nil
	}
	return []openai.Edit{{Name: "usage", Value: usage}}
}
