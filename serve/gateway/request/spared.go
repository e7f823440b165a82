package request

import "meridian/serve/openai"

// Spared is how many tokens of a prompt an engine did not compute, of how many.
type Spared struct{ Tokens, Of int }

// SparedBy reads it from what an engine tells, in its own member or as OpenAI has it;
// told is false where it does not.
func SparedBy(report *openai.Report, usage *openai.Usage) (s Spared, told bool) {
	switch {
	case report != nil && report.PromptTokens > 0:
		s = Spared{report.CachedTokens, report.PromptTokens}
	case usage.PromptDetails != nil && usage.PromptTokens > 0:
		s = Spared{usage.PromptDetails.CachedTokens, usage.PromptTokens}
	default:
		return s, false
	}
	s.Of = min(s.Of, openai.MaxUsage)
	s.Tokens = min(max(s.Tokens, 0), s.Of)
	return s, true
}

// IsLess tells whether an engine was spared less than was believed to be kept, whose caches keep
// units of so many tokens. What a text's chunks come to in tokens is only about so, so that one
// or two missing say nothing.
func (s Spared) IsLess(r *Request, believed, unit int) bool {
	if !r.IsText() {
		return s.Tokens < believed
	}
	expected := believed * s.Of / max(r.Tokens, 1)
	chunk := r.Prefix.Tokens(1, s.Of)
	return s.Tokens < expected-max(chunk, unit)-expected/8
}
